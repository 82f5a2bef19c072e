/* Access logs: the document, the keys of log objects, the lines, and the names of operations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/limits.h"
#include "s3/date.h"
#include "s3/bucket/logging.h"

#define ON(text)                                                                                   \
	"<BucketLoggingStatus><LoggingEnabled>" text "</LoggingEnabled></BucketLoggingStatus>"
#define TO	"<TargetBucket>t</TargetBucket><TargetPrefix>p/</TargetPrefix>"
#define FORM(t) "<TargetObjectKeyFormat>" t "</TargetObjectKeyFormat>"

static int64_t at(const char *iso)
{
	int64_t ns = 0;

	assert_true(date_parse_iso(iso, &ns));
	return ns;
}

static void keys_have_the_form_of_the_document(void **state)
{
	static const struct {
		const char *xml, *key;
	} rows[] = {
		{ON(TO), "p/2026-02-03-04-05-06-U"},
		{ON(TO FORM("<SimplePrefix/>")), "p/2026-02-03-04-05-06-U"},
		{ON(TO FORM("<PartitionedPrefix><PartitionDateSource>DeliveryTime"
			    "</PartitionDateSource></PartitionedPrefix>")),
			"p/123/here/src/2026/02/03/2026-02-03-04-05-06-U"},
		{ON(TO FORM("<PartitionedPrefix><PartitionDateSource>EventTime"
			    "</PartitionDateSource></PartitionedPrefix>")),
			"p/123/here/src/2026/02/03/2026-02-03-00-00-00-U"},
	};
	const struct s3_log_source source = {.account = "123", .region = "here", .bucket = "src"};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct buf key = BUF_INIT(1024), xml = BUF_INIT(LIMIT_XML_BODY);
		struct s3_logging logging = {0}, back = {0};

		assert_int_equal(
			s3_logging_parse(rows[i].xml, strlen(rows[i].xml), &logging, NULL), 0);
		s3_logging_write(&xml, &logging);
		assert_int_equal(s3_logging_parse(xml.data, xml.len, &back, NULL), 0);
		s3_log_key(&key, &back, &source, at("2026-02-03T04:05:06.700Z"), "U");
		assert_string_equal(buf_str(&key), rows[i].key);
		s3_logging_release(&logging);
		s3_logging_release(&back);
		buf_release(&key);
		buf_release(&xml);
	}
}

static void invalid_documents_are_refused(void **state)
{
	static const char *const rows[] = {
		"<Logging/>",
		ON(""),
		ON("<TargetBucket>t</TargetBucket>"),
		ON("<TargetPrefix>p</TargetPrefix>"),
		ON(TO FORM("")),
		ON(TO FORM("<SimplePrefix/><PartitionedPrefix/>")),
		ON(TO FORM("<PartitionedPrefix><PartitionDateSource>Never</PartitionDateSource>"
			   "</PartitionedPrefix>")),
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct s3_logging logging = {0};

		assert_true(s3_logging_parse(rows[i], strlen(rows[i]), &logging, NULL) < 0);
		assert_int_equal(logging.problem, S3_E_MALFORMED_XML);
	}
}

/* No text from a client can end a field or a line. */
static void a_line_has_the_fields_of_aws(void **state)
{
	const struct s3_log_record full = {.owner = "O",
		.bucket = "b",
		.remote = "127.0.0.1",
		.requester = "R",
		.request_id = "I",
		.operation = "REST.GET.OBJECT",
		.key = "a b\xc3\xbc/c",
		.method = "GET",
		.path = "/b/a%20b",
		.query = "x=\"",
		.error = "NoSuchKey",
		.referer = "http://r",
		.user_agent = "a \"b\"\n\\",
		.version = "null",
		.signature = "SigV4",
		.auth_type = "AuthHeader",
		.host = "h:1",
		.tls = "TLSv1.3",
		.time_ns = at("2019-02-06T00:00:38Z"),
		.status = 404,
		.sent = 113,
		.size = 7,
		.total_ms = 5,
		.turn_around_ms = 0,
		.acl_required = true};
	const struct s3_log_record least = {.owner = "O",
		.bucket = "b",
		.method = "GET",
		.path = "/",
		.host = "a b",
		.status = -1,
		.sent = -1,
		.size = -1,
		.total_ms = -1,
		.turn_around_ms = -1};
	struct buf out = BUF_INIT(4096);

	(void)state;
	s3_log_write(&out, &full);
	assert_string_equal(buf_str(&out),
		"O b [06/Feb/2019:00:00:38 +0000] 127.0.0.1 R I REST.GET.OBJECT a%20b%C3%BC/c "
		"\"GET /b/a%20b?x=%22 HTTP/1.1\" 404 NoSuchKey 113 7 5 0 \"http://r\" "
		"\"a %22b%22%0A%5C\" null - SigV4 - AuthHeader h:1 TLSv1.3 - Yes\n");
	buf_clear(&out);
	s3_log_write(&out, &least);
	assert_string_equal(buf_str(&out),
		"O b [01/Jan/1970:00:00:00 +0000] - - - - - \"GET / HTTP/1.1\" - - - - - - "
		"\"-\" \"-\" - - - - - - - - -\n");
	buf_release(&out);
}

