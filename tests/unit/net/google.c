/* Google's key files, and the signed requests for tokens. */
#include "net/credentials/google.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "s3/sum/checksum.h"
#include "s3/sign/sigv4.h"

static EVP_PKEY *rsa;
static char pem[4096];

static int make_key(void **state)
{
	BIO *bio = BIO_new(BIO_s_mem());
	int n;

	(void)state;
	rsa = EVP_RSA_gen(2048);
	if (!rsa || !bio || PEM_write_bio_PrivateKey(bio, rsa, NULL, NULL, 0, NULL, NULL) != 1)
		return -1;
	n = BIO_read(bio, pem, sizeof(pem) - 1);
	BIO_free(bio);
	return n > 0 ? 0 : -1;
}

static int drop_key(void **state)
{
	(void)state;
	EVP_PKEY_free(rsa);
	log_redact_clear();
	return 0;
}

/* Creates a key file in which the member `name` has another value, or is missing if `value` is
 * NULL. */
static char *key_file(const char *name, const char *value)
{
	json_t *json = json_pack("{ss ss ss ss ss}", "type", "service_account", "client_email",
		"trainer@lab.iam.gserviceaccount.com", "private_key_id", "k1", "private_key", pem,
		"project_id", "lab");
	char *text;

	if (name && value)
		json_object_set_new(json, name, json_string(value));
	else if (name)
		json_object_del(json, name);
	text = json_dumps(json, 0);
	json_decref(json);
	return text;
}

static struct google_key *parsed(void)
{
	struct google_key *key = NULL;
	char *text = key_file(NULL, NULL);

	assert_int_equal(0, google_key_parse(&key, text, strlen(text), NULL));
	free(text);
	return key;
}

/* Decodes one of the three pieces of a JWT. */
static void decode(const char *piece, size_t len, struct buf *out)
{
	char *text = calloc(1, len + 5);

	for (size_t i = 0; i < len; i++)
		text[i] = (char)(piece[i] == '-' ? '+' : piece[i] == '_' ? '/' : piece[i]);
	while (strlen(text) % 4)
		strncat(text, "=", 2);
	assert_int_equal(0, base64_decode(out, text, strlen(text)));
	free(text);
}

static void assert_signed(const char *text, size_t len, const void *signature, size_t n)
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();

	assert_int_equal(1, EVP_DigestVerifyInit(md, NULL, EVP_sha256(), NULL, rsa));
	assert_int_equal(1, EVP_DigestVerify(md, signature, n, (const unsigned char *)text, len));
	EVP_MD_CTX_free(md);
}

/* RFC 7515 and Google's page on service accounts: a JWT has three pieces; RS256 signs the first
 * two. */
static void a_request_for_a_token_is_signed_with_the_private_key(void **state)
{
	struct google_key *key = parsed();
	_cleanup_(buf_release) struct buf jwt = BUF_INIT(10000), head = BUF_INIT(1000),
					  claims = BUF_INIT(1000), signature = BUF_INIT(1000);
	const char *dot, *last;
	json_t *json;

	(void)state;
	assert_int_equal(0, google_jwt(key, 1700000000, &jwt, NULL));

	dot = strchr(buf_str(&jwt), '.');
	last = strrchr(buf_str(&jwt), '.');
	decode(buf_str(&jwt), (size_t)(dot - buf_str(&jwt)), &head);
	decode(dot + 1, (size_t)(last - dot - 1), &claims);
	decode(last + 1, strlen(last + 1), &signature);
	assert_string_equal("{\"alg\":\"RS256\",\"typ\":\"JWT\",\"kid\":\"k1\"}", buf_str(&head));
	json = json_loads(buf_str(&claims), 0, NULL);
	assert_string_equal("trainer@lab.iam.gserviceaccount.com",
		json_string_value(json_object_get(json, "iss")));
	assert_string_equal("https://oauth2.googleapis.com/token",
		json_string_value(json_object_get(json, "aud")));
	assert_string_equal("https://www.googleapis.com/auth/devstorage.full_control",
		json_string_value(json_object_get(json, "scope")));
	assert_int_equal(1700000000, json_integer_value(json_object_get(json, "iat")));
	assert_int_equal(1700003600, json_integer_value(json_object_get(json, "exp")));
	assert_signed(buf_str(&jwt), (size_t)(last - buf_str(&jwt)), signature.data, signature.len);
	json_decref(json);
	google_key_free(key);
}

