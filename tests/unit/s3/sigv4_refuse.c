/*
 * Requests that the server must refuse, and the error of each request. sigv4.c tests the
 * signatures.
 */
#include "s3_test.h"

#include "base/clock.h"
#include "s3/sign/sigv4.h"

#define DATE	  INT64_C(1369353600) /* 2013-05-24T00:00:00Z */
#define SCOPE	  "/20130524/us-east-1/s3/aws4_request"
#define SIGNATURE "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
#define SIGNED	  "host;range;x-amz-content-sha256;x-amz-date"

static const char secret[] = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
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

static enum sigv4_failure check(const struct sigv4_request *req, int64_t now)
{
	struct sigv4_auth auth;
	enum sigv4_failure f = sigv4_parse(req, &auth);

	return f ? f : sigv4_verify(&ws, req, &auth, secret, now);
}

/* Each row replaces the Authorization header of the valid GET in the documentation. */
static void each_defect_of_the_header_has_its_name(void **state)
{
	static const struct {
		const char *authorization;
		enum sigv4_failure failure;
	} rows[] = {
		{"AWS4-HMAC-SHA256 Credential=AK" SCOPE ",SignedHeaders=" SIGNED
		 ",Signature=" SIGNATURE,
			SIGV4_VALID},
		{"AWS4-HMAC-SHA256 Signature=" SIGNATURE "  ,\tSignedHeaders=" SIGNED
		 ", Credential=AK" SCOPE,
			SIGV4_VALID},
		{"AWS4-HMAC-SHA256 Credential=A/K,x=1, y" SCOPE ",SignedHeaders=" SIGNED
		 ",Signature=" SIGNATURE,
			SIGV4_VALID},
		{"AWS4-HMAC-SHA256 Credential=AK" SCOPE ",SignedHeaders=" SIGNED
		 ",Signature=00e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
			SIGV4_MISMATCH},
		{"AWS4-HMAC-SHA256 Credential=AK/20130524/eu-central-1/s3/aws4_request,"
		 "SignedHeaders=" SIGNED ",Signature=" SIGNATURE,
			SIGV4_MISMATCH},
		{"AWS4-HMAC-SHA256 "
		 "Credential=AK/20130523/us-east-1/s3/aws4_request,SignedHeaders=" SIGNED
		 ",Signature=" SIGNATURE,
			SIGV4_SCOPE_DATE},
		{"AWS4-HMAC-SHA256 "
		 "Credential=AK/20130524/us-east-1/ec2/aws4_request,SignedHeaders=" SIGNED
		 ",Signature=" SIGNATURE,
			SIGV4_SCOPE_SERVICE},
		{"AWS4-HMAC-SHA256 "
		 "Credential=AK/20130524/us-east-1/s3/aws5_request,SignedHeaders=" SIGNED
		 ",Signature=" SIGNATURE,
			SIGV4_SCOPE_SERVICE},
		{"AWS4-HMAC-SHA256 Credential=AK" SCOPE
		 ",SignedHeaders=range;x-amz-content-sha256;x-amz-date,Signature=" SIGNATURE,
			SIGV4_HOST_UNSIGNED},
		{"AWS4-HMAC-SHA256 Credential=AK" SCOPE
		 ",SignedHeaders=host;range;x-amz-date,Signature=" SIGNATURE,
			SIGV4_HEADER_UNSIGNED},
		{"AWS4-HMAC-SHA256 Credential=AK" SCOPE ",SignedHeaders=" SIGNED
		 ";zebra,Signature=" SIGNATURE,
			SIGV4_HEADER_ABSENT},
		{"AWS4-HMAC-SHA256 "
		 "Credential=/20130524/us-east-1/s3/aws4_request,SignedHeaders=" SIGNED
		 ",Signature=" SIGNATURE,
			SIGV4_MALFORMED_HEADER},
		{"AWS4-HMAC-SHA256 Credential=AK,SignedHeaders=" SIGNED ",Signature=" SIGNATURE,
			SIGV4_MALFORMED_HEADER},
		{"AWS4-HMAC-SHA256 "
		 "Credential=AK/2013052/us-east-1/s3/aws4_request,SignedHeaders=" SIGNED
		 ",Signature=" SIGNATURE,
			SIGV4_MALFORMED_HEADER},
		{"AWS4-HMAC-SHA256 Credential=AK" SCOPE ",SignedHeaders=,Signature=" SIGNATURE,
			SIGV4_MALFORMED_HEADER},
		{"AWS4-HMAC-SHA256 Credential=AK" SCOPE
		 ",SignedHeaders=host;;range,Signature=" SIGNATURE,
			SIGV4_MALFORMED_HEADER},
		{"AWS4-HMAC-SHA256 Credential=AK" SCOPE ",SignedHeaders=Host,Signature=" SIGNATURE,
			SIGV4_MALFORMED_HEADER},
		{"AWS4-HMAC-SHA256 Credential=AK" SCOPE ",SignedHeaders=" SIGNED ",Signature=f0e8",
			SIGV4_MALFORMED_HEADER},
		{"AWS4-HMAC-SHA256 Credential=AK" SCOPE ",SignedHeaders=" SIGNED
		 ",Signature=g0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
			SIGV4_MALFORMED_HEADER},
		{"AWS4-HMAC-SHA256 Credential=AK" SCOPE ",SignedHeaders=" SIGNED,
			SIGV4_MALFORMED_HEADER},
		{"AWS4-HMAC-SHA256 Credential=AK" SCOPE ",SignedHeaders=" SIGNED
		 ",Signature=" SIGNATURE ",Signature=" SIGNATURE,
			SIGV4_MALFORMED_HEADER},
		{"AWS4-HMAC-SHA256 nonsense", SIGV4_MALFORMED_HEADER},
		{"AWS4-HMAC-SHA256 ", SIGV4_MALFORMED_HEADER},
		{"AWS4-HMAC-SHA256", SIGV4_MALFORMED_HEADER},
		{"AWS4-ECDSA-P256-SHA256 Credential=AK", SIGV4_UNSUPPORTED},
		{"AWS AK:c2lnbmF0dXJl", SIGV4_UNSUPPORTED},
		{"Bearer x", SIGV4_UNSUPPORTED},
		{"", SIGV4_UNSUPPORTED},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct sigv4_header headers[] = {{"HOST", "examplebucket.s3.amazonaws.com"},
			{"range", "bytes=0-9"}, {"X-Amz-Content-Sha256", SIGV4_EMPTY_SHA256},
			{"X-Amz-Date", "20130524T000000Z"},
			{"Authorization", rows[i].authorization}};
		struct sigv4_request req = {.method = "GET",
			.path = "/test.txt",
			.headers = headers,
			.n_headers = ARRAY_SIZE(headers)};

		if (check(&req, DATE) != rows[i].failure)
			fail_msg("'%s' gives %d (%s)", rows[i].authorization,
				(int)check(&req, DATE), sigv4_failure_message(check(&req, DATE)));
	}
}

