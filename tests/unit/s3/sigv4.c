#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/sum/checksum.h"
#include "s3/date.h"
#include "s3/sign/sigv4.h"
#include "sigv4_vectors.h"

#define SUITE_DATE INT64_C(1440938160) /* 2015-08-30T12:36:00Z */
#define DOC_DATE   INT64_C(1369353600) /* 2013-05-24T00:00:00Z */

static const struct sigv4_credentials suite_keys = {
	"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", NULL};
static const struct sigv4_credentials doc_keys = {
	"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", NULL};

static struct sigv4 ws;

static int set_up(void **state)
{
	(void)state;
	return sigv4_init(&ws, NULL);
}

static int tear_down(void **state)
{
	(void)state;
	sigv4_release(&ws);
	return 0;
}

/* Sets the headers of a test case and those that signing adds. */
static size_t suite_headers(const struct vector *v, bool query, struct sigv4_header out[10])
{
	size_t n = 0;

	for (; n < ARRAY_SIZE(v->headers) && v->headers[n].name; n++)
		out[n] = v->headers[n];
	if (!query)
		out[n++] = (struct sigv4_header){"X-Amz-Date", "20150830T123600Z"};
	if (!query && v->token && !v->token_unsigned)
		out[n++] = (struct sigv4_header){"X-Amz-Security-Token", v->token};
	if (v->sign_body && !query)
		out[n++] = (struct sigv4_header){"X-Amz-Content-Sha256", v->payload_hash};
	return n;
}

/* Amazon's suite with the Authorization header: the canonical request, the signature, and the
 * verification by this code. */
static void the_published_suite_signs_and_verifies_in_headers(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
		const struct vector *v = &vectors[i];
		_cleanup_(buf_release) struct buf auth = BUF_INIT(LIMIT_HTTP_HEADERS);
		_cleanup_(buf_release) struct buf canonical = BUF_INIT(LIMIT_HTTP_HEADERS);
		struct sigv4_header headers[11];
		struct sigv4_request req = {.method = v->method,
			.path = v->path,
			.query = v->query,
			.headers = headers,
			.payload_hash = v->payload_hash};
		struct sigv4_auth parsed;

		req.n_headers = suite_headers(v, false, headers);
		ws.generic = v->normalize;
		assert_int_equal(sigv4_sign(&ws, &req,
					 (struct sigv4_identity){
						 &suite_keys, "us-east-1", "service", SUITE_DATE},
					 &auth, NULL, NULL),
			0);
		const char *signature = strstr(buf_str(&auth), "Signature=");
		if (strcmp(ws.canonical.data, v->header_canonical) != 0)
			print_message("%s\n", v->name);
		assert_string_equal(ws.canonical.data, v->header_canonical);
		assert_string_equal(signature + strlen("Signature="), v->header_signature);

		headers[req.n_headers++] = (struct sigv4_header){"Authorization", buf_str(&auth)};
		assert_int_equal(sigv4_parse(&req, &parsed), SIGV4_VALID);
		ws.generic = v->normalize;
		if (v->normalize)
			assert_int_equal(sigv4_verify(&ws, &req, &parsed, suite_keys.secret_key,
						 SUITE_DATE + 60),
				SIGV4_VALID);
		assert_int_equal(
			sigv4_canonical_request(&ws, &req, parsed.signed_headers, &canonical), 0);
		assert_string_equal(buf_str(&canonical), v->header_canonical);
		ws.generic = false;
	}
}

/* Amazon's suite with presigned URLs. */
static void the_published_suite_signs_and_verifies_in_queries(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
		const struct vector *v = &vectors[i];
		_cleanup_(buf_release) struct buf query = BUF_INIT(LIMIT_HTTP_HEADERS);
		struct sigv4_credentials keys = suite_keys;
		struct sigv4_header headers[11];
		struct sigv4_request req = {.method = v->method,
			.path = v->path,
			.query = v->query,
			.headers = headers,
			.payload_hash = v->payload_hash};
		struct sigv4_auth parsed;

		req.n_headers = suite_headers(v, true, headers);
		keys.session_token = v->token_unsigned ? NULL : v->token;
		ws.generic = v->normalize;
		assert_int_equal(
			sigv4_presign(&ws, &req,
				(struct sigv4_identity){&keys, "us-east-1", "service", SUITE_DATE},
				3600, &query, NULL),
			0);
		const char *signature = strstr(buf_str(&query), "&X-Amz-Signature=");
		if (strcmp(signature + strlen("&X-Amz-Signature="), v->query_signature) != 0)
			print_message("%s\n%s\n", v->name, ws.canonical.data);
		assert_string_equal(signature + strlen("&X-Amz-Signature="), v->query_signature);

		req.query = buf_str(&query);
		assert_int_equal(sigv4_parse(&req, &parsed), SIGV4_VALID);
		assert_true(parsed.presigned);
		if (v->normalize)
			assert_int_equal(sigv4_verify(&ws, &req, &parsed, suite_keys.secret_key,
						 SUITE_DATE + 3600),
				SIGV4_VALID);
		ws.generic = false;
	}
}

