/*
 * Signing and verifying. parse.c reads the signature of a request; canonical.c makes the text to be
 * signed.
 */
#include "s3/sign/internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/ascii.h"
#include "s3/sum/digest.h"
#include "s3/uri.h"

#define ALGORITHM "AWS4-HMAC-SHA256"

/* The constants of each kind of signature. */
struct words {
	const char *algorithm;
	const char *terminator;
	const char *key_prefix; /* at most 5 bytes */
	const char *parameter; /* prefix of the parameter names of a presigned URL */
};

static const struct words all_words[] = {
	[SIGV4_AWS] = {ALGORITHM, "aws4_request", "AWS4", "X-Amz-"},
	[SIGV4_GOOG_HMAC] = {"GOOG4-HMAC-SHA256", "goog4_request", "GOOG4", "X-Goog-"},
	[SIGV4_GOOG_RSA] = {"GOOG4-RSA-SHA256", "goog4_request", "", "X-Goog-"},
};

static const struct words *words_of(const struct sigv4 *ws)
{
	return &all_words[ws->kind];
}

#define BLOCK 64 /* bytes of SHA-256's block */

int sigv4_init(struct sigv4 *ws, struct penstock_error *err)
{
	*ws = (struct sigv4){
		.canonical = BUF_INIT(LIMIT_SIGV4_TEXT), .text = BUF_INIT(LIMIT_SIGV4_TEXT)};
	if (!digest_md(CHECKSUM_SHA256))
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"the OpenSSL of this machine has no SHA256, which S3 requires");
	ws->md = EVP_MD_CTX_new();
	ws->order = calloc(LIMIT_SIGV4_PARAMETERS, sizeof(struct sigv4_order));
	if (!ws->md || !ws->order ||
		EVP_DigestInit_ex(ws->md, digest_md(CHECKSUM_SHA256), NULL) != 1) {
		sigv4_release(ws);
		return error_memory(err);
	}
	return 0;
}

void sigv4_release(struct sigv4 *ws)
{
	OPENSSL_cleanse(ws->keys, sizeof(ws->keys));
	EVP_MD_CTX_free(ws->md);
	free(ws->order);
	buf_release(&ws->canonical);
	buf_release(&ws->text);
	*ws = (struct sigv4){0};
}

/* ---- hashing ---- */

/* Hashes two pieces of data. OpenSSL allocates memory for each hash; if that fails `failed` is set
 * and `out` is zero. */
static void hash(
	struct sigv4 *ws, const void *a, size_t a_len, const void *b, size_t b_len, uint8_t out[32])
{
	if (ws->failed || EVP_DigestInit_ex(ws->md, NULL, NULL) != 1) {
		ws->failed = true;
		memset(out, 0, 32);
		return;
	}
	EVP_DigestUpdate(ws->md, a, a_len);
	EVP_DigestUpdate(ws->md, b, b_len);
	EVP_DigestFinal_ex(ws->md, out, NULL);
}

/* Returns true if a hash has failed since the last call. */
static bool hash_failed(struct sigv4 *ws)
{
	bool failed = ws->failed;

	ws->failed = false;
	return failed;
}

static void hmac(struct sigv4 *ws, const void *key, size_t key_len, const void *data, size_t len,
	uint8_t out[32])
{
	uint8_t pad[BLOCK] = {0};

	assert(key_len <= BLOCK);
	memcpy(pad, key, key_len);
	for (int i = 0; i < BLOCK; i++)
		pad[i] ^= 0x36;
	hash(ws, pad, BLOCK, data, len, out);
	for (int i = 0; i < BLOCK; i++)
		pad[i] ^= 0x36 ^ 0x5c;
	hash(ws, pad, BLOCK, out, 32, out);
	OPENSSL_cleanse(pad, sizeof(pad));
}