/* The header is parsed before the sender is known, so the time must be limited. A parser that takes
 * too long fails the test by the time limit of the suite. */
static void a_header_of_separators_is_parsed_in_linear_time(void **state)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(4 * MIB);
	struct sigv4_header headers[] = {{"Authorization", NULL}};
	struct sigv4_request req = {.headers = headers, .n_headers = 1};

	(void)state;
	buf_add_str(&text, "AWS4-HMAC-SHA256 Credential=");
	while (text.len < 4 * MIB - 3)
		buf_add_str(&text, ", ");
	buf_add_char(&text, 'x');
	headers[0].value = buf_str(&text);

	assert_int_equal(buf_failed(&text), 0);
	assert_int_equal(check(&req, DATE), SIGV4_MALFORMED_HEADER);
}

static enum sigv4_failure check_headers(
	const char *date_name, const char *date, const char *hash, int64_t now)
{
	struct sigv4_header headers[5] = {
		{"Host", "h"}, {"Authorization", "AWS4-HMAC-SHA256 Credential=AK" SCOPE
						 ",SignedHeaders=host;x-amz-content-sha256;x-amz-"
						 "date,Signature=" SIGNATURE}};
	struct sigv4_request req = {.method = "GET", .path = "/", .headers = headers};
	size_t n = 2;

	if (date_name)
		headers[n++] = (struct sigv4_header){date_name, date};
	if (hash)
		headers[n++] = (struct sigv4_header){"x-amz-content-sha256", hash};
	req.n_headers = n;
	return check(&req, now);
}

