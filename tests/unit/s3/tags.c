/* Tags: the query, the document and the rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "s3/message/tags.h"

static enum s3_error check(const char *query, size_t most)
{
	struct s3_tagging tags = {0};
	const char *message;
	enum s3_error problem;

	assert_int_equal(s3_tagging_parse_query(query, &tags, NULL), 0);
	problem = s3_tagging_check(&tags, most, &message);
	assert_int_equal(problem != S3_OK, message != NULL);
	s3_tagging_release(&tags);
	return problem;
}

static void a_query_and_a_document_are_the_same_tags(void **state)
{
	static const char query[] = "a%20b=c%2B&d=&%C3%BC=%3D%26";
	_cleanup_(buf_release) struct buf text = BUF_INIT(1000), xml = BUF_INIT(1000);
	struct s3_tagging tags = {0}, back = {0};

	(void)state;
	assert_int_equal(s3_tagging_parse_query("d&a+b=c%2b&&%c3%bc=%3d%26", &tags, NULL), 0);
	assert_int_equal(tags.n, 3);
	assert_string_equal(tags.tags[0].key, "a b");
	assert_string_equal(tags.tags[1].value, "");
	s3_tagging_write_query(&text, &tags);
	assert_string_equal(buf_str(&text), query);
	s3_tagging_write(&xml, &tags);
	assert_int_equal(s3_tagging_parse(xml.data, xml.len, &back, NULL), 0);
	buf_clear(&text);
	s3_tagging_write_query(&text, &back);
	assert_string_equal(buf_str(&text), query);
	s3_tagging_release(&tags);
	s3_tagging_release(&back);
	assert_int_equal(s3_tagging_parse_query(NULL, &tags, NULL), 0);
	assert_int_equal(tags.n, 0);
	s3_tagging_release(&tags);
}

static void a_malformed_query_is_refused(void **state)
{
	static const char *const rows[] = {"a=%", "%g0=a", "a=%00", "a=%ff", "%c3=b", "a=\xff"};
	_cleanup_(buf_release) struct buf many = BUF_INIT(10000);
	struct s3_tagging tags = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(
			s3_tagging_parse_query(rows[i], &tags, NULL), -PENSTOCK_E_PROTOCOL);
		assert_null(tags.arena.blocks);
	}
	for (int i = 0; i <= S3_TAGS_MAX; i++)
		buf_add_str(&many, "a&");
	assert_int_equal(s3_tagging_parse_query(buf_str(&many), &tags, NULL), -PENSTOCK_E_PROTOCOL);
}

static void keys_and_values_have_limits(void **state)
{
	char key[129 + 1], value[257 + 3], query[1000];

	(void)state;
	memset(key, 'k', sizeof(key));
	memset(value, 'v', sizeof(value));
	snprintf(query, sizeof(query), "%.128s=%.256s", key, value);
	assert_int_equal(check(query, 1), S3_OK);
	snprintf(query, sizeof(query), "%.129s=v", key);
	assert_int_equal(check(query, 1), S3_E_INVALID_TAG);
	snprintf(query, sizeof(query), "k=%.257s", value);
	assert_int_equal(check(query, 1), S3_E_INVALID_TAG);
	/* A character of 4 bytes in UTF-8 has two units in UTF-16; one of 3 bytes has one. */
	snprintf(query, sizeof(query), "%.126s\xF0\x9F\x98\x80=v", key);
	assert_int_equal(check(query, 1), S3_OK);
	snprintf(query, sizeof(query), "%.127s\xF0\x9F\x98\x80=v", key);
	assert_int_equal(check(query, 1), S3_E_INVALID_TAG);
	snprintf(query, sizeof(query), "%.127s\xE2\x82\xAC=v", key);
	assert_int_equal(check(query, 1), S3_OK);
}

static void each_rule_has_its_error(void **state)
{
	static const struct {
		const char *query;
		enum s3_error problem;
	} rows[] = {
		{"", S3_OK},
		{"a", S3_OK},
		{"a&b", S3_OK},
		{"a&b&c", S3_E_BAD_REQUEST},
		{"a&b&a", S3_E_INVALID_TAG},
		{"=a", S3_E_INVALID_TAG},
		{"a=%26", S3_E_INVALID_TAG},
		{"a%0A", S3_E_INVALID_TAG},
		{"a=%C2%85", S3_E_INVALID_TAG},
		{"a=%C2%A0", S3_OK},
		{"aws:a", S3_E_INVALID_TAG},
		{"a%20%2B-=%3D._:/@", S3_OK},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		print_message("%s\n", rows[i].query);
		assert_int_equal(check(rows[i].query, 2), rows[i].problem);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_query_and_a_document_are_the_same_tags),
		cmocka_unit_test(a_malformed_query_is_refused),
		cmocka_unit_test(keys_and_values_have_limits),
		cmocka_unit_test(each_rule_has_its_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
