/* Forms of browsers: their multipart bodies, and the policies that allow them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <penstock/error.h>

#include "base/limits.h"
#include "server/form/multipart.h"
#include "server/form/policy.h"

/* --- multipart ------------------------------------------------------------------------------- */

#define TYPE	   "multipart/form-data; boundary=b"
#define HEAD(rest) "--b\r\nContent-Disposition: form-data; " rest "\r\n\r\n"

static int on_field(
	void *cookie, const char *name, const char *value, size_t len, struct penstock_error *err)
{
	(void)err;
	assert_int_equal(strlen(value), len);
	buf_printf(cookie, "[%s=%s]", name, value);
	return 0;
}

static int on_file(void *cookie, const char *name, struct penstock_error *err)
{
	(void)err;
	buf_printf(cookie, "<%s>", name);
	return 0;
}

static int on_data(void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	(void)err;
	return buf_add(cookie, data, len);
}

static const struct multipart_events events = {.field = on_field, .file = on_file, .data = on_data};

/* Parses a body in pieces of `piece` bytes, and returns the result. */
static int parse(const char *type, const char *body, size_t len, size_t piece, struct buf *log)
{
	struct multipart_events mine = events;
	struct multipart m;
	int rc = 0;

	mine.cookie = log;
	assert_int_equal(multipart_init(&m, type, &mine, NULL), 0);
	for (size_t at = 0; rc == 0 && at < len; at += piece)
		rc = multipart_feed(&m, body + at, len - at < piece ? len - at : piece, NULL);
	if (rc == 0)
		rc = multipart_finish(&m, NULL);
	multipart_release(&m);
	return rc;
}

static void a_body_in_any_pieces_has_the_same_parts(void **state)
{
	static const struct {
		const char *body, *log;
	} rows[] = {
		{HEAD("name=\"a\"") "1\r\n" HEAD("name=\"b\"") "2\r\n--b--\r\n", "[a=1][b=2]"},
		{HEAD("name=a") "\r\n--b--", "[a=]"},
		{"\r\n" HEAD("name=a") "1\r\n--b--epilogue", "[a=1]"},
		{"preamble\r\n" HEAD("name=a") "1\r\n--b--", "[a=1]"},
		{HEAD("name=\"file\"; filename=\"x y\"") "text\r\n--b--", "<x y>text"},
		{HEAD("NAME=\"File\"") "\r\n\r\n--b--", "<>\r\n"},
		{HEAD("name=file") "\r\n--\r\n--\r\r\n--b--", "<>\r\n--\r\n--\r"},
		{HEAD("name=file") "1\r\n" HEAD("name=late") "2\r\n--b--", "<>1"},
		{HEAD("name=file") "1\r\n" HEAD("name=file") "2\r\n--b--", "<>1<>2"},
		{HEAD("name=\"q\\\"\\\\w\"; filename=\"C:\\d\"") "1\r\n--b--", "[q\"\\w=1]"},
		{"--b \t\r\ncontent-type: x\r\ncontent-disposition:form-data;name=a;size=3\r\n\r\n1"
		 "\r\n--b--",
			"[a=1]"},
		{"--b--", ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		size_t len = strlen(rows[i].body);

		for (size_t piece = 1; piece <= len; piece++) {
			struct buf log = BUF_INIT(1000);

			assert_int_equal(parse(TYPE, rows[i].body, len, piece, &log), 0);
			assert_string_equal(buf_str(&log), rows[i].log);
			buf_release(&log);
		}
	}
}

static void a_malformed_body_is_refused(void **state)
{
	static const char *const rows[] = {"", "text", HEAD("name=a") "1",
		HEAD("name=a") "1\r\n--b", HEAD("name=a") "1\r\n--bc\r\n",
		HEAD("name=a") "1\r\n--b- -",
		"--b\nContent-Disposition: form-data; name=a\n\n1\n--b--",
		"--b\r\nContent-Disposition: form-data; name=a\nx: y\r\n\r\n1\r\n--b--",
		"--b\r\nContent-Disposition: form-data;\r\n name=a\r\n\r\n1\r\n--b--",
		"--b\r\nContent-Disposition: attachment; name=a\r\n\r\n1\r\n--b--",
		"--b\r\nContent-Disposition: form-datas; name=a\r\n\r\n1\r\n--b--",
		"--b\r\nContent-Type: text/plain\r\n\r\n1\r\n--b--",
		"--b\r\nline\r\n\r\n1\r\n--b--", HEAD("filename=a") "1\r\n--b--",
		HEAD("name=a; name=b") "1\r\n--b--", HEAD("name=\"a") "1\r\n--b--",
		HEAD("name=") "1\r\n--b--", HEAD("name=a b") "1\r\n--b--",
		HEAD("name=a;") "1\r\n--b--",
		HEAD("name=a\r\nContent-Disposition: form-data; name=b") "1\r\n--b--"};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (size_t piece = 1; piece < 100; piece += 98) {
			struct buf log = BUF_INIT(1000);

			print_message("%s\n", rows[i]);
			assert_int_equal(parse(TYPE, rows[i], strlen(rows[i]), piece, &log),
				-PENSTOCK_E_PROTOCOL);
			buf_release(&log);
		}
	}
}