/* The date may be in either header. It must be within 15 minutes of the server's time. */
static void dates_and_payload_hashes_are_checked(void **state)
{
	static const char hash[] = SIGV4_EMPTY_SHA256;

	(void)state;
	assert_int_equal(
		check_headers("x-amz-date", "20130524T000000Z", hash, DATE), SIGV4_MISMATCH);
	assert_int_equal(
		check_headers("x-amz-date", "20130524T000000Z", hash, DATE + 900), SIGV4_MISMATCH);
	assert_int_equal(
		check_headers("x-amz-date", "20130524T000000Z", hash, DATE + 901), SIGV4_SKEWED);
	assert_int_equal(
		check_headers("x-amz-date", "20130524T000000Z", hash, DATE - 901), SIGV4_SKEWED);
	assert_int_equal(check_headers("date", "Fri, 24 May 2013 00:00:00 GMT", hash, DATE),
		SIGV4_HEADER_ABSENT);
	assert_int_equal(check_headers("x-amz-date", "Fri, 24 May 2013 00:00:00 -0000", hash, DATE),
		SIGV4_MISMATCH);
	assert_int_equal(check_headers("x-amz-date", "yesterday", hash, DATE), SIGV4_DATE_MISSING);
	assert_int_equal(check_headers(NULL, NULL, hash, DATE), SIGV4_DATE_MISSING);
	assert_int_equal(
		check_headers("x-amz-date", "20130524T000000Z", NULL, DATE), SIGV4_PAYLOAD_HASH);
	assert_int_equal(
		check_headers("x-amz-date", "20130524T000000Z", "abc", DATE), SIGV4_PAYLOAD_HASH);
	assert_int_equal(check_headers("x-amz-date", "20130524T000000Z", "UNSIGNED-PAYLOAD", DATE),
		SIGV4_MISMATCH);
}

#define Q_ALGORITHM  "X-Amz-Algorithm=AWS4-HMAC-SHA256"
#define Q_CREDENTIAL "&X-Amz-Credential=AK%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
#define Q_DATE	     "&X-Amz-Date=20130524T000000Z"
#define Q_HEADERS    "&X-Amz-SignedHeaders=host"
#define Q_SIGNATURE                                                                                \
	"&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"