#define DOC_HOST                                                                                   \
	{                                                                                          \
		"Host", "examplebucket.s3.amazonaws.com"                                           \
	}
#define DOC_AMZ_DATE                                                                               \
	{                                                                                          \
		"x-amz-date", "20130524T000000Z"                                                   \
	}
#define DOC_EMPTY                                                                                  \
	{                                                                                          \
		"x-amz-content-sha256", SIGV4_EMPTY_SHA256                                         \
	}

/* The worked examples of "Signature Calculations for the Authorization Header" in the S3 API. */
static const struct {
	const char *name, *method, *path, *query;
	struct sigv4_header headers[6];
	const char *payload_hash, *signature;
} examples[] = {
	{"GET object", "GET", "/test.txt", "",
		{DOC_HOST, {"Range", "bytes=0-9"}, DOC_EMPTY, DOC_AMZ_DATE}, SIGV4_EMPTY_SHA256,
		"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
	{"PUT object", "PUT", "/test%24file.text", "",
		{{"Date", "Fri, 24 May 2013 00:00:00 GMT"}, DOC_HOST, DOC_AMZ_DATE,
			{"x-amz-storage-class", "REDUCED_REDUNDANCY"},
			{"x-amz-content-sha256", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42"
						 "034a8b803f8b072"}},
		"44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
		"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
	{"GET lifecycle", "GET", "/", "lifecycle", {DOC_HOST, DOC_EMPTY, DOC_AMZ_DATE},
		SIGV4_EMPTY_SHA256,
		"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
	{"list", "GET", "/", "max-keys=2&prefix=J", {DOC_HOST, DOC_EMPTY, DOC_AMZ_DATE},
		SIGV4_EMPTY_SHA256,
		"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	/* The same request, with its parameters in another order and encoding. */
	{"list, reordered", "GET", "/", "prefix=%4A&max-keys=2",
		{DOC_HOST, DOC_EMPTY, DOC_AMZ_DATE}, SIGV4_EMPTY_SHA256,
		"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	/* The same object, with an unencoded '$'. */
	{"PUT object, raw", "PUT", "/test$file.text", "",
		{{"Date", "Fri, 24 May 2013 00:00:00 GMT"}, DOC_HOST, DOC_AMZ_DATE,
			{"x-amz-storage-class", "REDUCED_REDUNDANCY"},
			{"x-amz-content-sha256", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42"
						 "034a8b803f8b072"}},
		"44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
		"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
};

static void the_examples_of_the_s3_documentation_sign_and_verify(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(examples); i++) {
		_cleanup_(buf_release) struct buf auth = BUF_INIT(LIMIT_HTTP_HEADERS);
		struct sigv4_header headers[7];
		struct sigv4_request req = {.method = examples[i].method,
			.path = examples[i].path,
			.query = examples[i].query,
			.headers = headers,
			.payload_hash = examples[i].payload_hash};
		struct sigv4_auth parsed;
		size_t n = 0;

		for (; n < ARRAY_SIZE(examples[i].headers) && examples[i].headers[n].name; n++)
			headers[n] = examples[i].headers[n];
		req.n_headers = n;
		assert_int_equal(
			sigv4_sign(&ws, &req,
				(struct sigv4_identity){&doc_keys, "us-east-1", "s3", DOC_DATE},
				&auth, NULL, NULL),
			0);
		assert_string_equal(strstr(buf_str(&auth), "Signature=") + strlen("Signature="),
			examples[i].signature);

		headers[req.n_headers++] = (struct sigv4_header){"authorization", buf_str(&auth)};
		req.payload_hash = NULL;
		assert_int_equal(sigv4_parse(&req, &parsed), SIGV4_VALID);
		assert_string_equal(parsed.access_key, doc_keys.access_key);
		assert_string_equal(parsed.scope.region, "us-east-1");
		assert_int_equal(
			sigv4_verify(&ws, &req, &parsed, doc_keys.secret_key, DOC_DATE + 900),
			SIGV4_VALID);
	}
}

/* The example of "Authenticating Requests: Using Query Parameters" in the S3 API. */
static void the_presigned_example_of_the_documentation_is_made_and_verified(void **state)
{
	_cleanup_(buf_release) struct buf query = BUF_INIT(LIMIT_HTTP_HEADERS);
	struct sigv4_header headers[] = {DOC_HOST};
	struct sigv4_request req = {
		.method = "GET", .path = "/test.txt", .headers = headers, .n_headers = 1};
	struct sigv4_auth parsed;

	(void)state;
	assert_int_equal(sigv4_presign(&ws, &req,
				 (struct sigv4_identity){&doc_keys, "us-east-1", "s3", DOC_DATE},
				 86400, &query, NULL),
		0);

	assert_string_equal(buf_str(&query),
		"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524"
		"%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400"
		"&X-Amz-SignedHeaders=host&X-Amz-Signature="
		"aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
	req.query = buf_str(&query);
	assert_int_equal(sigv4_parse(&req, &parsed), SIGV4_VALID);
	assert_int_equal(sigv4_verify(&ws, &req, &parsed, doc_keys.secret_key, DOC_DATE + 86400),
		SIGV4_VALID);
	assert_int_equal(sigv4_verify(&ws, &req, &parsed, doc_keys.secret_key, DOC_DATE + 86401),
		SIGV4_EXPIRED);
}

/* The example uploads 66,560 bytes 'a' in chunks of 64 KiB, with and without a trailer. */
static void the_chunked_examples_of_the_documentation_chain(void **state)
{
	static const struct {
		bool trailer;
		const char *seed, *signatures[3];
	} cases[] = {
		{false, "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
			{"ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
				"0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
				"b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df"
				"9"}},
		{true, "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
			{"b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
				"1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
				"2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f99"
				"2"}},
	};
	static const size_t sizes[] = {65536, 1024, 0};
	_cleanup_free_ char *data = malloc(65536);

	(void)state;
	memset(data, 'a', 65536);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct sigv4_header plain[] = {{"Host", "s3.amazonaws.com"}, DOC_AMZ_DATE,
			{"x-amz-storage-class", "REDUCED_REDUNDANCY"},
			{"x-amz-content-sha256", SIGV4_STREAMING},
			{"Content-Encoding", "aws-chunked"},
			{"x-amz-decoded-content-length", "66560"}, {"Content-Length", "66824"}};
		struct sigv4_header trailer[] = {{"Host", "s3.amazonaws.com"}, DOC_AMZ_DATE,
			{"x-amz-storage-class", "REDUCED_REDUNDANCY"},
			{"x-amz-content-sha256", SIGV4_STREAMING_TRAILER},
			{"Content-Encoding", "aws-chunked"},
			{"x-amz-decoded-content-length", "66560"},
			{"x-amz-trailer", "x-amz-checksum-crc32c"}};
		_cleanup_(buf_release) struct buf auth = BUF_INIT(LIMIT_HTTP_HEADERS);
		struct sigv4_chain chain;
		struct sigv4_request req = {.method = "PUT",
			.path = "/examplebucket/chunkObject.txt",
			.headers = cases[i].trailer ? trailer : plain,
			.n_headers = 7,
			.payload_hash = cases[i].trailer ? SIGV4_STREAMING_TRAILER
							 : SIGV4_STREAMING};

		assert_int_equal(
			sigv4_sign(&ws, &req,
				(struct sigv4_identity){&doc_keys, "us-east-1", "s3", DOC_DATE},
				&auth, &chain, NULL),
			0);
		assert_string_equal(chain.previous, cases[i].seed);
		for (int k = 0; k < 3; k++) {
			uint8_t digest[CHECKSUM_MAX_SIZE];
			char hex[65], signature[SIGV4_SIGNATURE_SIZE];

			checksum_of(CHECKSUM_SHA256, data, sizes[k], digest, NULL);
			str_hex(digest, 32, hex);
			assert_int_equal(sigv4_chunk_signature(&ws, &chain, hex, signature), 0);
			assert_string_equal(signature, cases[i].signatures[k]);
			sigv4_chain_advance(&chain, signature);
		}
		if (cases[i].trailer) {
			static const char trailers[] = "x-amz-checksum-crc32c:sOO8/Q==\n";
			uint8_t digest[CHECKSUM_MAX_SIZE];
			char hex[65], signature[SIGV4_SIGNATURE_SIZE];

			checksum_of(CHECKSUM_SHA256, trailers, strlen(trailers), digest, NULL);
			str_hex(digest, 32, hex);
			assert_int_equal(sigv4_trailer_signature(&ws, &chain, hex, signature), 0);
			assert_string_equal(signature,
				"d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435");
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_published_suite_signs_and_verifies_in_headers),
		cmocka_unit_test(the_published_suite_signs_and_verifies_in_queries),
		cmocka_unit_test(the_examples_of_the_s3_documentation_sign_and_verify),
		cmocka_unit_test(the_presigned_example_of_the_documentation_is_made_and_verified),
		cmocka_unit_test(the_chunked_examples_of_the_documentation_chain),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