static void a_part_with_a_control_character_in_its_head_is_refused(void **state)
{
	char body[] = "--b\r\nx-a: 1?2\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--b--";
	char *at = strchr(body, '?');

	(void)state;
	for (int c = 0; c < 256; c++) {
		bool is_allowed = c == '\t' || (c >= ' ' && c != 0x7f);
		struct buf log = BUF_INIT(1000);

		*at = (char)c;
		assert_int_equal(parse(TYPE, body, sizeof(body) - 1, sizeof(body), &log),
			is_allowed ? 0 : -PENSTOCK_E_PROTOCOL);
		buf_release(&log);
	}
}

static void a_content_type_has_a_valid_boundary(void **state)
{
	static const struct {
		const char *type;
		bool is_form, valid;
	} rows[] = {
		{"multipart/form-data; boundary=b", true, true},
		{"Multipart/Form-Data;charset=x;BOUNDARY=\"a b\"", true, true},
		{"multipart/form-data; boundary=\"1234567890123456789012345678901234567890"
		 "123456789012345678901234567890\"",
			true, true},
		{"multipart/form-data; boundary=\"1234567890123456789012345678901234567890"
		 "1234567890123456789012345678901\"",
			true, false},
		{"multipart/form-data", true, false},
		{"multipart/form-data; boundary=", true, false},
		{"multipart/form-data; boundary=\"\"", true, false},
		{"multipart/form-data; boundary=\"a \"", true, false},
		{"multipart/form-data; boundary=\"a\tb\"", true, false},
		{"multipart/form-data; boundary=a; boundary=b", true, false},
		{"multipart/form-data boundary=a", true, false},
		{"multipart/form-datas; boundary=b", false, false},
		{"multipart/mixed; boundary=b", false, false},
		{"", false, false},
	};

	(void)state;
	assert_false(multipart_is_form(NULL));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct multipart m;

		print_message("%s\n", rows[i].type);
		assert_int_equal(multipart_is_form(rows[i].type), rows[i].is_form);
		assert_int_equal(
			multipart_init(&m, rows[i].type, &events, NULL) == 0, rows[i].valid);
		multipart_release(&m);
	}
}

/* The bytes before and after the file have a limit, so that no client can fill the memory. The
 * parser does not limit the size of the file. */
static void a_form_is_bounded_before_and_after_its_file(void **state)
{
	static char text[4 * LIMIT_FORM];
	static const struct {
		const char *before, *after;
		size_t fill;
		int rc;
	} rows[] = {
		{HEAD("name=file"), "\r\n--b--", 3 * LIMIT_FORM, 0},
		{HEAD("name=a"), "\r\n--b--", LIMIT_FORM - 100, 0},
		{HEAD("name=a"), "\r\n--b--", LIMIT_FORM, -PENSTOCK_E_LIMIT},
		{HEAD("name=file") "\r\n" HEAD("name=a"), "\r\n--b--", LIMIT_FORM,
			-PENSTOCK_E_LIMIT},
		{HEAD("name=file") "\r\n--b--", "", LIMIT_FORM, -PENSTOCK_E_LIMIT},
		{"--b\r\n", "", LIMIT_FORM, -PENSTOCK_E_LIMIT},
		{"", "", LIMIT_FORM + 1, -PENSTOCK_E_LIMIT},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct buf log = BUF_INIT(sizeof(text));
		size_t n = strlen(rows[i].before);

		memcpy(text, rows[i].before, n);
		memset(text + n, 'x', rows[i].fill);
		n += rows[i].fill;
		memcpy(text + n, rows[i].after, strlen(rows[i].after));
		n += strlen(rows[i].after);
		assert_int_equal(parse(TYPE, text, n, 1000, &log), rows[i].rc);
		buf_release(&log);
	}
}

