#include "server/directory/session.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "s3/json.h"
#include "s3/sum/checksum.h"

#define MAC_SIZE     32
#define SECRET_BYTES 30 /* 40 characters of base64 */
#define SECRET_LABEL "penstock session secret"
#define TOKEN_LABEL  "penstock session token"

/* Computes the HMAC-SHA256 of a label, its NUL, and the text. */
static int mac(const struct session_key *key, const char *label, const void *text, size_t len,
	uint8_t out[static MAC_SIZE])
{
	_cleanup_(buf_release) struct buf all = BUF_INIT(LIMIT_HTTP_HEADERS);
	unsigned n = MAC_SIZE;

	buf_add(&all, label, strlen(label) + 1);
	buf_add(&all, text, len);
	if (buf_failed(&all) || !HMAC(EVP_sha256(), key->bytes, sizeof(key->bytes),
					(const unsigned char *)all.data, all.len, out, &n))
		return -1;
	return 0;
}

int session_secret(const struct session_key *key, const char *access_key_id,
	char out[static SESSION_SECRET_SIZE])
{
	_cleanup_(buf_wipe) struct buf text = BUF_INIT(SESSION_SECRET_SIZE);
	uint8_t digest[MAC_SIZE];

	if (mac(key, SECRET_LABEL, access_key_id, strlen(access_key_id), digest) < 0 ||
		base64_encode(&text, digest, SECRET_BYTES) < 0)
		return -1;
	memcpy(out, text.data, SESSION_SECRET_SIZE);
	return 0;
}

int session_seal(const struct session_key *key, const json_t *terms, struct buf *token)
{
	_cleanup_free_ char *text = json_dumps(terms, JSON_COMPACT);
	_cleanup_(buf_release) struct buf all = BUF_INIT(LIMIT_HTTP_HEADERS);
	uint8_t digest[MAC_SIZE];

	if (!text || mac(key, TOKEN_LABEL, text, strlen(text), digest) < 0)
		return -1;
	buf_add(&all, digest, sizeof(digest));
	buf_add_str(&all, text);
	return buf_failed(&all) ? -1 : base64_encode(token, all.data, all.len);
}

json_t *session_open(const struct session_key *key, const char *token)
{
	_cleanup_(buf_release) struct buf all = BUF_INIT(LIMIT_HTTP_HEADERS);
	uint8_t digest[MAC_SIZE];
	json_t *terms = NULL;

	if (base64_decode(&all, token, strlen(token)) < 0 || all.len <= MAC_SIZE ||
		mac(key, TOKEN_LABEL, all.data + MAC_SIZE, all.len - MAC_SIZE, digest) < 0 ||
		CRYPTO_memcmp(all.data, digest, MAC_SIZE) != 0)
		return NULL;
	return s3_json_load(all.data + MAC_SIZE, all.len - MAC_SIZE, &terms, NULL) < 0 ? NULL
										       : terms;
}