static void each_defect_of_a_presigned_query_has_its_name(void **state)
{
	static const struct {
		const char *query;
		enum sigv4_failure failure;
	} rows[] = {
		{NULL, SIGV4_ANONYMOUS},
		{"list-type=2", SIGV4_ANONYMOUS},
		{Q_ALGORITHM Q_CREDENTIAL Q_DATE "&X-Amz-Expires=86400" Q_HEADERS Q_SIGNATURE,
			SIGV4_MISMATCH},
		{Q_ALGORITHM Q_CREDENTIAL Q_DATE "&X-Amz-Expires=0" Q_HEADERS Q_SIGNATURE,
			SIGV4_EXPIRES_RANGE},
		{Q_ALGORITHM Q_CREDENTIAL Q_DATE "&X-Amz-Expires=604800" Q_HEADERS Q_SIGNATURE,
			SIGV4_MISMATCH},
		{Q_ALGORITHM Q_CREDENTIAL Q_DATE "&X-Amz-Expires=604801" Q_HEADERS Q_SIGNATURE,
			SIGV4_EXPIRES_RANGE},
		{Q_ALGORITHM Q_CREDENTIAL Q_DATE "&X-Amz-Expires=-1" Q_HEADERS Q_SIGNATURE,
			SIGV4_EXPIRES_RANGE},
		{Q_ALGORITHM Q_CREDENTIAL Q_DATE "&X-Amz-Expires" Q_HEADERS Q_SIGNATURE,
			SIGV4_EXPIRES_RANGE},
		{Q_ALGORITHM Q_CREDENTIAL Q_DATE "&X-Amz-Expires=60" Q_SIGNATURE,
			SIGV4_MALFORMED_QUERY},
		{Q_ALGORITHM Q_CREDENTIAL "&X-Amz-Expires=60" Q_HEADERS Q_SIGNATURE,
			SIGV4_MALFORMED_QUERY},
		{Q_ALGORITHM Q_CREDENTIAL "&X-Amz-Date=2013&X-Amz-Expires=60" Q_HEADERS Q_SIGNATURE,
			SIGV4_MALFORMED_QUERY},
		{Q_ALGORITHM "&X-Amz-Credential=AK" Q_DATE
			     "&X-Amz-Expires=60" Q_HEADERS Q_SIGNATURE,
			SIGV4_MALFORMED_QUERY},
		{Q_ALGORITHM "&X-Amz-Credential=%zz" Q_DATE
			     "&X-Amz-Expires=60" Q_HEADERS Q_SIGNATURE,
			SIGV4_MALFORMED_QUERY},
		{Q_ALGORITHM Q_CREDENTIAL Q_CREDENTIAL Q_DATE
			"&X-Amz-Expires=60" Q_HEADERS Q_SIGNATURE,
			SIGV4_MALFORMED_QUERY},
		{"X-Amz-Signature=", SIGV4_MALFORMED_QUERY},
		{"X-Amz-Algorithm=AWS4-ECDSA-P256-SHA256" Q_CREDENTIAL Q_DATE
		 "&X-Amz-Expires=60" Q_HEADERS Q_SIGNATURE,
			SIGV4_UNSUPPORTED},
		{"AWSAccessKeyId=AK&Expires=1141889120&Signature=vjbyPxybdZaNmGa%2ByT272YEAiv4%3D",
			SIGV4_UNSUPPORTED},
		{Q_ALGORITHM Q_CREDENTIAL Q_DATE
			"&X-Amz-Expires=60&X-Amz-SignedHeaders=range" Q_SIGNATURE,
			SIGV4_HOST_UNSIGNED},
		{Q_ALGORITHM Q_CREDENTIAL Q_DATE "&X-Amz-Expires=60" Q_HEADERS Q_SIGNATURE "&a=%zz",
			SIGV4_MALFORMED_URI},
		{Q_ALGORITHM Q_CREDENTIAL Q_DATE
			"&X-Amz-Expires=60&X-Amz-Content-Sha256=rubbish" Q_HEADERS Q_SIGNATURE,
			SIGV4_PAYLOAD_HASH},
		{Q_ALGORITHM Q_CREDENTIAL Q_DATE
			"&X-Amz-Expires=60&X-Amz-Content-Sha256=UNSIGNED-PAYLOAD" Q_HEADERS
				Q_SIGNATURE,
			SIGV4_MISMATCH},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct sigv4_header headers[] = {{"Host", "examplebucket.s3.amazonaws.com"}};
		struct sigv4_request req = {.method = "GET",
			.path = "/test.txt",
			.query = rows[i].query,
			.headers = headers,
			.n_headers = 1};

		if (check(&req, DATE) != rows[i].failure)
			fail_msg("'%s' gives %d (%s)", rows[i].query, (int)check(&req, DATE),
				sigv4_failure_message(check(&req, DATE)));
	}
}

