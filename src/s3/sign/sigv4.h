/*
 * AWS Signature Version 4, signing and verifying, as pure functions.
 *
 * A `struct sigv4` is working memory: buffers, hash context and the cache of derived keys. Use one
 * per thread; it keeps its memory between uses.
 *
 * Client:
 *
 *	struct sigv4_credentials keys = { access_key, secret_key, session_token_or_NULL };
 *	struct sigv4_request req = { .method = "GET", .path = "/b/k", .query = "", .headers = h,
 *		.n_headers = n, .payload_hash = SIGV4_UNSIGNED_PAYLOAD };
 *
 *	r = sigv4_sign(ws, &req, (struct sigv4_identity){ &keys, "us-east-1", "s3", now },
 *		&authorization, NULL, err);
 *
 * `h` contains host, x-amz-date and every other header to be signed; send the resulting text as the
 * header Authorization. A session token must be in `h` as x-amz-security-token.
 *
 * V4 signatures of Google Cloud Storage differ only in their words, which `ws->kind` selects: the
 * headers are x-goog-date and x-goog-content-sha256, the region is "auto" and the service
 * "storage".
 *
 * Server:
 *
 *	struct sigv4_auth auth;
 *	enum sigv4_failure f = sigv4_parse(&req, &auth);
 *
 *	if (!f) {
 *		... find the secret of auth.access_key ...
 *		f = sigv4_verify(ws, &req, &auth, secret, now);
 *	}
 *	if (f)
 *		... reply sigv4_failure_error(f) with sigv4_failure_message(f) ...
 */
#ifndef S3_SIGN_SIGV4_H
#define S3_SIGN_SIGV4_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/limits.h"
#include "s3/date.h"
#include "s3/message/errors.h"

#define SIGV4_UNSIGNED_PAYLOAD		 "UNSIGNED-PAYLOAD"
#define SIGV4_STREAMING			 "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
#define SIGV4_STREAMING_TRAILER		 "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
#define SIGV4_STREAMING_UNSIGNED_TRAILER "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
#define SIGV4_EMPTY_SHA256		 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

#define SIGV4_SIGNATURE_SIZE 65 /* hexadecimal digits and NUL */
#define SIGV4_ACCESS_KEY_MAX 512
#define SIGV4_REGION_MAX     64
#define SIGV4_SKEW_SECONDS   900 /* allowed clock skew of a header-signed request */
#define SIGV4_EXPIRES_MAX    604800 /* seconds: longest validity of a presigned URL or a form */

struct sigv4_header {
	const char *name; /* in upper or lower case */
	const char *value;
};

struct sigv4_request {
	const char *method;
	const char *path; /* as on the wire, still encoded, without the query */
	const char *query; /* as on the wire, without '?'; NULL or "" if there is none */
	const struct sigv4_header *headers;
	size_t n_headers;
	/*
	 * Lower-case hex SHA-256 of the body or one of the SIGV4_… words: the value of
	 * x-amz-content-sha256. If NULL, signing uses UNSIGNED-PAYLOAD, and verifying uses the
	 * header. If a presigned request lacks the header, verifying uses the parameter
	 * X-Amz-Content-Sha256, else UNSIGNED-PAYLOAD.
	 */
	const char *payload_hash;
};

struct sigv4_credentials {
	const char *access_key;
	const char *secret_key;
	const char *session_token; /* may be NULL */
};

struct sigv4_scope {
	char date[9]; /* "20130524" */
	char region[SIGV4_REGION_MAX + 1];
	char service[33];
};

struct sigv4_cached_key {
	char secret[129];
	struct sigv4_scope scope;
	uint8_t key[32];
	unsigned used; /* value of `clock` at the last use; 0 if empty */
};
#define SIGV4_CACHED_KEYS 8

/* The vendor of the signature. Google's two kinds are for signing only, and SIGV4_GOOG_RSA only for
 * sigv4_presign(). */
enum sigv4_kind { SIGV4_AWS, SIGV4_GOOG_HMAC, SIGV4_GOOG_RSA };

struct sigv4 {
	enum sigv4_kind kind;
	bool generic; /* rules of services other than S3: normalize the path, encode it again */
	/* for SIGV4_GOOG_RSA: appends the hexadecimal signature of a text; the callback holds the
	 * key */
	int (*rsa)(void *cookie, const void *text, size_t len, struct buf *hex,
		struct penstock_error *err);
	void *cookie;
	struct buf canonical;
	struct buf text;
	void *order; /* parameters or headers while they are sorted */
	struct evp_md_ctx_st *md;
	bool failed; /* a hash failed because memory ran out */
	struct sigv4_cached_key keys[SIGV4_CACHED_KEYS];
	unsigned clock;
};
int sigv4_init(struct sigv4 *ws, struct penstock_error *err);
/* Frees the working memory, and wipes the cached keys. */
void sigv4_release(struct sigv4 *ws);

/* The state that links the signatures of chunks and trailers: see sigv4_chunk_signature(). */
struct sigv4_chain {
	uint8_t key[32];
	char date[DATE_BASIC_SIZE];
	struct sigv4_scope scope;
	char previous[SIGV4_SIGNATURE_SIZE];
};

/* The signer of a request; all members are borrowed during the call. */
struct sigv4_identity {
	const struct sigv4_credentials *keys;
	const char *region;
	const char *service; /* "s3" */
	int64_t now; /* seconds since 1970 */
};

/*
 * Appends the value of the Authorization header. Signs all of `req->headers` except those that
 * proxies change (connection, user-agent, expect, transfer-encoding, x-amzn-trace-id) and
 * authorization itself. The headers must include host and x-amz-date (of `as.now`). `chain` is for
 * streamed payloads and may be NULL.
 */