static void secrets_of_a_query_are_left_out(void **state)
{
	static const struct {
		const char *query, *logged;
	} rows[] = {
		{"X-Amz-Signature=SECRET&uploads", "X-Amz-Signature=-&uploads"},
		{"a=1&x-amz-security-token=SECRET", "a=1&x-amz-security-token=-"},
		{"Signature=SECRET&Expires=1", "Signature=-&Expires=1"},
		{"x-amz-server-side-encryption-customer-key=SECRET&"
		 "x-amz-server-side-encryption-customer-key-MD5=a",
			"x-amz-server-side-encryption-customer-key=-&"
			"x-amz-server-side-encryption-customer-key-MD5=a"},
		{"x-amz-copy-source-server-side-encryption-customer-key=SECRET",
			"x-amz-copy-source-server-side-encryption-customer-key=-"},
		{"X%2dAmz-Signature=SECRET", "X%2dAmz-Signature=-"},
		{"X-Amz-Signature%=SECRET", "X-Amz-Signature%=-"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct s3_log_record record = {
			.owner = "O", .method = "GET", .path = "/", .query = rows[i].query};
		struct buf out = BUF_INIT(4096), wanted = BUF_INIT(4096);

		s3_log_write(&out, &record);
		buf_printf(&wanted, "\"GET /?%s HTTP/1.1\"", rows[i].logged);
		assert_non_null(strstr(buf_str(&out), buf_str(&wanted)));
		buf_release(&out);
		buf_release(&wanted);
	}
}

static void operations_have_the_names_of_aws(void **state)
{
	static const struct {
		struct s3_log_subject subject;
		const char *name;
	} rows[] = {
		{{"GET", NULL, true, false}, "REST.GET.OBJECT"},
		{{"GET", NULL, false, false}, "REST.GET.BUCKET"},
		{{"GET", "list-type", false, false}, "REST.GET.BUCKET"},
		{{"GET", "versions", false, false}, "REST.GET.BUCKETVERSIONS"},
		{{"PUT", "uploadId", true, false}, "REST.PUT.PART"},
		{{"PUT", "uploadId", true, true}, "REST.COPY.PART"},
		{{"PUT", NULL, true, true}, "REST.COPY.OBJECT"},
		{{"POST", "uploadId", true, false}, "REST.POST.UPLOAD"},
		{{"POST", "uploads", true, false}, "REST.POST.UPLOADS"},
		{{"DELETE", "uploadId", true, false}, "REST.DELETE.UPLOAD"},
		{{"POST", "delete", false, false}, "REST.POST.MULTI_OBJECT_DELETE"},
		{{"PUT", "tagging", true, false}, "REST.PUT.OBJECT_TAGGING"},
		{{"PUT", "tagging", false, false}, "REST.PUT.TAGGING"},
		{{"PUT", "legal-hold", true, false}, "REST.PUT.LEGAL_HOLD"},
		{{"OPTIONS", NULL, true, false}, "REST.OPTIONS.PREFLIGHT"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char name[S3_LOG_OPERATION_SIZE];

		s3_log_operation(&rows[i].subject, name);
		assert_string_equal(name, rows[i].name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_have_the_form_of_the_document),
		cmocka_unit_test(invalid_documents_are_refused),
		cmocka_unit_test(a_line_has_the_fields_of_aws),
		cmocka_unit_test(secrets_of_a_query_are_left_out),
		cmocka_unit_test(operations_have_the_names_of_aws),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