static void a_form_has_a_hundred_fields_at_most(void **state)
{
	(void)state;
	for (int n = LIMIT_FORM_FIELDS; n <= LIMIT_FORM_FIELDS + 1; n++) {
		struct buf body = BUF_INIT(100000), log = BUF_INIT(100000);

		for (int i = 0; i < n; i++)
			buf_printf(&body, HEAD("name=f%d") "\r\n", i);
		buf_add_str(&body, "--b--");
		assert_int_equal(parse(TYPE, body.data, body.len, 100, &log),
			n == LIMIT_FORM_FIELDS ? 0 : -PENSTOCK_E_LIMIT);
		buf_release(&body);
		buf_release(&log);
	}
}

/* --- policies -------------------------------------------------------------------------------- */

#define UNTIL	       "\"expiration\":\"2030-01-01T00:00:00Z\""
#define POLICY(inside) "{" UNTIL ",\"conditions\":[" inside "]}"

static enum s3_error check(const char *json, struct policy_sizes *sizes)
{
	static const struct policy_field fields[] = {{"key", "user/a"},
		{"content-type", "a/b, a/c"}, {"policy", "x"}, {"x-amz-signature", "x"},
		{"x-ignore-me", "x"}};
	const struct policy_form form = {.fields = fields,
		.n = sizeof(fields) / sizeof(fields[0]),
		.bucket = "b",
		.now_ns = INT64_C(1700000000000000000)};
	struct buf message = BUF_INIT(10000);
	enum s3_error problem = policy_check(json, strlen(json), &form, sizes, &message);

	print_message("%s: %s\n", json, buf_str(&message));
	assert_true((problem == S3_OK) == (message.len == 0));
	buf_release(&message);
	return problem;
}