/* Google's page "Signing process": the string to sign, signed with RSA, in hexadecimal. */
static void a_url_is_presigned_with_the_private_key(void **state)
{
	struct google_key *key = parsed();
	struct sigv4 ws;
	_cleanup_(buf_release) struct buf query = BUF_INIT(10000), canonical = BUF_INIT(10000),
					  text = BUF_INIT(10000);
	const struct sigv4_header host = {"host", "storage.googleapis.com"};
	struct sigv4_request request = {.method = "GET",
		.path = "/bucket/a%20key",
		.query = "",
		.headers = &host,
		.n_headers = 1,
		.payload_hash = SIGV4_UNSIGNED_PAYLOAD};
	const struct sigv4_credentials keys = {key->client_email, "", NULL};
	const struct sigv4_scope scope = {"20231114", "auto", "storage"};
	unsigned char signature[256];
	const char *hex;

	(void)state;
	assert_int_equal(0, sigv4_init(&ws, NULL));
	ws.kind = SIGV4_GOOG_RSA;
	ws.rsa = google_sign_hex;
	ws.cookie = key;

	assert_int_equal(0, sigv4_presign(&ws, &request,
				    (struct sigv4_identity){&keys, "auto", "storage", 1700000000},
				    600, &query, NULL));

	assert_non_null(strstr(buf_str(&query),
		"X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Credential=trainer%40lab.iam."
		"gserviceaccount.com%2F20231114%2Fauto%2Fstorage%2Fgoog4_request&X-Goog-Date="
		"20231114T221320Z&X-Goog-Expires=600&X-Goog-SignedHeaders=host&X-Goog-Signature="));
	hex = strrchr(buf_str(&query), '=') + 1;
	assert_int_equal(0, str_unhex(hex, signature, sizeof(signature)));
	buf_truncate(&query, (size_t)(hex - buf_str(&query)) - strlen("&X-Goog-Signature="));
	request.query = buf_str(&query);
	assert_int_equal(0, sigv4_canonical_request(&ws, &request, "host", &canonical));
	assert_int_equal(0, sigv4_string_to_sign(&ws, "20231114T221320Z", &scope, canonical.data,
				    canonical.len, &text));
	assert_true(str_starts(buf_str(&text),
		"GOOG4-RSA-SHA256\n20231114T221320Z\n20231114/auto/storage/goog4_request\n"));
	assert_signed(text.data, text.len, signature, sizeof(signature));
	sigv4_release(&ws);
	google_key_free(key);
}

/* Another program computed the expected signature from Google's page "Canonical requests". */
static void hmac_keys_sign_with_googles_words(void **state)
{
	struct sigv4 ws;
	_cleanup_(buf_release) struct buf authorization = BUF_INIT(10000);
	const struct sigv4_header headers[] = {{"host", "storage.googleapis.com"},
		{"x-goog-content-sha256", SIGV4_UNSIGNED_PAYLOAD},
		{"x-goog-date", "20231114T221320Z"}, {"x-goog-if-generation-match", "0"}};
	const struct sigv4_request request = {.method = "PUT",
		.path = "/bucket/a%20key",
		.query = "",
		.headers = headers,
		.n_headers = 4,
		.payload_hash = SIGV4_UNSIGNED_PAYLOAD};
	const struct sigv4_credentials keys = {"GOOG1EXAMPLE", "example-secret", NULL};

	(void)state;
	assert_int_equal(0, sigv4_init(&ws, NULL));
	ws.kind = SIGV4_GOOG_HMAC;

	assert_int_equal(0, sigv4_sign(&ws, &request,
				    (struct sigv4_identity){&keys, "auto", "storage", 1700000000},
				    &authorization, NULL, NULL));

	assert_string_equal(
		"GOOG4-HMAC-SHA256 Credential=GOOG1EXAMPLE/20231114/auto/storage/"
		"goog4_request, SignedHeaders=host;x-goog-content-sha256;x-goog-date;"
		"x-goog-if-generation-match, "
		"Signature=a88669c6341b8474dc5eb1302025298d11ed99aa51fe62490981aacc563e386e",
		buf_str(&authorization));
	sigv4_release(&ws);
}

static void assert_refused(
	const char *name, const char *value, enum penstock_code code, const char *says)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct google_key *key = NULL;
	char *text = key_file(name, value);

	assert_int_equal(-(int)code, google_key_parse(&key, text, strlen(text), &err));
	assert_null(key);
	assert_non_null(strstr(err.message, says));
	assert_null(strstr(err.message, "PRIVATE KEY"));
	penstock_error_release(&err);
	free(text);
}