static void derive_key(
	struct sigv4 *ws, const char *secret, const struct sigv4_scope *scope, uint8_t out[32])
{
	uint8_t first[BLOCK] = {0};
	const struct words *words = words_of(ws);
	size_t n = strlen(secret);
	size_t before = strlen(words->key_prefix);
	size_t key_len = n + before;

	if (key_len <= BLOCK) {
		memcpy(first, words->key_prefix, before);
		memcpy(first + before, secret, n);
	} else {
		hash(ws, words->key_prefix, before, secret, n, first);
		key_len = 32;
	}
	hmac(ws, first, key_len, scope->date, strlen(scope->date), out);
	hmac(ws, out, 32, scope->region, strlen(scope->region), out);
	hmac(ws, out, 32, scope->service, strlen(scope->service), out);
	hmac(ws, out, 32, words->terminator, strlen(words->terminator), out);
	OPENSSL_cleanse(first, sizeof(first));
}

/* Gets the key from the cache, or derives it and replaces the least recently used entry. */
static void signing_key(
	struct sigv4 *ws, const char *secret, const struct sigv4_scope *scope, uint8_t out[32])
{
	struct sigv4_cached_key *oldest = &ws->keys[0];

	ws->clock++;
	for (size_t i = 0; i < SIGV4_CACHED_KEYS; i++) {
		struct sigv4_cached_key *k = &ws->keys[i];

		if (k->used && strcmp(k->scope.date, scope->date) == 0 &&
			strcmp(k->scope.region, scope->region) == 0 &&
			strcmp(k->scope.service, scope->service) == 0 &&
			strcmp(k->secret, secret) == 0) {
			k->used = ws->clock;
			memcpy(out, k->key, 32);
			return;
		}
		if (k->used < oldest->used)
			oldest = k;
	}
	derive_key(ws, secret, scope, out);
	size_t n = strlen(secret);

	if (ws->failed)
		return;
	if (n >= sizeof(oldest->secret))
		return; /* too long for the cache, which is rare: the key is derived each time */
	memcpy(oldest->secret, secret, n + 1);
	oldest->scope = *scope;
	memcpy(oldest->key, out, 32);
	oldest->used = ws->clock;
}

/* ---- string to sign, signature ---- */

static void add_scope(const struct sigv4 *ws, struct buf *out, const struct sigv4_scope *scope)
{
	buf_add_str(out, scope->date);
	buf_add_char(out, '/');
	buf_add_str(out, scope->region);
	buf_add_char(out, '/');
	buf_add_str(out, scope->service);
	buf_add_char(out, '/');
	buf_add_str(out, words_of(ws)->terminator);
}

static void add_hash(struct sigv4 *ws, const char *data, size_t len, struct buf *out)
{
	uint8_t digest[32];
	char hex[65];

	hash(ws, data, len, "", 0, digest);
	str_hex(digest, sizeof(digest), hex);
	buf_add(out, hex, 64);
}

int sigv4_string_to_sign(struct sigv4 *ws, const char *date, const struct sigv4_scope *scope,
	const char *canonical, size_t len, struct buf *out)
{
	buf_add_str(out, words_of(ws)->algorithm);
	buf_add_char(out, '\n');
	buf_add_str(out, date);
	buf_add_char(out, '\n');
	add_scope(ws, out, scope);
	buf_add_char(out, '\n');
	add_hash(ws, canonical, len, out);
	return hash_failed(ws) || buf_failed(out) ? -1 : 0;
}

/* Computes the signature of ws->canonical. */
static enum sigv4_failure compute(struct sigv4 *ws, const char *date,
	const struct sigv4_scope *scope, const char *secret, uint8_t out[32])
{
	uint8_t key[32];

	buf_clear(&ws->text);
	if (sigv4_string_to_sign(
		    ws, date, scope, ws->canonical.data, ws->canonical.len, &ws->text) < 0)
		return buf_failed(&ws->text) ? sigv4_buf_problem(&ws->text) : SIGV4_NO_MEMORY;
	signing_key(ws, secret, scope, key);
	hmac(ws, key, sizeof(key), ws->text.data, ws->text.len, out);
	OPENSSL_cleanse(key, sizeof(key));
	return hash_failed(ws) ? SIGV4_NO_MEMORY : SIGV4_VALID;
}