static const struct sigv4_credentials keys = {"key with / and , and é",
	"a secret, longer than the block of the hash that it goes into, "
	"as somebody may choose it: 0123456789",
	NULL};

/* The secret key may have any characters, and the URL is valid for the time that it names. */
static void presigned_urls_live_as_long_as_they_say(void **state)
{
	_cleanup_(buf_release) struct buf query = BUF_INIT(LIMIT_HTTP_HEADERS);
	struct sigv4_header headers[] = {{"Host", "h:9000"}, {"x-amz-extra", "1"}};
	struct sigv4_request req = {.method = "PUT",
		.path = "/b/a%20b%2Bc",
		.query = "partNumber=1&uploadId=x%2Fy",
		.headers = headers,
		.n_headers = 1};
	struct sigv4_auth auth;

	(void)state;
	assert_int_equal(
		sigv4_presign(&ws, &req, (struct sigv4_identity){&keys, "any region", "s3", DATE},
			60, &query, NULL),
		0);
	req.query = buf_str(&query);
	assert_int_equal(sigv4_parse(&req, &auth), SIGV4_VALID);
	assert_string_equal(auth.access_key, keys.access_key);
	assert_string_equal(auth.scope.region, "any region");
	assert_int_equal(
		sigv4_verify(&ws, &req, &auth, keys.secret_key, DATE - 901), SIGV4_NOT_YET_VALID);
	assert_int_equal(sigv4_verify(&ws, &req, &auth, keys.secret_key, DATE - 900), SIGV4_VALID);
	assert_int_equal(sigv4_verify(&ws, &req, &auth, keys.secret_key, DATE + 60), SIGV4_VALID);
	assert_int_equal(sigv4_verify(&ws, &req, &auth, keys.secret_key, DATE + 61), SIGV4_EXPIRED);
	assert_int_equal(sigv4_verify(&ws, &req, &auth, "another secret", DATE), SIGV4_MISMATCH);
	req.method = "GET";
	assert_int_equal(sigv4_verify(&ws, &req, &auth, keys.secret_key, DATE), SIGV4_MISMATCH);
	req.method = "PUT";
	req.path = "/b/a%20b%2Bd";
	assert_int_equal(sigv4_verify(&ws, &req, &auth, keys.secret_key, DATE), SIGV4_MISMATCH);
	req.path = "/b/a b+c"; /* the same key, not encoded */
	assert_int_equal(sigv4_verify(&ws, &req, &auth, keys.secret_key, DATE), SIGV4_VALID);
	req.path = "/b/%a";
	assert_int_equal(
		sigv4_verify(&ws, &req, &auth, keys.secret_key, DATE), SIGV4_MALFORMED_URI);
	req.path = "/b/a%20b%2Bc";
	req.n_headers = 2;
	assert_int_equal(
		sigv4_verify(&ws, &req, &auth, keys.secret_key, DATE), SIGV4_HEADER_UNSIGNED);
	headers[1] = (struct sigv4_header){"authorization", "AWS4-HMAC-SHA256 x"};
	assert_int_equal(sigv4_parse(&req, &auth), SIGV4_AMBIGUOUS);
	assert_int_equal(sigv4_presign(&ws, &req, (struct sigv4_identity){&keys, "r", "s3", DATE},
				 604801, &query, NULL),
		-PENSTOCK_E_INVALID);
}

/* If the secret of a key was changed, the cache must not accept a request with the old one, even
 * after the cache was full once. */
