/*
 * Google's credentials: key files, and the OAuth tokens that they are exchanged for.
 *
 *	struct google_key *key = NULL;
 *
 *	google_key_load(&key, "/etc/keys/trainer.json", err);
 *	credential_source_google(&provider, key, err);		the key stays the caller's
 *	credentials_get(provider, &keys, err);			keys.bearer is the token
 *
 * A token is fetched when it is first asked for and again five minutes before it ends, on the thread that
 * asks, with an HTTP engine of its own. Private keys, refresh tokens and tokens go to log_redact().
 */
#ifndef NET_GOOGLE_H
#define NET_GOOGLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "net/credentials.h"

struct penstock_error;
struct evp_pkey_st;

enum google_key_kind {
	GOOGLE_SERVICE_ACCOUNT, /* "service_account": signs its own requests for tokens */
	GOOGLE_AUTHORIZED_USER	/* "authorized_user", as gcloud leaves it: has a refresh token */
};

struct google_key {
	enum google_key_kind kind;
	char *client_email;	 /* service account */
	char *private_key_id;	 /* service account; NULL: not given */
	struct evp_pkey_st *rsa; /* service account */
	char *client_id;	 /* user */
	char *client_secret;	 /* user */
	char *refresh_token;	 /* user */
	char *token_uri;	 /* https://, or http:// on this machine */
	char *project_id;	 /* NULL: not given */
};

/* Reads the JSON of a key file. PENSTOCK_E_INVALID: it is none; PENSTOCK_E_UNSUPPORTED: of another type. */
int google_key_parse(
	struct google_key **out, const char *json, size_t len, struct penstock_error *err);
/* The same from a file, which errors name. */
int google_key_load(struct google_key **out, const char *path, struct penstock_error *err);
void google_key_free(struct google_key *key);
void google_key_freep(struct google_key **key);

/* Tokens for `key`, which outlives the provider. */
int credential_source_google(struct credentials_provider **out, const struct google_key *key,
	struct penstock_error *err);
/* Tokens of the service account of this machine, from its metadata service (GCE_METADATA_HOST). */
int credential_source_google_instance(
	struct credentials_provider **out, struct penstock_error *err);

/*
 * Whether a token, or what is exchanged for one, may be sent there: who sees it has what it opens, so it goes over
 * https:// or stays on this machine.
 */
bool google_may_have_token(const char *url);

/* ---- the pieces, for tests and for signing ---- */

/* A signed request for a token: header, claims and signature in base64url. `now` in seconds. */
int google_jwt(
	const struct google_key *key, int64_t now, struct buf *out, struct penstock_error *err);
/* The signature (RSA, PKCS #1 v1.5, SHA-256) of a text: struct sigv4's `rsa`. `key` is a google_key. */
int google_sign_hex(
	void *key, const void *text, size_t len, struct buf *hex, struct penstock_error *err);
/* Reads {"access_token", "expires_in"}; `now_ns` is the wall clock's. */
int google_token_parse(const char *json, size_t len, int64_t now_ns, struct credentials *out,
	struct penstock_error *err);

#endif