/* ---- verifying ---- */

static bool is_signed(const char *list, const char *name)
{
	size_t len = strlen(name);

	for (const char *p = list; *p;) {
		size_t n = strcspn(p, ";");

		if (n == len && ascii_equal(p, n, name))
			return true;
		p += n;
		p += *p == ';';
	}
	return false;
}

static enum sigv4_failure check_signed_headers(
	const struct sigv4_request *req, const struct sigv4_auth *auth)
{
	if (!is_signed(auth->signed_headers, "host"))
		return SIGV4_HOST_UNSIGNED;
	for (size_t i = 0; i < req->n_headers; i++) {
		const char *name = req->headers[i].name;

		if (ascii_starts(name, "x-amz-") && !is_signed(auth->signed_headers, name))
			return SIGV4_HEADER_UNSIGNED;
	}
	return SIGV4_VALID;
}

static enum sigv4_failure check_times(const struct sigv4_auth *auth, int64_t now)
{
	if (strncmp(auth->scope.date, auth->date, sizeof(auth->scope.date) - 1) != 0)
		return SIGV4_SCOPE_DATE;
	if (auth->expires) {
		if (auth->when > now + SIGV4_SKEW_SECONDS)
			return SIGV4_NOT_YET_VALID;
		return now > auth->when + auth->expires ? SIGV4_EXPIRED : SIGV4_VALID;
	}
	if (auth->when > now + SIGV4_SKEW_SECONDS || auth->when < now - SIGV4_SKEW_SECONDS)
		return SIGV4_SKEWED;
	return SIGV4_VALID;
}

enum sigv4_failure sigv4_verify(struct sigv4 *ws, const struct sigv4_request *req,
	const struct sigv4_auth *auth, const char *secret_key, int64_t now)
{
	uint8_t ours[32], theirs[32];
	enum sigv4_failure f;

	if (!ws->generic && strcmp(auth->scope.service, "s3") != 0)
		return SIGV4_SCOPE_SERVICE;
	f = check_times(auth, now);
	if (!f)
		f = check_signed_headers(req, auth);
	if (f)
		return f;
	buf_clear(&ws->canonical);
	f = sigv4_build_canonical(
		ws, req, auth->signed_headers, auth->payload_hash, &ws->canonical);
	if (!f)
		f = compute(ws, auth->date, &auth->scope, secret_key, ours);
	if (f)
		return f;
	if (str_unhex(auth->signature, theirs, sizeof(theirs)) < 0 ||
		CRYPTO_memcmp(ours, theirs, sizeof(ours)) != 0)
		return SIGV4_MISMATCH;
	return SIGV4_VALID;
}

enum sigv4_failure sigv4_verify_form(struct sigv4 *ws, const struct sigv4_auth *auth,
	const char *secret_key, const char *policy, int64_t now)
{
	uint8_t key[32], ours[32], theirs[32];
	enum sigv4_failure f;

	if (strcmp(auth->scope.service, "s3") != 0)
		return SIGV4_SCOPE_SERVICE;
	f = check_times(auth, now);
	if (f)
		return f;
	signing_key(ws, secret_key, &auth->scope, key);
	hmac(ws, key, sizeof(key), policy, strlen(policy), ours);
	OPENSSL_cleanse(key, sizeof(key));
	if (hash_failed(ws))
		return SIGV4_NO_MEMORY;
	return str_unhex(auth->signature, theirs, sizeof(theirs)) == 0 &&
			       CRYPTO_memcmp(ours, theirs, sizeof(ours)) == 0
		       ? SIGV4_VALID
		       : SIGV4_MISMATCH;
}

/* ---- signing ---- */