static void the_key_cache_never_outlives_its_secret_or_scope(void **state)
{
	struct sigv4_header headers[] = {{"Host", "h"}, {"x-amz-date", "20130524T000000Z"},
		{"x-amz-content-sha256", "UNSIGNED-PAYLOAD"}, {NULL, NULL}};
	struct sigv4_request req = {.method = "GET",
		.path = "/",
		.headers = headers,
		.payload_hash = "UNSIGNED-PAYLOAD"};

	(void)state;
	for (int round = 0; round < 3 * SIGV4_CACHED_KEYS; round++) {
		_cleanup_(buf_release) struct buf auth = BUF_INIT(LIMIT_HTTP_HEADERS);
		char name[32], region[32];
		struct sigv4_credentials k = {"AK", name, NULL};
		struct sigv4_auth parsed;
		struct sigv4 fresh;

		snprintf(name, sizeof(name), "secret %d", round % 5);
		snprintf(region, sizeof(region), "region-%d", round % 7);
		req.n_headers = 3;
		assert_int_equal(
			sigv4_sign(&ws, &req, (struct sigv4_identity){&k, region, "s3", DATE},
				&auth, NULL, NULL),
			0);
		headers[3] = (struct sigv4_header){"Authorization", buf_str(&auth)};
		req.n_headers = 4;
		assert_int_equal(sigv4_init(&fresh, NULL), 0);
		assert_int_equal(sigv4_parse(&req, &parsed), SIGV4_VALID);
		assert_int_equal(sigv4_verify(&fresh, &req, &parsed, name, DATE), SIGV4_VALID);
		assert_int_equal(sigv4_verify(&ws, &req, &parsed, name, DATE), SIGV4_VALID);
		assert_int_equal(sigv4_verify(&ws, &req, &parsed, "secret", DATE), SIGV4_MISMATCH);
		sigv4_release(&fresh);
	}
}

/* A request with too many parameters is refused; no parameter is dropped. */
static void too_many_parameters_are_refused(void **state)
{
	_cleanup_(buf_release) struct buf query = BUF_INIT(LIMIT_HTTP_HEADERS);
	struct sigv4_header headers[] = {{"Host", "h"}, {"x-amz-date", "20130524T000000Z"},
		{"x-amz-content-sha256", "UNSIGNED-PAYLOAD"},
		{"Authorization", "AWS4-HMAC-SHA256 Credential=AK" SCOPE
				  ",SignedHeaders=host;x-amz-content-sha256;x-amz-date,"
				  "Signature=" SIGNATURE}};
	struct sigv4_request req = {
		.method = "GET", .path = "/", .headers = headers, .n_headers = 4};

	(void)state;
	for (int i = 0; i < LIMIT_SIGV4_PARAMETERS; i++)
		buf_printf(&query, "&p%d=%d", i * 7919 % 128, i);
	req.query = buf_str(&query);
	assert_int_equal(check(&req, DATE), SIGV4_MISMATCH);
	buf_add_str(&query, "&one=more");
	req.query = buf_str(&query);
	assert_int_equal(check(&req, DATE), SIGV4_TOO_LARGE);
}

/* The signature of a form signs the form's policy. The expected values were computed with
 * Python. */
