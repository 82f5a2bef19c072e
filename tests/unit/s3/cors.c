/* CORS rules: their document, its mistakes, and the rule that matches a request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/limits.h"
#include "s3/bucket/cors.h"

#define RULE(text) "<CORSConfiguration><CORSRule>" text "</CORSRule></CORSConfiguration>"
#define LEAST	   "<AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod>"

static void a_document_is_read_and_written(void **state)
{
	static const char xml[] = RULE(
		"<ID>one</ID><AllowedOrigin>http://a</AllowedOrigin><AllowedOrigin>*.b"
		"</AllowedOrigin><AllowedMethod>GET</AllowedMethod><AllowedMethod>PUT"
		"</AllowedMethod><AllowedHeader>x-*</AllowedHeader><ExposeHeader>ETag"
		"</ExposeHeader><MaxAgeSeconds>3000</MaxAgeSeconds>");
	struct buf again = BUF_INIT(LIMIT_XML_BODY);
	struct s3_cors cors = {0}, back = {0};

	(void)state;
	assert_int_equal(s3_cors_parse(xml, strlen(xml), &cors, NULL), 0);
	s3_cors_write(&again, &cors);
	assert_int_equal(s3_cors_parse(again.data, again.len, &back, NULL), 0);

	assert_int_equal(back.n, 1);
	assert_string_equal(back.rules[0].id, "one");
	assert_string_equal(back.rules[0].max_age, "3000");
	assert_int_equal(back.rules[0].origins.n, 2);
	assert_string_equal(back.rules[0].origins.items[1], "*.b");
	assert_string_equal(back.rules[0].methods.items[1], "PUT");
	assert_string_equal(back.rules[0].headers.items[0], "x-*");
	assert_string_equal(back.rules[0].exposed.items[0], "ETag");
	s3_cors_release(&cors);
	s3_cors_release(&back);
	buf_release(&again);
}

static void invalid_rules_are_refused_by_name(void **state)
{
	static const struct {
		const char *xml;
		enum s3_error problem;
	} rows[] = {
		{"<CORSConfiguration></CORSConfiguration>", S3_E_MALFORMED_XML},
		{"<Cors></Cors>", S3_E_MALFORMED_XML},
		{RULE("<AllowedMethod>GET</AllowedMethod>"), S3_E_MALFORMED_XML},
		{RULE("<AllowedOrigin>*</AllowedOrigin>"), S3_E_MALFORMED_XML},
		{RULE(LEAST "<AllowedOrigin></AllowedOrigin>"), S3_E_MALFORMED_XML},
		{RULE(LEAST "<MaxAgeSeconds>-1</MaxAgeSeconds>"), S3_E_MALFORMED_XML},
		{RULE(LEAST "<MaxAgeSeconds>soon</MaxAgeSeconds>"), S3_E_MALFORMED_XML},
		{RULE(LEAST "<ExposeHeader>a&#10;b</ExposeHeader>"), S3_E_MALFORMED_XML},
		{RULE(LEAST "<ExposeHeader>x-*</ExposeHeader>"), S3_E_INVALID_REQUEST},
		{RULE(LEAST "<AllowedMethod>OPTIONS</AllowedMethod>"), S3_E_INVALID_REQUEST},
		{RULE(LEAST "<AllowedMethod>get</AllowedMethod>"), S3_E_INVALID_REQUEST},
		{RULE(LEAST "<AllowedOrigin>*.*</AllowedOrigin>"), S3_E_INVALID_REQUEST},
		{RULE(LEAST "<AllowedHeader>*-*</AllowedHeader>"), S3_E_INVALID_REQUEST},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct s3_cors cors = {0};

		print_message("%s\n", rows[i].xml);
		assert_true(s3_cors_parse(rows[i].xml, strlen(rows[i].xml), &cors, NULL) < 0);
		assert_int_equal(cors.refusal.problem, rows[i].problem);
		assert_true((rows[i].problem == S3_E_INVALID_REQUEST) ==
			    (*cors.refusal.message != '\0'));
		assert_int_equal(cors.n, 0);
		s3_cors_release(&cors);
	}
}

/* AWS also allows a hundred rules. A single rule may have more than a hundred headers. */
static void a_bucket_has_a_hundred_rules_at_most(void **state)
{
	(void)state;
	for (int n = 100; n <= 101; n++) {
		struct buf xml = BUF_INIT(LIMIT_XML_BODY);
		struct s3_cors cors = {0};

		buf_add_str(&xml, "<CORSConfiguration>");
		for (int i = 0; i < n; i++) {
			buf_add_str(&xml, "<CORSRule>" LEAST);
			for (int k = 0; i == 0 && k < 200; k++)
				buf_printf(&xml, "<AllowedHeader>h%d</AllowedHeader>", k);
			buf_add_str(&xml, "</CORSRule>");
		}
		buf_add_str(&xml, "</CORSConfiguration>");
		assert_int_equal(s3_cors_parse(xml.data, xml.len, &cors, NULL) == 0, n == 100);
		if (n == 100) {
			assert_int_equal(cors.rules[0].headers.n, 200);
			assert_string_equal(cors.rules[0].headers.items[199], "h199");
		}
		s3_cors_release(&cors);
		buf_release(&xml);
	}
}

