/*
 * Credentials, region and endpoint of an S3-compatible service.
 *
 *	_cleanup_(s3_settings_release) struct s3_settings s = { 0 };
 *
 *	r = s3_settings_resolve(&s, &(struct store_place){ .region = region }, err);
 *	if (r == 0)
 *		... s.endpoint_url, s.region, s.credentials ...
 *
 * The first existing source takes precedence. Endpoint and region: the caller; environment;
 * profile; the built-in default. Credentials: the caller; a profile named by the caller;
 * environment; web identity (AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN); profile (role_arn with
 * source_profile, credential_source or web_identity_token_file; keys; credential_process);
 * container; EC2 instance, unless AWS_EC2_METADATA_DISABLED is "true". Environment:
 * AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; AWS_REGION, AWS_DEFAULT_REGION;
 * AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL_STS, AWS_ENDPOINT_URL, AWS_IGNORE_CONFIGURED_ENDPOINT_URLS;
 * AWS_PROFILE, AWS_CONFIG_FILE, AWS_SHARED_CREDENTIALS_FILE. Every secret is passed to
 * log_redact(). Sources of temporary keys: net/credentials/sources.h.
 */
#ifndef NET_CREDENTIALS_CREDENTIALS_H
#define NET_CREDENTIALS_CREDENTIALS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct penstock_error;
struct google_key;

struct credentials {
	char *access_key_id;
	char *secret_access_key;
	char *session_token; /* may be NULL */
	char *bearer; /* an OAuth token instead of the keys, which are then NULL */
	int64_t expires_at_ns; /* wall clock; 0 if never */
};
void credentials_release(struct credentials *c);

struct credentials_provider;

/* Creates a provider of fixed keys; copies them. `session_token` may be NULL. */
int credentials_provider_new_static(struct credentials_provider **out, const char *access_key_id,
	const char *secret_access_key, const char *session_token, struct penstock_error *err);
/* Creates a provider without keys: requests stay unsigned. */
int credentials_provider_new_anonymous(
	struct credentials_provider **out, struct penstock_error *err);

/*
 * Creates a provider of keys that expire. `fetch` is called if there are no keys yet, if the keys
 * were rejected, or if they expire within five minutes and a quarter of their life has passed. One
 * thread fetches at a time; other threads continue with keys that are still valid; without such
 * keys they wait for the fetch, and get its error if it fails. `cancel` is set once no caller needs
 * the new keys any more. The provider owns the cookie: `release` (may be NULL) is also called if
 * this call fails.
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

/* Returns true if there are no keys to sign with. */
bool credentials_anonymous(const struct credentials_provider *provider);
/* Returns true if the keys come from a source that can be queried again. */
bool credentials_renewable(const struct credentials_provider *provider);
/* Gets a copy of the current credentials, which the caller releases. May be called from any
 * thread. */
int credentials_get(
	struct credentials_provider *provider, struct credentials *out, struct penstock_error *err);
/* Limits the wait for keys that are being fetched. At the limit the result is PENSTOCK_E_CANCELLED
 * or PENSTOCK_E_TIMEOUT. */
struct credentials_patience {
	const atomic_int *cancel; /* the caller's flag; may be NULL */
	const atomic_int *cancel_all; /* flag of a wider scope, such as an engine; may be NULL */
	int64_t deadline_ms; /* monotonic; 0 if there is no deadline */
};
int credentials_get_within(struct credentials_provider *provider,
	const struct credentials_patience *patience, struct credentials *out,
	struct penstock_error *err);
/* Like credentials_get(), but never waits: returns true, and replaces `present`, if there are valid
 * credentials that differ from `present`. For hooks, which must not block. */
bool credentials_renewed(struct credentials_provider *provider, struct credentials *present);
/*
 * Reports that the store rejected the credentials `refused` before their expiry. If these
 * credentials are still current, another thread fetches new credentials; the call does not wait,
 * and credentials_renewed() returns true once the new credentials are there. Returns false if these
 * credentials cannot be renewed. Sets *pending to true if the credentials are already replaced or a
 * fetch was already in flight, else to false.
 */
bool credentials_refused(
	struct credentials_provider *provider, const struct credentials *refused, bool *pending);
/* Makes the next credentials_get() fetch again, after the store reported that the keys have
 * expired. */
void credentials_invalidate(struct credentials_provider *provider);

/* Settings from the user or the workflow; every member may be NULL. */
struct store_place {
	const char *access_key_id;
	const char *secret_access_key;
	const char *session_token;
	const char *region;
	const char *endpoint_url;
	const char *profile; /* if NULL: AWS_PROFILE, or "default" without that variable */
	bool anonymous; /* use no credentials, even if there are some */
	bool google; /* for Google Cloud Storage: gs_settings_resolve() */
	const char *google_key; /* path of a Google key file */
	const char *google_key_json; /* content of a Google key file */
	bool *no_keys; /* set if no source has keys; may be NULL */
	/* Either flag cancels the query of the metadata service. Both may be NULL. */
	const atomic_int *cancel, *cancel_all;
};

struct s3_settings {
	char *endpoint_url; /* never NULL */
	char *region; /* never NULL; us-east-1 by default */
	struct credentials_provider *credentials;
	/* Source of the keys: "given", "anonymous", "environment", "web identity", "role",
	 * "profile", "credential_process", "container", "instance", "key file", "gcloud". */
	const char *source;
	bool google; /* Google Cloud Storage, with its headers and signatures */
	struct google_key *key; /* key of a service account or a user; may be NULL */
	char *project; /* owner of new buckets; NULL if unknown */
};

/*
 * Resolves the settings. Sends requests only to the metadata service, and only if no other source
 * has keys. Returns -PENSTOCK_E_PERMISSION if no credentials are found (the message lists the
 * places), -PENSTOCK_E_INVALID for a malformed config file (file:line), for an unknown profile that
 * was named explicitly, or for half a key pair.
 */
int s3_settings_resolve(
	struct s3_settings *out, const struct store_place *given, struct penstock_error *err);
/* Returns true if the endpoint is the word "embedded": the caller then has to fill in the URL and
 * the keys of the embedded store first. Returns false if a config file cannot be read;
 * s3_settings_resolve() reports that error. */
bool s3_settings_embedded(const struct store_place *given);
/*
 * Like s3_settings_resolve(), for Google Cloud Storage. Endpoint: the caller;
 * STORAGE_EMULATOR_HOST; https://storage.googleapis.com. Credentials: keys of the caller (HMAC
 * keys); the caller's key file; a profile named by the caller (its HMAC keys); GS_ACCESS_KEY_ID and
 * GS_SECRET_ACCESS_KEY; the key file in GOOGLE_APPLICATION_CREDENTIALS; AWS_ACCESS_KEY_ID, if it is
 * one of Google's ("GOOG…"); gcloud's application default credentials; none if
 * STORAGE_EMULATOR_HOST is set; the machine's metadata service, unless NO_GCE_CHECK is "true".
 * Project: GOOGLE_CLOUD_PROJECT, else the project of the key file.
 */
int gs_settings_resolve(
	struct s3_settings *out, const struct store_place *given, struct penstock_error *err);
/* Returns the endpoint and the region of the environment and the profile; the caller frees both.
 * The endpoint is NULL if it is Amazon's; the region is us-east-1 by default. */
int s3_place_resolve(char **endpoint_url, char **region, struct penstock_error *err);
void s3_settings_release(struct s3_settings *settings);

#endif
