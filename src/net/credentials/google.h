/*
 * Google's credentials: key files, and the OAuth tokens for which key files are exchanged.
 *
 *	struct google_key *key = NULL;
 *
 *	r = google_key_load(&key, "/etc/keys/trainer.json", err);
 *	if (r == 0)
 *		r = credential_source_google(&provider, key, err);	// the caller keeps the key
 *	if (r == 0)
 *		r = credentials_get(provider, &keys, err);	// keys.bearer is the token
 *
 * A token is fetched on first use, and again on the first use within five minutes before it
 * expires; the provider has its own HTTP engine. Private keys, refresh tokens and tokens are passed
 * to log_redact().
 */
#ifndef NET_CREDENTIALS_GOOGLE_H
#define NET_CREDENTIALS_GOOGLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "net/credentials/credentials.h"

struct penstock_error;
struct evp_pkey_st;

enum google_key_kind {
	GOOGLE_SERVICE_ACCOUNT, /* "service_account": signs its own token requests */
	GOOGLE_AUTHORIZED_USER /* "authorized_user", as written by gcloud: has a refresh token */
};

struct google_key {
	enum google_key_kind kind;
	char *client_email; /* service account */
	char *private_key_id; /* service account; may be NULL */
	struct evp_pkey_st *rsa; /* service account */
	char *client_id; /* user */
	char *client_secret; /* user */
	char *refresh_token; /* user */
	char *token_uri; /* https://, or http:// on this machine */
	char *project_id; /* may be NULL */
};

/* Parses the JSON of a key file. Returns -PENSTOCK_E_INVALID if the text is not a key file,
 * -PENSTOCK_E_UNSUPPORTED if the type of the key is not supported. */
int google_key_parse(
	struct google_key **out, const char *json, size_t len, struct penstock_error *err);
/* Like google_key_parse() for a file; errors name its path. */
int google_key_load(struct google_key **out, const char *path, struct penstock_error *err);
void google_key_free(struct google_key *key);
void google_key_freep(struct google_key **key);

/* Creates a provider of tokens for `key`, which must outlive the provider. */
int credential_source_google(struct credentials_provider **out, const struct google_key *key,
	struct penstock_error *err);
/* Creates a provider of tokens for this machine's service account, from its metadata service
 * (GCE_METADATA_HOST). */
int credential_source_google_instance(
	struct credentials_provider **out, struct penstock_error *err);

/* Returns true if a token, or a secret that is exchanged for a token, may be sent to `url`: an
 * intercepted token can be used, so it is sent only over https:// or to this machine. */
bool google_may_have_token(const char *url);

/* ---- building blocks, for tests and for signing ---- */

/* Builds a signed token request: header, claims and signature in base64url. `now` is in seconds
 * since 1970. */
int google_jwt(
	const struct google_key *key, int64_t now, struct buf *out, struct penstock_error *err);
/* Signs a text (RSA, PKCS #1 v1.5, SHA-256), for `rsa` of struct sigv4. `key` is a google_key. */
int google_sign_hex(
	void *key, const void *text, size_t len, struct buf *hex, struct penstock_error *err);
/* Parses {"access_token", "expires_in"}; `now_ns` is wall-clock time. */
int google_token_parse(const char *json, size_t len, int64_t now_ns, struct credentials *out,
	struct penstock_error *err);

#endif