static void the_first_matching_rule_counts(void **state)
{
	static const char xml[] =
		"<CORSConfiguration>"
		"<CORSRule><ID>suffix</ID><AllowedOrigin>*suffix</AllowedOrigin>"
		"<AllowedMethod>GET</AllowedMethod></CORSRule>"
		"<CORSRule><ID>both</ID><AllowedOrigin>start*end</AllowedOrigin>"
		"<AllowedMethod>GET</AllowedMethod><AllowedMethod>PUT</AllowedMethod>"
		"<AllowedHeader>x-amz-*</AllowedHeader>"
		"<AllowedHeader>Range</AllowedHeader></CORSRule>"
		"<CORSRule><ID>exact</ID><AllowedOrigin>http://a:80</AllowedOrigin>"
		"<AllowedMethod>PUT</AllowedMethod><AllowedHeader>*</AllowedHeader></CORSRule>"
		"<CORSRule><ID>all</ID><AllowedOrigin>*</AllowedOrigin>"
		"<AllowedMethod>DELETE</AllowedMethod></CORSRule>"
		"</CORSConfiguration>";
	static const struct {
		const char *origin, *method, *headers;
		const char *id; /* id of the matching rule, or NULL */
	} rows[] = {
		{"foo.suffix", "GET", NULL, "suffix"},
		{"suffix", "GET", "", "suffix"},
		{"foo.suffix", "PUT", NULL, NULL},
		{"foo.suffix", "HEAD", NULL, NULL},
		{"foo.suffix", "GET", "range", NULL},
		{"suffix.foo", "GET", NULL, NULL},
		{"startend", "GET", NULL, "both"},
		{"start1end", "PUT", "X-Amz-Date, range", "both"},
		{"start1end", "PUT", " ,RANGE ,, x-amz-", "both"},
		{"start1end", "PUT", "x-amz-date, ranges", NULL},
		{"stand", "GET", NULL, NULL}, /* prefix and suffix would overlap */
		{"http://a:80", "PUT", "anything, else", "exact"},
		{"http://a", "PUT", NULL, NULL},
		{"HTTP://A:80", "PUT", NULL, NULL},
		{"null", "DELETE", NULL, "all"},
	};
	struct s3_cors cors = {0};

	(void)state;
	assert_int_equal(s3_cors_parse(xml, strlen(xml), &cors, NULL), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct s3_cors_request req = {
			rows[i].origin, rows[i].method, rows[i].headers};
		const char *origin = NULL;
		const struct s3_cors_rule *rule = s3_cors_match(&cors, &req, &origin);

		print_message("%s %s %s\n", rows[i].origin, rows[i].method,
			rows[i].headers ? rows[i].headers : "-");
		assert_true(!rule == !rows[i].id);
		if (!rule)
			continue;
		assert_string_equal(rule->id, rows[i].id);
		assert_string_equal(origin, strcmp(rule->id, "all") == 0 ? "*" : rows[i].origin);
	}
	s3_cors_release(&cors);
}

static void names_are_joined_in_lower_case(void **state)
{
	struct buf out = BUF_INIT(100);

	(void)state;
	s3_cors_join_names(&out, " X-Amz-Date,,range ,\tA b,");
	assert_string_equal(buf_str(&out), "x-amz-date, range, a b");
	buf_release(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_document_is_read_and_written),
		cmocka_unit_test(invalid_rules_are_refused_by_name),
		cmocka_unit_test(a_bucket_has_a_hundred_rules_at_most),
		cmocka_unit_test(the_first_matching_rule_counts),
		cmocka_unit_test(names_are_joined_in_lower_case),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
