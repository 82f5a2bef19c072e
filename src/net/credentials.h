/*
 * Credentials, region and endpoint of an S3-compatible service.
 *
 *	_cleanup_(s3_settings_release) struct s3_settings s = { 0 };
 *
 *	s3_settings_resolve(&s, &(struct s3_given){ .region = region, .profile = profile }, err);
 *	... s.endpoint_url, s.region, s.credentials
 *
 * Precedence, the first that is there. Place: given; environment; profile; the built-in default.
 * Credentials: given; a profile given by name; environment; web identity (AWS_WEB_IDENTITY_TOKEN_FILE,
 * AWS_ROLE_ARN); profile (role_arn with source_profile, credential_source or web_identity_token_file;
 * keys; credential_process); container; EC2 instance, unless AWS_EC2_METADATA_DISABLED is "true".
 * Environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; AWS_REGION,
 * AWS_DEFAULT_REGION; AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL_STS, AWS_ENDPOINT_URL,
 * AWS_IGNORE_CONFIGURED_ENDPOINT_URLS; AWS_PROFILE, AWS_CONFIG_FILE, AWS_SHARED_CREDENTIALS_FILE. Every
 * secret is passed to log_redact(). Sources of temporary keys: net/credential_sources.h.
 */
#ifndef NET_CREDENTIALS_H
#define NET_CREDENTIALS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct penstock_error;
struct google_key;

struct credentials {
	char *access_key_id;
	char *secret_access_key;
	char *session_token;   /* NULL: none */
	char *bearer;	       /* an OAuth token in place of the keys, which are NULL then */
	int64_t expires_at_ns; /* wall clock; 0: never */
};
void credentials_release(struct credentials *c);

struct credentials_provider;

/* Keys as they are; copies. `session_token` may be NULL. */
int credentials_provider_new_static(struct credentials_provider **out, const char *access_key_id,
	const char *secret_access_key, const char *session_token, struct penstock_error *err);
/* Requests stay unsigned. */
int credentials_provider_new_anonymous(
	struct credentials_provider **out, struct penstock_error *err);

/*
 * Keys that expire: `fetch` is called when there are none yet, or when the ones that are there
 * expire within five minutes; where they were given for no longer than that, when a quarter of their
 * life is over. One thread fetches at a time; the others go on with keys that are still valid, else
 * they wait for it and are told its error. `cancel` is set when nobody waits any more. `release` may
 * be NULL.
 */
struct credentials_fetcher {
	const char *name; /* for messages; a literal */
	int (*fetch)(void *cookie, const atomic_int *cancel, struct credentials *out,
		struct penstock_error *err);
	void (*release)(void *cookie);
	void *cookie;
};
int credentials_provider_new_fetcher(struct credentials_provider **out,
	const struct credentials_fetcher *fetcher, struct penstock_error *err);

void credentials_provider_free(struct credentials_provider *provider);
void credentials_provider_freep(struct credentials_provider **provider);

/* Whether there is nothing to sign with. */
bool credentials_anonymous(const struct credentials_provider *provider);
/* A copy of what is valid now; release it. Any thread. */
int credentials_get(
	struct credentials_provider *provider, struct credentials *out, struct penstock_error *err);
/* How long somebody waits for keys that are fetched; then PENSTOCK_E_CANCELLED or PENSTOCK_E_TIMEOUT. */
struct credentials_patience {
	const atomic_int *cancel;     /* of the caller; NULL: none */
	const atomic_int *cancel_all; /* of everything, as an engine's; NULL: none */
	int64_t deadline_ms;	      /* monotonic; 0: none */
};
int credentials_get_within(struct credentials_provider *provider,
	const struct credentials_patience *patience, struct credentials *out,
	struct penstock_error *err);
/*
 * The same without waiting for anybody: true where valid credentials are at hand that are not
 * `present`; those replace it. For hooks, which must not block.
 */
bool credentials_renewed(struct credentials_provider *provider, struct credentials *present);
/*
 * The store refused `refused`, which it should not yet: where they are still the present ones, new ones are
 * fetched on a thread of their own. Does not wait; credentials_renewed() tells when they are there. False: these
 * credentials are never renewed.
 */
bool credentials_refused(struct credentials_provider *provider, const struct credentials *refused);
/* Makes the next credentials_get() fetch again (the store said that the keys expired). */
void credentials_invalidate(struct credentials_provider *provider);

/* What the user or the workflow gave; every member may be NULL. */
struct s3_given {
	const char *access_key_id;
	const char *secret_access_key;
	const char *session_token;
	const char *region;
	const char *endpoint_url;
	const char *profile;	     /* NULL: AWS_PROFILE, else "default" */
	bool anonymous;		     /* no credentials, whatever is there */
	bool google;		     /* Google Cloud Storage is meant: gs_settings_resolve() */
	const char *google_key;	     /* path of a Google key file */
	const char *google_key_json; /* or what stands in one */
	/* Either ends the question to the machine's metadata service; NULL: none. */
	const atomic_int *cancel, *cancel_all;
};

struct s3_settings {
	char *endpoint_url; /* never NULL */
	char *region;	    /* never NULL; us-east-1 where nothing says */
	struct credentials_provider *credentials;
	/* Where the keys came from: "given", "anonymous", "environment", "web identity", "role", "profile",
	 * "credential_process", "container", "instance". */
	const char *source;
	bool google;		/* it is Google Cloud Storage: its headers, its signatures */
	struct google_key *key; /* of a service account or a user; NULL: none */
	char *project;		/* that new buckets belong to; NULL: unknown */
};

/*
 * Asks nobody but the instance's metadata service, and that only where nothing else has keys.
 * Fails with PENSTOCK_E_PERMISSION where no credentials are found (the message lists where they
 * were looked for), with PENSTOCK_E_INVALID for a config file that does not parse (file:line), an
 * unknown profile that was asked for by name, or half a key pair.
 */
int s3_settings_resolve(
	struct s3_settings *out, const struct s3_given *given, struct penstock_error *err);
/*
 * The same for Google Cloud Storage. Place: given; STORAGE_EMULATOR_HOST; https://storage.googleapis.com.
 * Credentials: keys given (HMAC keys); the key file given; a profile given by name (its HMAC keys);
 * GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY; the key file in GOOGLE_APPLICATION_CREDENTIALS;
 * AWS_ACCESS_KEY_ID, where it is one of Google's ("GOOG…"); gcloud's application default credentials;
 * with STORAGE_EMULATOR_HOST, none; the machine's metadata service, unless NO_GCE_CHECK is "true".
 * Project: GOOGLE_CLOUD_PROJECT, else the key file's.
 */
int gs_settings_resolve(
	struct s3_settings *out, const struct s3_given *given, struct penstock_error *err);
void s3_settings_release(struct s3_settings *settings);

#endif
