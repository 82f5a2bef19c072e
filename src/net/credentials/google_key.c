/* Key files of service accounts and of gcloud users, and signatures of service accounts. */
#include "net/credentials/google.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "net/http/http.h"
#include "s3/sum/checksum.h"

#define TOKEN_URI    "https://oauth2.googleapis.com/token"
#define SCOPE	     "https://www.googleapis.com/auth/devstorage.full_control"
#define JWT_LIFE_S   3600
#define RSA_BITS     2048 /* smallest accepted key */
#define RSA_MAX	     1024 /* bytes of a signature */
#define PEM_LINE_MIN 16 /* bytes of a line of the key's text; shorter lines are not masked */

void google_key_free(struct google_key *key)
{
	if (!key)
		return;
	free(key->client_email);
	free(key->private_key_id);
	EVP_PKEY_free(key->rsa);
	free(key->client_id);
	str_wipe(key->client_secret);
	str_wipe(key->refresh_token);
	free(key->token_uri);
	free(key->project_id);
	free(key);
}

void google_key_freep(struct google_key **key)
{
	google_key_free(*key);
	*key = NULL;
}

/* ---- reading ---- */

static int missing(const char *name, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_INVALID,
		"the key file has no '%s'; download the key again as JSON", name);
}

/* Reads a string of the document; rejects control characters, which would end up in a request. */
static int take_text(
	const json_t *json, const char *name, bool needed, char **out, struct penstock_error *err)
{
	const char *text = json_string_value(json_object_get(json, name));

	if (!text || !*text)
		return needed ? missing(name, err) : 0;
	for (const char *p = text; *p; p++) {
		if ((unsigned char)*p < ' ' || *p == 127)
			return error_set(err, PENSTOCK_E_INVALID,
				"'%s' of the key file contains a control character", name);
	}
	*out = strdup(text);
	return *out ? 0 : error_memory(err);
}

/* Masks each line of the PEM, because a single line reveals a part of the secret. */
static int redact_pem(const char *pem)
{
	for (const char *at = pem; *at;) {
		size_t len = strcspn(at, "\r\n");

		if (len >= PEM_LINE_MIN && *at != '-' && log_redact_part(at, len) < 0)
			return -1;
		at += len;
		at += strspn(at, "\r\n");
	}
	return 0;
}

/* Prevents a password prompt. */
static int no_password(char *out, int size, int writing, void *cookie)
{
	(void)out;
	(void)size;
	(void)writing;
	(void)cookie;
	return 0;
}

static int take_private_key(struct google_key *key, const json_t *json, struct penstock_error *err)
{
	const char *pem = json_string_value(json_object_get(json, "private_key"));
	BIO *bio;

	if (!pem || !*pem)
		return missing("private_key", err);
	if (redact_pem(pem) < 0)
		return error_memory(err);
	bio = BIO_new_mem_buf(pem, -1);
	if (!bio)
		return error_memory(err);
	key->rsa = PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL);
	BIO_free(bio);
	if (!key->rsa)
		return error_set(err, PENSTOCK_E_INVALID,
			"'private_key' of the key file is not a private key in PEM");
	if (EVP_PKEY_get_base_id(key->rsa) != EVP_PKEY_RSA ||
		EVP_PKEY_get_bits(key->rsa) < RSA_BITS || EVP_PKEY_get_size(key->rsa) > RSA_MAX)
		return error_set(err, PENSTOCK_E_INVALID,
			"'private_key' of the key file is not an RSA key of 2048 to 8192 bits");
	return 0;
}

bool google_may_have_token(const char *url)
{
	const char *host;
	size_t len = http_plain_host(url, &host);

	if (str_starts(url, "https://"))
		return url[strlen("https://")];
	return len && http_host_is_local(host, len);
}

static int check_token_uri(const char *uri, struct penstock_error *err)
{
	if (strpbrk(uri, "@#? "))
		return error_set(
			err, PENSTOCK_E_INVALID, "'token_uri' of the key file must be a plain URL");
	if (google_may_have_token(uri))
		return 0;
	return error_set(
		err, PENSTOCK_E_INVALID, "'token_uri' of the key file must begin with https://");
}

static int take_user(struct google_key *key, const json_t *json, struct penstock_error *err)
{
	int r = take_text(json, "client_id", true, &key->client_id, err);

	if (r == 0)
		r = take_text(json, "client_secret", true, &key->client_secret, err);
	if (r == 0)
		r = take_text(json, "refresh_token", true, &key->refresh_token, err);
	if (r == 0 && (log_redact(key->client_secret) < 0 || log_redact(key->refresh_token) < 0))
		r = error_memory(err);
	return r;
}

static int take_key(struct google_key *key, const json_t *json, struct penstock_error *err)
{
	const char *type = json_string_value(json_object_get(json, "type"));
	int r;

	if (!type)
		return missing("type", err);
	if (strcmp(type, "service_account") == 0) {
		r = take_text(json, "client_email", true, &key->client_email, err);
		if (r == 0)
			r = take_text(json, "private_key_id", false, &key->private_key_id, err);
		if (r == 0)
			r = take_private_key(key, json, err);
	} else if (strcmp(type, "authorized_user") == 0) {
		key->kind = GOOGLE_AUTHORIZED_USER;
		r = take_user(key, json, err);
	} else {
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"key files of type '%.60s' are not supported; use the key file of a "
			"service account",
			type);
	}
	if (r == 0)
		r = take_text(json, "project_id", false, &key->project_id, err);
	if (r == 0 && !key->project_id)
		r = take_text(json, "quota_project_id", false, &key->project_id, err);
	if (r == 0)
		r = take_text(json, "token_uri", false, &key->token_uri, err);
	if (r < 0)
		return r;
	if (!key->token_uri)
		key->token_uri = strdup(TOKEN_URI);
	return key->token_uri ? check_token_uri(key->token_uri, err) : error_memory(err);
}