int sigv4_sign(struct sigv4 *ws, const struct sigv4_request *req, struct sigv4_identity as,
	struct buf *authorization, struct sigv4_chain *chain, struct penstock_error *err);

/*
 * Appends the complete query string of a presigned URL: the query of `req`, the X-Amz-… (or
 * X-Goog-…) parameters and the signature. `req->headers` contains host and all headers that the
 * user of the URL must send. `expires` is 1 to SIGV4_EXPIRES_MAX seconds.
 */
int sigv4_presign(struct sigv4 *ws, const struct sigv4_request *req, struct sigv4_identity as,
	unsigned expires, struct buf *query, struct penstock_error *err);

enum sigv4_failure {
	SIGV4_VALID = 0,
	SIGV4_ANONYMOUS, /* no signature at all: the caller decides */
	SIGV4_MALFORMED_HEADER, /* invalid Authorization header */
	SIGV4_MALFORMED_QUERY, /* X-Amz-… parameters missing, duplicate or invalid */
	SIGV4_MALFORMED_FORM, /* invalid fields of a form */
	SIGV4_UNSUPPORTED, /* another scheme: Signature Version 2, or ECDSA */
	SIGV4_AMBIGUOUS, /* signed both in the header and in the query */
	SIGV4_DATE_MISSING, /* x-amz-date and Date are missing or invalid */
	SIGV4_SCOPE_DATE, /* the date of the credential scope is not the date of the request */
	SIGV4_SCOPE_SERVICE, /* the service is not s3, or the scope does not end in aws4_request */
	SIGV4_SKEWED,
	SIGV4_EXPIRED,
	SIGV4_NOT_YET_VALID, /* presigned for a time in the future */
	SIGV4_EXPIRES_RANGE, /* X-Amz-Expires is not 1 to 604800 */
	SIGV4_HOST_UNSIGNED, /* host is not among the signed headers */
	SIGV4_HEADER_UNSIGNED, /* an x-amz-… header was sent but not signed */
	SIGV4_HEADER_ABSENT, /* a signed header was not sent */
	SIGV4_PAYLOAD_HASH, /* x-amz-content-sha256 is missing or invalid */
	SIGV4_MALFORMED_URI, /* the path or the query cannot be decoded */
	SIGV4_MISMATCH,
	SIGV4_TOO_LARGE, /* more headers or parameters than the limit */
	SIGV4_NO_MEMORY,
	SIGV4_FAILURE_COUNT_
};
enum s3_error sigv4_failure_error(enum sigv4_failure f);
const char *sigv4_failure_message(enum sigv4_failure f);

struct sigv4_auth {
	bool presigned;
	char access_key[SIGV4_ACCESS_KEY_MAX + 1];
	struct sigv4_scope scope;
	char date[DATE_BASIC_SIZE];
	int64_t when; /* `date` in seconds */
	unsigned expires; /* seconds; 0 if signed in a header */
	char signature[SIGV4_SIGNATURE_SIZE];
	char signed_headers[LIMIT_SIGV4_NAMES]; /* "host;x-amz-date" */
	/* as covered by the signature; points into the request or to a constant */
	const char *payload_hash;
};

/* Reads the header or the query form; changes nothing but `out`. Returns SIGV4_ANONYMOUS if the
 * request has neither form. */
enum sigv4_failure sigv4_parse(const struct sigv4_request *req, struct sigv4_auth *out);

/* Checks the times against `now` (seconds), the required signed headers, and the signature, in
 * constant time. Any region is accepted. */
enum sigv4_failure sigv4_verify(struct sigv4 *ws, const struct sigv4_request *req,
	const struct sigv4_auth *auth, const char *secret_key, int64_t now);

/* The fields that sign the policy of a form (POST). */
struct sigv4_form {
	const char *algorithm, *credential, *date, *signature;
};
/* Reads the fields; changes nothing but `out`. */
enum sigv4_failure sigv4_parse_form(const struct sigv4_form *form, struct sigv4_auth *out);
/* Checks the date against `now` (seconds): a form is valid for SIGV4_EXPIRES_MAX seconds. Then
 * checks the signature of `policy`, the text as sent, in constant time. The policy has its own
 * expiration. */
enum sigv4_failure sigv4_verify_form(struct sigv4 *ws, const struct sigv4_auth *auth,
	const char *secret_key, const char *policy, int64_t now);

/* Gets the seed of the chunk signatures, after a successful verification of a streamed request. */
int sigv4_chain_start(struct sigv4 *ws, const struct sigv4_auth *auth, const char *secret_key,
	struct sigv4_chain *chain, struct penstock_error *err);
/* Computes the signature of the next chunk from the hex SHA-256 of its data. After the caller has
 * accepted the chunk, sigv4_chain_advance() makes its signature the `previous` of the chain. */
int sigv4_chunk_signature(struct sigv4 *ws, const struct sigv4_chain *chain,
	const char *data_sha256, char out[static SIGV4_SIGNATURE_SIZE]);
/* Computes the signature of the trailer from the hex SHA-256 of "name:value\n" of each trailer
 * header. */
int sigv4_trailer_signature(struct sigv4 *ws, const struct sigv4_chain *chain,
	const char *trailer_sha256, char out[static SIGV4_SIGNATURE_SIZE]);
void sigv4_chain_advance(struct sigv4_chain *chain, const char *signature);

/* The individual steps, for tests and for messages about a mismatch; each appends to `out`. */
int sigv4_canonical_request(struct sigv4 *ws, const struct sigv4_request *req,
	const char *signed_headers, struct buf *out);
int sigv4_string_to_sign(struct sigv4 *ws, const char *date, const struct sigv4_scope *scope,
	const char *canonical, size_t len, struct buf *out);

#endif