static bool leave_unsigned(const char *name)
{
	static const char *const names[] = {"authorization", "connection", "expect",
		"transfer-encoding", "user-agent", "x-amzn-trace-id"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (ascii_equal(name, strlen(name), names[i]))
			return true;
	}
	return false;
}

static int compare_names(const char *a, const char *b)
{
	while (*a && ascii_lower(*a) == ascii_lower(*b)) {
		a++;
		b++;
	}
	return (unsigned char)ascii_lower(*a) - (unsigned char)ascii_lower(*b);
}

/* Lists the sorted lower-case names without duplicates, as in "host;x-amz-date". */
static int list_signed_headers(struct sigv4 *ws, const struct sigv4_request *req, struct buf *out,
	struct penstock_error *err)
{
	struct sigv4_order *order = ws->order;
	size_t n = 0;

	for (size_t i = 0; i < req->n_headers; i++) {
		const char *name = req->headers[i].name;
		size_t at = n;

		if (leave_unsigned(name))
			continue;
		if (n == LIMIT_SIGV4_PARAMETERS)
			return error_set(err, PENSTOCK_E_LIMIT,
				"cannot sign the request: it has more than %d headers",
				LIMIT_SIGV4_PARAMETERS);
		for (; at > 0 && compare_names(order[at - 1].header, name) > 0; at--)
			order[at] = order[at - 1];
		order[at].header = name;
		n++;
	}
	for (size_t i = 0; i < n; i++) {
		if (i > 0 && compare_names(order[i - 1].header, order[i].header) == 0)
			continue;
		if (i > 0)
			buf_add_char(out, ';');
		for (const char *p = order[i].header; *p; p++)
			buf_add_char(out, ascii_lower(*p));
	}
	return buf_failed(out) ? buf_error(out, "the list of signed headers", err) : 0;
}

static int fill_scope(struct sigv4_scope *scope, const char *date, const char *region,
	const char *service, struct penstock_error *err)
{
	memset(scope, 0, sizeof(*scope));
	memcpy(scope->date, date, 8);
	if (strlen(region) >= sizeof(scope->region) || strlen(service) >= sizeof(scope->service))
		return error_set(
			err, PENSTOCK_E_INVALID, "the region name '%.80s' is too long", region);
	memcpy(scope->region, region, strlen(region));
	memcpy(scope->service, service, strlen(service));
	return 0;
}

static int sign_failed(enum sigv4_failure f, struct penstock_error *err)
{
	if (f == SIGV4_NO_MEMORY)
		return error_memory(err);
	return error_set(err, f == SIGV4_TOO_LARGE ? PENSTOCK_E_LIMIT : PENSTOCK_E_INVALID,
		"cannot sign the request: %s", sigv4_failure_message(f));
}

/* Computes the canonical request and the signature of `req` for the given header names. */
static int sign_canonical(struct sigv4 *ws, const struct sigv4_request *req,
	const char *signed_headers, const char *date, const struct sigv4_scope *scope,
	const char *secret, char signature[static SIGV4_SIGNATURE_SIZE], struct penstock_error *err)
{
	const char *hash = req->payload_hash ? req->payload_hash : SIGV4_UNSIGNED_PAYLOAD;
	uint8_t digest[32];
	enum sigv4_failure f;

	buf_clear(&ws->canonical);
	f = sigv4_build_canonical(ws, req, signed_headers, hash, &ws->canonical);
	if (!f)
		f = compute(ws, date, scope, secret, digest);
	if (f)
		return sign_failed(f, err);
	str_hex(digest, sizeof(digest), signature);
	return 0;
}