int google_key_parse(
	struct google_key **out, const char *json, size_t len, struct penstock_error *err)
{
	json_auto_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, NULL);
	_cleanup_(google_key_freep) struct google_key *key = NULL;
	int r;

	if (!json_is_object(root))
		return error_set(err, PENSTOCK_E_INVALID,
			"the key is not a JSON object; download it again as JSON");
	key = calloc(1, sizeof(*key));
	r = key ? take_key(key, root, err) : error_memory(err);
	if (r == 0)
		*out = take_pointer(key);
	return r;
}

int google_key_load(struct google_key **out, const char *path, struct penstock_error *err)
{
	_cleanup_(buf_wipe) struct buf text = BUF_INIT(LIMIT_GOOGLE_KEY);
	int r = fs_read(path, &text, err);

	if (r < 0)
		return r;
	r = google_key_parse(out, buf_str(&text), text.len, err);
	return r < 0 ? error_prefix(err, "%s", path) : 0;
}

/* ---- signing ---- */

static int sign(const struct google_key *key, const void *text, size_t len,
	uint8_t out[static RSA_MAX], size_t *out_len, struct penstock_error *err)
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	bool done;

	*out_len = RSA_MAX;
	done = md && key->rsa && EVP_DigestSignInit(md, NULL, EVP_sha256(), NULL, key->rsa) == 1 &&
	       EVP_DigestSign(md, out, out_len, text, len) == 1;
	EVP_MD_CTX_free(md);
	return done ? 0
		    : error_set(err, PENSTOCK_E_INTERNAL,
			      "cannot sign with the private key of the service account");
}

int google_sign_hex(
	void *key, const void *text, size_t len, struct buf *hex, struct penstock_error *err)
{
	uint8_t signature[RSA_MAX];
	char digits[2 * RSA_MAX + 1];
	size_t n;
	int r = sign(key, text, len, signature, &n, err);

	if (r < 0)
		return r;
	str_hex(signature, n, digits);
	buf_add_str(hex, digits);
	return buf_failed(hex) ? error_memory(err) : 0;
}

/* Appends base64 for URLs, without padding. */
static void add_base64url(struct buf *out, const void *data, size_t len)
{
	size_t from = out->len;

	base64_encode(out, data, len);
	for (size_t i = from; i < out->len; i++) {
		if (out->data[i] == '+')
			out->data[i] = '-';
		else if (out->data[i] == '/')
			out->data[i] = '_';
	}
	while (out->len > from && out->data[out->len - 1] == '=')
		buf_truncate(out, out->len - 1);
}

static int add_json(struct buf *out, json_t *value, struct penstock_error *err)
{
	_cleanup_free_ char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;

	json_decref(value);
	if (!text)
		return error_memory(err);
	add_base64url(out, text, strlen(text));
	return 0;
}

int google_jwt(
	const struct google_key *key, int64_t now, struct buf *out, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf jwt = BUF_INIT(LIMIT_GOOGLE_KEY);
	uint8_t signature[RSA_MAX];
	size_t n;
	int r = add_json(&jwt,
		json_pack("{ss ss ss*}", "alg", "RS256", "typ", "JWT", "kid", key->private_key_id),
		err);

	buf_add_char(&jwt, '.');
	if (r == 0)
		r = add_json(&jwt,
			json_pack("{ss ss ss sI sI}", "iss", key->client_email, "scope", SCOPE,
				"aud", key->token_uri, "iat", (json_int_t)now, "exp",
				(json_int_t)now + JWT_LIFE_S),
			err);
	if (r == 0 && buf_failed(&jwt))
		r = buf_error(&jwt, "the token request", err);
	if (r == 0)
		r = sign(key, jwt.data, jwt.len, signature, &n, err);
	if (r < 0)
		return r;
	buf_add_char(&jwt, '.');
	add_base64url(&jwt, signature, n);
	buf_add_str(out, buf_str(&jwt));
	return buf_failed(&jwt) || buf_failed(out) ? error_memory(err) : 0;
}

/* ---- tokens ---- */

int google_token_parse(const char *json, size_t len, int64_t now_ns, struct credentials *out,
	struct penstock_error *err)
{
	json_auto_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, NULL);
	const char *token = json_string_value(json_object_get(root, "access_token"));
	const json_t *life = json_object_get(root, "expires_in");

	if (!token || !*token)
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"the reply has no 'access_token': the server is not a token "
			"service");
	/* Allows the characters of RFC 6750's b68token and a few more that are valid in a header,
	 * but no space. */
	for (const char *p = token; *p; p++) {
		if (*p <= ' ' || *p >= 127)
			return error_set(
				err, PENSTOCK_E_PROTOCOL, "the reply contains an invalid token");
	}
	if (!json_is_integer(life) || json_integer_value(life) < 1 ||
		json_integer_value(life) > LIMIT_TOKEN_LIFE_S)
		return error_set(err, PENSTOCK_E_PROTOCOL, "the reply has no valid 'expires_in'");
	out->bearer = strdup(token);
	if (!out->bearer)
		return error_memory(err);
	out->expires_at_ns = now_ns + json_integer_value(life) * INT64_C(1000000000);
	return 0;
}