static void each_defect_of_a_form_has_its_name(void **state)
{
	static const char policy[] = "eyJjb25kaXRpb25zIjpbXX0=";
	static const char right[] =
		"d67bd2df67495e3925c34aa34b62b6d79bccbd89f26339ac11d91c5b33a251ff";
	static const struct {
		struct sigv4_form form;
		enum sigv4_failure failure;
	} rows[] = {
		{{"AWS4-HMAC-SHA256", "AK" SCOPE, "20130524T000000Z", right}, SIGV4_VALID},
		{{"AWS4-HMAC-SHA256", "AK" SCOPE, "20130524T235959Z", right}, SIGV4_VALID},
		{{"AWS4-HMAC-SHA256", "AK" SCOPE, "20130525T000000Z", right}, SIGV4_SCOPE_DATE},
		{{"AWS4-HMAC-SHA256", "AK" SCOPE, "20130524T000000Z", SIGNATURE}, SIGV4_MISMATCH},
		{{"AWS4-HMAC-SHA256", "AK" SCOPE, "20130524T000000Z", ""}, SIGV4_MISMATCH},
		{{"AWS4-HMAC-SHA256", "AK" SCOPE, "20130524T000000Z", "x"}, SIGV4_MISMATCH},
		{{"AWS4-HMAC-SHA256", "AK" SCOPE, "2013-05-24", right}, SIGV4_MALFORMED_FORM},
		{{"AWS4-HMAC-SHA256", "AK", "20130524T000000Z", right}, SIGV4_MALFORMED_FORM},
		{{"AWS4-HMAC-SHA256", "AK" SCOPE "5", "20130524T000000Z", right},
			SIGV4_SCOPE_SERVICE},
		{{"AWS4-HMAC-SHA256", "AK/20130524/us-east-1/sts/aws4_request", "20130524T000000Z",
			 right},
			SIGV4_SCOPE_SERVICE},
		{{"AWS4-HMAC-SHA256", "AK/20130524/us-east-2/s3/aws4_request", "20130524T000000Z",
			 right},
			SIGV4_MISMATCH},
		{{"AWS4-ECDSA-P256-SHA256", "AK" SCOPE, "20130524T000000Z", right},
			SIGV4_UNSUPPORTED},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct sigv4_auth auth;
		enum sigv4_failure f = sigv4_parse_form(&rows[i].form, &auth);

		if (!f)
			f = sigv4_verify_form(&ws, &auth, secret, policy, DATE + 86400);
		assert_int_equal(f, rows[i].failure);
	}
}

/* A policy may be valid for longer than the signing key. */
static void the_signature_of_a_form_is_valid_for_seven_days(void **state)
{
	static const char policy[] = "eyJjb25kaXRpb25zIjpbXX0=";
	const struct sigv4_form form = {"AWS4-HMAC-SHA256", "AK" SCOPE, "20130524T000000Z",
		"d67bd2df67495e3925c34aa34b62b6d79bccbd89f26339ac11d91c5b33a251ff"};
	struct sigv4_auth auth;

	(void)state;
	assert_int_equal(sigv4_parse_form(&form, &auth), SIGV4_VALID);
	assert_int_equal(sigv4_verify_form(&ws, &auth, secret, policy, DATE + 604800), SIGV4_VALID);
	assert_int_equal(
		sigv4_verify_form(&ws, &auth, secret, policy, DATE + 604801), SIGV4_EXPIRED);
	assert_int_equal(sigv4_verify_form(&ws, &auth, secret, policy, DATE - 900), SIGV4_VALID);
	assert_int_equal(
		sigv4_verify_form(&ws, &auth, secret, policy, DATE - 901), SIGV4_NOT_YET_VALID);
}

/* Every failure has its own code and message. */
static void every_failure_can_be_answered(void **state)
{
	(void)state;
	for (int f = SIGV4_VALID + 1; f < SIGV4_FAILURE_COUNT_; f++) {
		enum s3_error e = sigv4_failure_error((enum sigv4_failure)f);

		assert_int_not_equal(e, S3_OK);
		assert_true(s3_error_info(e)->status >= 400);
		assert_true(strlen(sigv4_failure_message((enum sigv4_failure)f)) > 10);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_defect_of_the_header_has_its_name),
		cmocka_unit_test(a_header_of_separators_is_parsed_in_linear_time),
		cmocka_unit_test(dates_and_payload_hashes_are_checked),
		cmocka_unit_test(each_defect_of_a_presigned_query_has_its_name),
		cmocka_unit_test(presigned_urls_live_as_long_as_they_say),
		cmocka_unit_test(the_key_cache_never_outlives_its_secret_or_scope),
		cmocka_unit_test(too_many_parameters_are_refused),
		cmocka_unit_test(each_defect_of_a_form_has_its_name),
		cmocka_unit_test(the_signature_of_a_form_is_valid_for_seven_days),
		cmocka_unit_test(every_failure_can_be_answered),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