int sigv4_sign(struct sigv4 *ws, const struct sigv4_request *req, struct sigv4_identity as,
	struct buf *authorization, struct sigv4_chain *chain, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf names = BUF_INIT(LIMIT_HTTP_HEADERS);
	char signature[SIGV4_SIGNATURE_SIZE];
	char date[DATE_BASIC_SIZE];
	struct sigv4_scope scope;
	int rc;

	date_format_basic(as.now, date);
	rc = fill_scope(&scope, date, as.region, as.service, err);
	if (rc == 0)
		rc = list_signed_headers(ws, req, &names, err);
	if (rc == 0)
		rc = sign_canonical(ws, req, buf_str(&names), date, &scope, as.keys->secret_key,
			signature, err);
	if (rc < 0)
		return rc;
	buf_add_str(authorization, words_of(ws)->algorithm);
	buf_add_str(authorization, " Credential=");
	buf_add_str(authorization, as.keys->access_key);
	buf_add_char(authorization, '/');
	add_scope(ws, authorization, &scope);
	buf_add_str(authorization, ", SignedHeaders=");
	buf_add_str(authorization, buf_str(&names));
	buf_add_str(authorization, ", Signature=");
	buf_add_str(authorization, signature);
	if (buf_failed(authorization))
		return buf_error(authorization, "the Authorization header", err);
	if (chain) {
		*chain = (struct sigv4_chain){.scope = scope};
		memcpy(chain->date, date, sizeof(date));
		memcpy(chain->previous, signature, sizeof(signature));
		signing_key(ws, as.keys->secret_key, &scope, chain->key);
	}
	return hash_failed(ws) ? error_memory(err) : 0;
}

static void add_parameter(
	const struct sigv4 *ws, struct buf *query, const char *name, const char *value)
{
	char full[32];

	snprintf(full, sizeof(full), "%s%s", words_of(ws)->parameter, name);
	uri_query_add(query, full, value);
}

static int sign_rsa(struct sigv4 *ws, const struct sigv4_request *req, const char *signed_headers,
	const char *date, const struct sigv4_scope *scope, struct buf *hex,
	struct penstock_error *err)
{
	enum sigv4_failure f;

	buf_clear(&ws->canonical);
	f = sigv4_build_canonical(ws, req, signed_headers, SIGV4_UNSIGNED_PAYLOAD, &ws->canonical);
	if (f)
		return sign_failed(f, err);
	buf_clear(&ws->text);
	if (sigv4_string_to_sign(
		    ws, date, scope, ws->canonical.data, ws->canonical.len, &ws->text) < 0)
		return error_memory(err);
	return ws->rsa(ws->cookie, ws->text.data, ws->text.len, hex, err);
}

int sigv4_presign(struct sigv4 *ws, const struct sigv4_request *req, struct sigv4_identity as,
	unsigned expires, struct buf *query, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf names = BUF_INIT(LIMIT_HTTP_HEADERS);
	_cleanup_(buf_release) struct buf credential = BUF_INIT(LIMIT_HTTP_HEADERS);
	_cleanup_(buf_release) struct buf full = BUF_INIT(LIMIT_SIGV4_TEXT);
	_cleanup_(buf_release) struct buf rsa = BUF_INIT(LIMIT_HTTP_HEADERS);
	struct sigv4_request with_parameters = *req;
	char signature[SIGV4_SIGNATURE_SIZE];
	char date[DATE_BASIC_SIZE], seconds[12];
	struct sigv4_scope scope;
	int rc;

	if (expires < 1 || expires > SIGV4_EXPIRES_MAX)
		return error_set(err, PENSTOCK_E_INVALID,
			"a presigned URL may be valid for 1 to %d seconds, not %u",
			SIGV4_EXPIRES_MAX, expires);
	date_format_basic(as.now, date);
	rc = fill_scope(&scope, date, as.region, as.service, err);
	if (rc == 0)
		rc = list_signed_headers(ws, req, &names, err);
	if (rc < 0)
		return rc;
	buf_add_str(&credential, as.keys->access_key);
	buf_add_char(&credential, '/');
	add_scope(ws, &credential, &scope);
	snprintf(seconds, sizeof(seconds), "%u", expires);
	if (req->query)
		buf_add_str(&full, req->query);
	add_parameter(ws, &full, "Algorithm", words_of(ws)->algorithm);
	add_parameter(ws, &full, "Credential", buf_str(&credential));
	add_parameter(ws, &full, "Date", date);
	add_parameter(ws, &full, "Expires", seconds);
	if (as.keys->session_token)
		add_parameter(ws, &full, "Security-Token", as.keys->session_token);
	add_parameter(ws, &full, "SignedHeaders", buf_str(&names));
	if (full.failure == BUF_NO_MEMORY || credential.failure == BUF_NO_MEMORY)
		return error_memory(err);
	if (buf_failed(&full) || buf_failed(&credential))
		return sign_failed(SIGV4_TOO_LARGE, err);
	with_parameters.query = buf_str(&full);
	if (ws->kind == SIGV4_GOOG_RSA)
		rc = sign_rsa(ws, &with_parameters, buf_str(&names), date, &scope, &rsa, err);
	else
		rc = sign_canonical(ws, &with_parameters, buf_str(&names), date, &scope,
			as.keys->secret_key, signature, err);
	if (rc < 0)
		return rc;
	buf_add_str(query, buf_str(&full));
	add_parameter(ws, query, "Signature", rsa.len ? buf_str(&rsa) : signature);
	return buf_failed(query) ? buf_error(query, "the presigned query", err) : 0;
}

