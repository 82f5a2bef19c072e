#include "s3_test.h"

#include "s3/uri.h"

/* Unreserved bytes are not encoded; all other bytes are encoded in upper-case hexadecimal. */
static void each_byte_is_encoded_as_aws_signs_it_and_comes_back(void **state)
{
	static const char unreserved[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";

	(void)state;
	for (int c = 1; c < 256; c++) {
		_cleanup_(buf_release) struct buf encoded = BUF_INIT(16), back = BUF_INIT(16);
		char byte = (char)c, expected[4];

		if (strchr(unreserved, c))
			snprintf(expected, sizeof(expected), "%c", c);
		else
			snprintf(expected, sizeof(expected), "%%%02X", c);
		assert_int_equal(uri_encode(&encoded, &byte, 1, false), 0);
		assert_string_equal(buf_str(&encoded), expected);
		assert_int_equal(uri_decode(&back, encoded.data, encoded.len, URI_PLUS_LITERAL), 0);
		assert_memory_equal(back.data, &byte, 1);
	}
}

/* The slash is kept only in paths, and the plus means a space only in queries. */
static void slash_and_plus_depend_on_the_place(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(100);

	(void)state;
	uri_encode(&b, "a/b c", 5, true);
	uri_encode(&b, "/", 1, false);
	assert_string_equal(buf_str(&b), "a/b%20c%2F");
	buf_clear(&b);
	uri_decode(&b, "a+b%2B", 6, URI_PLUS_SPACE);
	uri_decode(&b, "+", 1, URI_PLUS_LITERAL);
	assert_string_equal(buf_str(&b), "a b++");
}

/* A server must not guess the meaning of a broken escape or a NUL, so nothing is added to the
 * result. */
static void broken_escapes_are_refused(void **state)
{
	static const char *const rows[] = {"%", "%1", "%g0", "%0g", "a%", "a%2", "%00", "x%%41"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_(buf_release) struct buf b = BUF_INIT(100);

		buf_add_str(&b, "before");
		assert_row(uri_decode(&b, rows[i], strlen(rows[i]), URI_PLUS_SPACE) == -1, rows[i]);
		assert_string_equal(buf_str(&b), "before");
	}
}

/* The buffer's limit applies to the result, not to the largest possible size of the result. */
static void exactly_fitting_text_is_accepted(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(4), c = BUF_INIT(2);

	(void)state;
	assert_int_equal(uri_encode(&b, "ab/", 3, true), 0);
	assert_int_equal(uri_encode(&b, " ", 1, true), -1);
	assert_int_equal(uri_decode(&c, "%41%42", 6, URI_PLUS_LITERAL), 0);
	assert_string_equal(buf_str(&c), "AB");
	assert_int_equal(uri_decode(&c, "%41", 3, URI_PLUS_LITERAL), -1);
}

/* A query is split without decoding, even if parts of its parameters are missing. */
static void a_query_is_split_as_it_came(void **state)
{
	static const struct {
		const char *name, *value;
	} expected[] = {
		{"a", "1"}, {"b", NULL}, {"c", ""}, {"", "x"}, {"d", "=="}, {"e%3D", "%26"}};
	const char *at = "a=1&&b&c=&=x&d===&e%3D=%26&";
	struct span name, value;
	size_t n = 0;

	(void)state;
	for (; n < ARRAY_SIZE(expected) && uri_query_next(&at, &name, &value); n++) {
		assert_int_equal(name.n, strlen(expected[n].name));
		assert_memory_equal(name.p, expected[n].name, name.n);
		assert_true((value.p == NULL) == (expected[n].value == NULL));
		if (value.p && expected[n].value) {
			assert_int_equal(value.n, strlen(expected[n].value));
			assert_memory_equal(value.p, expected[n].value, value.n);
		}
	}
	assert_int_equal(n, ARRAY_SIZE(expected));
	assert_false(uri_query_next(&at, &name, &value));
	at = NULL;
	assert_false(uri_query_next(&at, &name, &value));
}

static void a_parameter_is_found_and_decoded(void **state)
{
	static const struct {
		const char *query, *name;
		int result;
		const char *value;
	} rows[] = {
		{"prefix=a%2Fb+c&x=1", "prefix", 1, "a/b c"},
		{"x=1&pre%66ix=y", "prefix", 1, "y"},
		{"prefix", "prefix", 1, ""},
		{"prefix=", "prefix", 1, ""},
		{"prefi=1", "prefix", 0, ""},
		{"prefix1=1", "prefix", 0, ""},
		{"Prefix=1", "prefix", 0, ""},
		{"prefix=%zz", "prefix", -1, ""},
		{"%zz=1&prefix=2", "prefix", 1, "2"},
		{"prefi%7=2", "prefix", 0, ""},
		{"", "prefix", 0, ""},
		{NULL, "prefix", 0, ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_(buf_release) struct buf b = BUF_INIT(100);
		const char *what = rows[i].query ? rows[i].query : "no query";

		assert_row(uri_query_get(rows[i].query, rows[i].name, &b) == rows[i].result, what);
		assert_row(strcmp(buf_str(&b), rows[i].value) == 0, what);
	}
	assert_int_equal(uri_query_get("uploads", "uploads", NULL), 1);
}

static void a_query_is_valid_if_it_can_be_decoded(void **state)
{
	static const char *const valid[] = {NULL, "", "a", "a=%41&%62=+&&"};
	static const char *const invalid[] = {"a=%00", "%00", "a=%zz", "%zz=a", "a=%", "a=%4&b=1"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(valid); i++)
		assert_row(uri_query_is_valid(valid[i]), valid[i] ? valid[i] : "no query");
	for (size_t i = 0; i < ARRAY_SIZE(invalid); i++)
		assert_row(!uri_query_is_valid(invalid[i]), invalid[i]);
}

static void parameters_are_added_encoded(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(100);

	(void)state;
	uri_query_add(&b, "uploads", NULL);
	uri_query_add(&b, "prefix", "a/b c+");
	assert_string_equal(buf_str(&b), "uploads&prefix=a%2Fb%20c%2B");
}

static void s3_addresses_are_taken_apart_and_put_together(void **state)
{
	static const struct {
		const char *text, *bucket, *key; /* NULL if invalid */
	} rows[] = {
		{"s3://cifar10/ckpt.pth", "cifar10", "ckpt.pth"},
		{"s3://cifar10", "cifar10", ""},
		{"s3://cifar10/", "cifar10", ""},
		{"s3://b-1/a//b%20c?d#e", "b-1", "a//b%20c?d#e"},
		{"s3://bucket//leading", "bucket", "/leading"},
		{"s3:/bucket/key", NULL, NULL},
		{"https://bucket/key", NULL, NULL},
		{"s3://", NULL, NULL},
		{"s3:///key", NULL, NULL},
		{"s3://Bucket/key", NULL, NULL},
		{"s3://ab/key", NULL, NULL},
		{"s3://bucket/\xff", NULL, NULL},
		{"s3://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/k", NULL,
			NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		_cleanup_(buf_release) struct buf b = BUF_INIT(2000);
		struct s3_url url = {.key = NULL};
		int rc = s3_url_parse(rows[i].text, &url, &err);

		assert_row((rc == 0) == (rows[i].bucket != NULL), rows[i].text);
		if (rc < 0) {
			assert_int_equal(err.code, PENSTOCK_E_INVALID);
			continue;
		}
		assert_string_equal(url.bucket, rows[i].bucket);
		assert_string_equal(url.key, rows[i].key);
		assert_int_equal(s3_url_format(&b, url.bucket, url.key), 0);
		if (*url.key)
			assert_string_equal(buf_str(&b), rows[i].text);
		s3_url_release(&url);
	}
}

static void bucket_names_follow_the_rules_of_s3(void **state)
{
	static const char *const good[] = {"abc", "a-b", "my.bucket-1", "123", "a.b.c",
		"1.2.3.4567", "1.2.3", "256.1.2.x",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
	static const char *const bad[] = {"", "ab", "Abc", "a_b", "-abc", "abc-", ".abc", "abc.",
		"a..b", "192.168.5.4", "xn--abc", "abc-s3alias", "a/b", "a b", "b\xc3\xbc",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_row(s3_bucket_problem(good[i]) == NULL, good[i]);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_row(s3_bucket_problem(bad[i]) != NULL, bad[i]);
}

/* A key is well-formed UTF-8 of at most 1,024 bytes, and may have any byte except NUL. */
static void keys_are_utf8_of_at_most_a_kilobyte(void **state)
{
	static const struct {
		const char *key;
		bool good;
	} rows[] = {{"a", true}, {"\x01\x7f", true}, {"\xc3\xbc", true}, {"\xe2\x82\xac", true},
		{"\xf0\x9f\x98\x80", true}, {"../..", true}, {"", false}, {"\x80", false},
		{"\xc3", false}, {"\xc0\xaf", false}, {"\xe0\x80\xaf", false},
		{"\xed\xa0\x80", false}, {"\xf4\x90\x80\x80", false},
		{"\xf8\x88\x80\x80\x80", false}, {"\xe2\x82", false}, {"\xf0\x9f\x98", false},
		{"\xf0\x80\x80\xaf", false}};
	char key[1026];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_row(
			(s3_key_problem(rows[i].key, strlen(rows[i].key)) == NULL) == rows[i].good,
			rows[i].key);
	memset(key, 'k', sizeof(key));
	assert_null(s3_key_problem(key, 1024));
	assert_non_null(s3_key_problem(key, 1025));
	assert_non_null(s3_key_problem("a\0b", 3));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_byte_is_encoded_as_aws_signs_it_and_comes_back),
		cmocka_unit_test(slash_and_plus_depend_on_the_place),
		cmocka_unit_test(broken_escapes_are_refused),
		cmocka_unit_test(exactly_fitting_text_is_accepted),
		cmocka_unit_test(a_query_is_split_as_it_came),
		cmocka_unit_test(a_parameter_is_found_and_decoded),
		cmocka_unit_test(a_query_is_valid_if_it_can_be_decoded),
		cmocka_unit_test(parameters_are_added_encoded),
		cmocka_unit_test(s3_addresses_are_taken_apart_and_put_together),
		cmocka_unit_test(bucket_names_follow_the_rules_of_s3),
		cmocka_unit_test(keys_are_utf8_of_at_most_a_kilobyte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