static void a_wrong_key_file_is_refused_with_what_is_wrong(void **state)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct google_key *key = NULL;

	(void)state;
	assert_refused("type", NULL, PENSTOCK_E_INVALID, "type");
	assert_refused("type", "external_account", PENSTOCK_E_UNSUPPORTED, "'external_account'");
	assert_refused("client_email", NULL, PENSTOCK_E_INVALID, "client_email");
	assert_refused("client_email", "a\nb", PENSTOCK_E_INVALID, "client_email");
	assert_refused("private_key", NULL, PENSTOCK_E_INVALID, "private_key");
	assert_refused("private_key", "-----BEGIN PRIVATE KEY-----\nAAAA\n", PENSTOCK_E_INVALID,
		"private_key");
	assert_refused("token_uri", "http://tokens.example/", PENSTOCK_E_INVALID, "https://");
	assert_refused("token_uri", "http://127.0.0.1.example/", PENSTOCK_E_INVALID, "https://");
	assert_true(google_may_have_token("http://127.1.2.3:99/x"));
	assert_true(google_may_have_token("http://localhost"));
	assert_true(google_may_have_token("http://[::1]:80/"));
	assert_true(google_may_have_token("https://a"));
	assert_false(google_may_have_token("http://127.1.2.3.a/"));
	assert_false(google_may_have_token("http://128.0.0.1/"));
	assert_false(google_may_have_token("http://[::1]a/"));
	assert_false(google_may_have_token("http://localhost.example/"));
	assert_false(google_may_have_token("http://0177.0.0.1/"));
	assert_false(google_may_have_token("ftp://127.0.0.1/"));
	assert_false(google_may_have_token("http://localhost:x@example.org/"));
	assert_refused("token_uri", "https://a@b/", PENSTOCK_E_INVALID, "token_uri");
	assert_int_equal(-(int)PENSTOCK_E_INVALID, google_key_parse(&key, "[]", 2, &err));
	assert_non_null(strstr(err.message, "JSON"));
	penstock_error_release(&err);
}

/* Keys of another kind, and keys that are too short to be safe, are refused. */
static void only_rsa_keys_of_2048_bits_are_taken(void **state)
{
	EVP_PKEY *weak = EVP_RSA_gen(1024), *curve = EVP_EC_gen("P-256");
	EVP_PKEY *const keys[] = {weak, curve};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		char text[4096] = "";
		BIO *bio = BIO_new(BIO_s_mem());

		PEM_write_bio_PrivateKey(bio, keys[i], NULL, NULL, 0, NULL, NULL);
		assert_true(BIO_read(bio, text, sizeof(text) - 1) > 0);
		assert_refused("private_key", text, PENSTOCK_E_INVALID, "RSA");
		BIO_free(bio);
		EVP_PKEY_free(keys[i]);
	}
}

/* Every line of the key is masked wherever it appears in a text. */
static void the_private_key_is_hidden_in_logs(void **state)
{
	struct google_key *key = parsed();
	_cleanup_(buf_release) struct buf shown = BUF_INIT(10000);

	(void)state;
	log_redact_into(&shown, pem);

	for (const char *at = strchr(pem, '\n') + 1; *at && *at != '-'; at = strchr(at, '\n') + 1) {
		char line[80] = "";

		snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
		if (strlen(line) >= 16)
			assert_null(strstr(buf_str(&shown), line));
	}
	google_key_free(key);
}

static void tokens_are_read_with_their_end(void **state)
{
	static const char good[] =
		"{\"access_token\":\"ya29.c\",\"expires_in\":3599,\"token_type\":\"Bearer\"}";
	static const char *const bad[] = {"", "[]", "{}", "{\"access_token\":\"t\"}",
		"{\"access_token\":\"t\",\"expires_in\":0}",
		"{\"access_token\":\"t\",\"expires_in\":\"9\"}",
		"{\"access_token\":\"t\",\"expires_in\":99999999999}",
		"{\"access_token\":\"a\\r\\nX: y\",\"expires_in\":9}",
		"{\"access_token\":7,\"expires_in\":9}"};
	struct credentials c = {0};

	(void)state;
	assert_int_equal(0, google_token_parse(good, strlen(good), 5 * NS_PER_S, &c, NULL));
	assert_string_equal("ya29.c", c.bearer);
	assert_true(c.expires_at_ns == 3604 * NS_PER_S);
	credentials_release(&c);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct credentials none = {0};

		assert_int_equal(-(int)PENSTOCK_E_PROTOCOL,
			google_token_parse(bad[i], strlen(bad[i]), 0, &none, NULL));
		assert_null(none.bearer);
	}
}