/* ---- chunks ---- */

int sigv4_chain_start(struct sigv4 *ws, const struct sigv4_auth *auth, const char *secret_key,
	struct sigv4_chain *chain, struct penstock_error *err)
{
	if (auth->presigned)
		return error_set(err, PENSTOCK_E_INVALID, "cannot stream a presigned request");
	*chain = (struct sigv4_chain){.scope = auth->scope};
	memcpy(chain->date, auth->date, sizeof(chain->date));
	memcpy(chain->previous, auth->signature, sizeof(chain->previous));
	signing_key(ws, secret_key, &auth->scope, chain->key);
	return hash_failed(ws) ? error_memory(err) : 0;
}

static int chained(struct sigv4 *ws, const struct sigv4_chain *chain, const char *kind,
	const char *middle, const char *hash, char out[static SIGV4_SIGNATURE_SIZE])
{
	uint8_t digest[32];

	buf_clear(&ws->text);
	buf_add_str(&ws->text, kind);
	buf_add_char(&ws->text, '\n');
	buf_add_str(&ws->text, chain->date);
	buf_add_char(&ws->text, '\n');
	add_scope(ws, &ws->text, &chain->scope);
	buf_add_char(&ws->text, '\n');
	buf_add_str(&ws->text, chain->previous);
	buf_add_char(&ws->text, '\n');
	buf_add_str(&ws->text, middle);
	buf_add_str(&ws->text, hash);
	if (buf_failed(&ws->text))
		return -1;
	hmac(ws, chain->key, sizeof(chain->key), ws->text.data, ws->text.len, digest);
	str_hex(digest, sizeof(digest), out);
	return hash_failed(ws) ? -1 : 0;
}

int sigv4_chunk_signature(struct sigv4 *ws, const struct sigv4_chain *chain,
	const char *data_sha256, char out[static SIGV4_SIGNATURE_SIZE])
{
	return chained(ws, chain, ALGORITHM "-PAYLOAD", SIGV4_EMPTY_SHA256 "\n", data_sha256, out);
}

int sigv4_trailer_signature(struct sigv4 *ws, const struct sigv4_chain *chain,
	const char *trailer_sha256, char out[static SIGV4_SIGNATURE_SIZE])
{
	return chained(ws, chain, ALGORITHM "-TRAILER", "", trailer_sha256, out);
}

void sigv4_chain_advance(struct sigv4_chain *chain, const char *signature)
{
	size_t n = strlen(signature);

	if (n >= sizeof(chain->previous))
		n = sizeof(chain->previous) - 1;
	memcpy(chain->previous, signature, n);
	chain->previous[n] = '\0';
}