static void a_policy_allows_what_its_conditions_say(void **state)
{
#define FIELDS "[\"starts-with\",\"$key\",\"\"],[\"starts-with\",\"$Content-Type\",\"a/\"]"
#define BUCKET ",{\"bucket\":\"b\"}"
#define REST   FIELDS BUCKET
	static const struct {
		const char *json;
		enum s3_error problem;
	} rows[] = {
		{POLICY(REST), S3_OK},
		{POLICY("{\"KEY\":\"user/a\"},[\"eq\",\"$content-type\",\"a/b, a/c\"]" BUCKET),
			S3_OK},
		{POLICY(FIELDS ",[\"EQ\",\"$Bucket\",\"b\"]"), S3_OK},
		{POLICY(FIELDS), S3_E_ACCESS_DENIED},
		{POLICY(REST ",[\"starts-with\",\"\\$key\",\"user\"]"), S3_OK},
		{POLICY(REST ",[\"starts-with\",\"$key\",\"\\v\"]"), S3_E_ACCESS_DENIED},
		{POLICY(REST ",[\"starts-with\",\"$key\",\"\\\\$\"]"), S3_E_ACCESS_DENIED},
		{POLICY(REST ",[\"starts-with\",\"$key\",\"\\q\"]"), S3_E_INVALID_POLICY_DOCUMENT},
		{POLICY(REST ",[\"starts-with\",\"$x-amz-meta-none\",\"\"]"), S3_OK},
		{POLICY(REST ",{\"bucket\":\"c\"}"), S3_E_ACCESS_DENIED},
		{POLICY(REST ",{\"acl\":\"private\"}"), S3_E_ACCESS_DENIED},
		{POLICY(REST ",[\"starts-with\",\"$key\",\"User\"]"), S3_E_ACCESS_DENIED},
		{POLICY(REST ",[\"starts-with\",\"$content-type\",\"a/b\"]"), S3_E_ACCESS_DENIED},
		{POLICY("{\"key\":\"user/a\"}"), S3_E_ACCESS_DENIED},
		{POLICY(""), S3_E_ACCESS_DENIED},
		{"{\"expiration\":\"2020-01-01T00:00:00Z\",\"conditions\":[]}", S3_E_ACCESS_DENIED},
		{"", S3_E_INVALID_POLICY_DOCUMENT},
		{"[]", S3_E_INVALID_POLICY_DOCUMENT},
		{"{" UNTIL "}", S3_E_INVALID_POLICY_DOCUMENT},
		{"{" UNTIL ",\"CONDITIONS\":[]}", S3_E_INVALID_POLICY_DOCUMENT},
		{"{" UNTIL ",\"conditions\":{}}", S3_E_INVALID_POLICY_DOCUMENT},
		{"{\"conditions\":[]}", S3_E_INVALID_POLICY_DOCUMENT},
		{"{\"expiration\":\"soon\",\"conditions\":[]}", S3_E_INVALID_POLICY_DOCUMENT},
		{"{\"expiration\":9,\"conditions\":[]}", S3_E_INVALID_POLICY_DOCUMENT},
		{POLICY("{}"), S3_E_INVALID_POLICY_DOCUMENT},
		{POLICY("{\"a\":\"b\",\"c\":\"d\"}"), S3_E_INVALID_POLICY_DOCUMENT},
		{POLICY("{\"a\":1}"), S3_E_INVALID_POLICY_DOCUMENT},
		{POLICY("[]"), S3_E_INVALID_POLICY_DOCUMENT},
		{POLICY("[\"eq\",\"$a\"]"), S3_E_INVALID_POLICY_DOCUMENT},
		{POLICY("[\"eq\",\"$a\",\"b\",\"c\"]"), S3_E_INVALID_POLICY_DOCUMENT},
		{POLICY("[\"eq\",\"a\",\"b\"]"), S3_E_INVALID_POLICY_DOCUMENT},
		{POLICY("[\"eq\",\"$\",\"b\"]"), S3_E_INVALID_POLICY_DOCUMENT},
		{POLICY("[\"eq\",\"$a\",1]"), S3_E_INVALID_POLICY_DOCUMENT},
		{POLICY("[\"content-length-range\",2,1]"), S3_E_INVALID_POLICY_DOCUMENT},
		{POLICY("[\"content-length-range\",-1,1]"), S3_E_INVALID_POLICY_DOCUMENT},
		{POLICY("[\"content-length-range\",1.5,2]"), S3_E_INVALID_POLICY_DOCUMENT},
		/* A mistake in the policy document is reported before a field that does not
		 * match. */
		{POLICY("{\"key\":\"other\"},{}"), S3_E_INVALID_POLICY_DOCUMENT},
	};
	struct policy_sizes sizes;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(check(rows[i].json, &sizes), rows[i].problem);
}

static void all_ranges_of_a_policy_hold(void **state)
{
	struct policy_sizes sizes;

	(void)state;
	assert_int_equal(check(POLICY(REST), &sizes), S3_OK);
	assert_true(sizes.min == 0 && sizes.max == UINT64_MAX);
	assert_int_equal(check(POLICY(REST ",[\"content-length-range\",1,\"20\"],"
					   "[\"content-length-range\",\"5\",30]"),
				 &sizes),
		S3_OK);
	assert_true(sizes.min == 5 && sizes.max == 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_body_in_any_pieces_has_the_same_parts),
		cmocka_unit_test(a_malformed_body_is_refused),
		cmocka_unit_test(a_part_with_a_control_character_in_its_head_is_refused),
		cmocka_unit_test(a_content_type_has_a_valid_boundary),
		cmocka_unit_test(a_form_is_bounded_before_and_after_its_file),
		cmocka_unit_test(a_form_has_a_hundred_fields_at_most),
		cmocka_unit_test(a_policy_allows_what_its_conditions_say),
		cmocka_unit_test(all_ranges_of_a_policy_hold),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