static struct s3_settings resolved(const struct store_place *given, const char *source)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_settings s = {0};

	if (gs_settings_resolve(&s, given, &err) < 0)
		fail_msg("%s", err.message);
	assert_string_equal(source, s.source);
	assert_true(s.google);
	return s;
}

static void clear_environment(void)
{
	static const char *const names[] = {"GS_ACCESS_KEY_ID", "GS_SECRET_ACCESS_KEY",
		"GOOGLE_APPLICATION_CREDENTIALS", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
		"STORAGE_EMULATOR_HOST", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CONFIG"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unsetenv(names[i]);
	setenv("HOME", "/nowhere", 1);
	setenv("NO_GCE_CHECK", "true", 1);
}

/* The first source that has credentials is used: the caller, the environment, then gcloud. If no
 * source has credentials, the error lists the sources. */
static void credentials_are_looked_for_in_order(void **state)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_settings s = {0};
	char folder[] = "/tmp/penstock-google-XXXXXX", path[128];
	char *text = key_file(NULL, NULL);
	FILE *file;

	(void)state;
	clear_environment();
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/application_default_credentials.json", folder);
	file = fopen(path, "w");
	fputs(text, file);
	fclose(file);
	free(text);

	assert_int_equal(-(int)PENSTOCK_E_PERMISSION,
		gs_settings_resolve(&s, &(struct store_place){0}, &err));
	assert_non_null(strstr(err.message, "GOOGLE_APPLICATION_CREDENTIALS"));
	penstock_error_release(&err);

	setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:4443", 1);
	s = resolved(&(struct store_place){0}, "anonymous");
	assert_string_equal("http://127.0.0.1:4443", s.endpoint_url);
	s3_settings_release(&s);
	setenv("CLOUDSDK_CONFIG", folder, 1);
	s = resolved(&(struct store_place){0}, "gcloud");
	assert_string_equal("lab", s.project);
	s3_settings_release(&s);
	setenv("AWS_ACCESS_KEY_ID", "AKIANOTGOOGLES", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
	s = resolved(&(struct store_place){0}, "gcloud");
	s3_settings_release(&s);
	setenv("AWS_ACCESS_KEY_ID", "GOOG1EXAMPLE", 1);
	s = resolved(&(struct store_place){0}, "environment");
	assert_null(s.key);
	s3_settings_release(&s);
	setenv("GOOGLE_APPLICATION_CREDENTIALS", path, 1);
	unsetenv("CLOUDSDK_CONFIG");
	s = resolved(&(struct store_place){0}, "key file");
	s3_settings_release(&s);
	setenv("GS_ACCESS_KEY_ID", "GOOG1OTHER", 1);
	setenv("GS_SECRET_ACCESS_KEY", "secret", 1);
	s = resolved(&(struct store_place){0}, "environment");
	s3_settings_release(&s);
	s = resolved(&(struct store_place){.google_key = path}, "given");
	assert_non_null(s.key);
	s3_settings_release(&s);
	s = resolved(&(struct store_place){.anonymous = true, .google_key = path}, "anonymous");
	s3_settings_release(&s);

	/* A token is never sent to another host, because it grants access by itself. A signature
	 * may be sent. */
	unsetenv("STORAGE_EMULATOR_HOST");
	assert_int_equal(
		-(int)PENSTOCK_E_INVALID, gs_settings_resolve(&s,
						  &(struct store_place){.google_key = path,
							  .endpoint_url = "http://elsewhere:4443"},
						  &err));
	assert_non_null(strstr(err.message, "http://elsewhere:4443"));
	penstock_error_release(&err);
	s = resolved(&(struct store_place){.google_key = path, .endpoint_url = "https://elsewhere"},
		"given");
	s3_settings_release(&s);
	s = resolved(&(struct store_place){.endpoint_url = "http://elsewhere:4443"}, "environment");
	s3_settings_release(&s);

	clear_environment();
	remove(path);
	remove(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_for_a_token_is_signed_with_the_private_key),
		cmocka_unit_test(a_url_is_presigned_with_the_private_key),
		cmocka_unit_test(hmac_keys_sign_with_googles_words),
		cmocka_unit_test(a_wrong_key_file_is_refused_with_what_is_wrong),
		cmocka_unit_test(only_rsa_keys_of_2048_bits_are_taken),
		cmocka_unit_test(the_private_key_is_hidden_in_logs),
		cmocka_unit_test(tokens_are_read_with_their_end),
		cmocka_unit_test(credentials_are_looked_for_in_order),
	};

	return cmocka_run_group_tests(tests, make_key, drop_key);
}
