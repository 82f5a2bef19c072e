/* Notifications: the document, its mistakes, and the events that a rule selects. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/limits.h"
#include "s3/bucket/notification.h"

#define DOCUMENT(text) "<NotificationConfiguration>" text "</NotificationConfiguration>"
#define RULE(text)     "<QueueConfiguration>" text "</QueueConfiguration>"
#define TO	       "<Queue>arn:q</Queue>"
#define EVENT(name)    "<Event>s3:" name "</Event>"
#define FILTER(text)   "<Filter><S3Key>" text "</S3Key></Filter>"
#define IS(name, text) "<FilterRule><Name>" name "</Name><Value>" text "</Value></FilterRule>"

static void a_document_is_written_as_it_was_read(void **state)
{
	static const char *const rows[] = {
		RULE("<Id>a</Id>" TO EVENT("ObjectCreated:*") EVENT("ObjectRemoved:Delete")),
		RULE("<Id>a</Id>" TO EVENT("ObjectCreated:Put")
				FILTER(IS("Prefix", "p/") IS("Suffix", ".x&amp;"))),
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct buf written = BUF_INIT(LIMIT_XML_BODY);
		struct s3_notification rules = {0};
		char xml[1024];

		snprintf(xml, sizeof(xml), DOCUMENT("%s"), rows[i]);
		assert_int_equal(s3_notification_parse(xml, strlen(xml), &rules, NULL), 0);
		s3_notification_write(&written, &rules);
		assert_non_null(strstr(buf_str(&written), rows[i]));
		s3_notification_release(&rules);
		buf_release(&written);
	}
}

static void invalid_rules_are_refused_as_aws_does(void **state)
{
	static const struct {
		const char *xml;
		enum s3_error problem;
	} rows[] = {
		{"<Notification/>", S3_E_MALFORMED_XML},
		{DOCUMENT(RULE(TO)), S3_E_MALFORMED_XML},
		{DOCUMENT(RULE(EVENT("ObjectCreated:*"))), S3_E_MALFORMED_XML},
		{DOCUMENT(RULE(TO EVENT("Nothing"))), S3_E_INVALID_ARGUMENT},
		{DOCUMENT(RULE(TO EVENT("ObjectTagging:*"))), S3_E_NOT_IMPLEMENTED},
		{DOCUMENT(RULE(TO EVENT("ObjectCreated:*") FILTER(IS("Middle", "x")))),
			S3_E_INVALID_ARGUMENT},
		{DOCUMENT(RULE(
			 TO EVENT("ObjectCreated:*") FILTER(IS("prefix", "x") IS("Prefix", "y")))),
			S3_E_INVALID_ARGUMENT},
		{DOCUMENT("<TopicConfiguration><Topic>arn:t</Topic></TopicConfiguration>"),
			S3_E_NOT_IMPLEMENTED},
		{DOCUMENT("<EventBridgeConfiguration></EventBridgeConfiguration>"),
			S3_E_NOT_IMPLEMENTED},
		{DOCUMENT(RULE(TO EVENT("ObjectCreated:*")) RULE(TO EVENT("ObjectCreated:Put"))),
			S3_E_INVALID_ARGUMENT},
		{DOCUMENT(RULE("<Id>a</Id>" TO EVENT("ObjectCreated:Put"))
				 RULE("<Id>a</Id>" TO EVENT("ObjectRemoved:*"))),
			S3_E_INVALID_ARGUMENT},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct s3_notification rules = {0};

		print_message("%s\n", rows[i].xml);
		assert_true(
			s3_notification_parse(rows[i].xml, strlen(rows[i].xml), &rules, NULL) < 0);
		assert_int_equal(rules.refusal.problem, rows[i].problem);
		assert_int_equal(rules.n, 0);
		s3_notification_release(&rules);
	}
}

static void a_rule_means_its_events_and_keys(void **state)
{
	static const char xml[] = DOCUMENT(RULE(TO EVENT("ObjectCreated:*") EVENT(
		"ObjectRemoved:Delete") FILTER(IS("prefix", "a/") IS("suffix", ".c"))));
	static const struct {
		const char *event, *key;
		bool meant;
	} rows[] = {
		{"ObjectCreated:Put", "a/b.c", true},
		{"ObjectCreated:CompleteMultipartUpload", "a/.c", true},
		{"ObjectCreated:Put", "a/b.d", false},
		{"ObjectCreated:Put", "b/b.c", false},
		{"ObjectCreated:Put", "a/c", false},
		{"ObjectRemoved:Delete", "a/b.c", true},
		{"ObjectRemoved:DeleteMarkerCreated", "a/b.c", false},
		{"LifecycleExpiration:Delete", "a/b.c", false},
	};
	struct s3_notification rules = {0};

	(void)state;
	assert_int_equal(s3_notification_parse(xml, strlen(xml), &rules, NULL), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(s3_notification_means(&rules.rules[0], rows[i].event, rows[i].key),
			rows[i].meant);
	s3_notification_release(&rules);
}

static void repeated_events_count_once(void **state)
{
	struct buf xml = BUF_INIT(LIMIT_XML_BODY), written = BUF_INIT(LIMIT_XML_BODY);
	struct s3_notification rules = {0};

	(void)state;
	buf_add_str(&xml, "<NotificationConfiguration><QueueConfiguration><Id>a</Id>" TO);
	for (int i = 0; i < 1000; i++)
		buf_add_str(&xml, EVENT("ObjectCreated:Put") EVENT("ObjectRemoved:*"));
	buf_add_str(&xml, "</QueueConfiguration></NotificationConfiguration>");

	assert_int_equal(s3_notification_parse(buf_str(&xml), xml.len, &rules, NULL), 0);
	s3_notification_write(&written, &rules);

	assert_int_equal(rules.rules[0].events.n, 2);
	assert_non_null(strstr(buf_str(&written),
		RULE("<Id>a</Id>" TO EVENT("ObjectCreated:Put") EVENT("ObjectRemoved:*"))));
	s3_notification_release(&rules);
	buf_release(&written);
	buf_release(&xml);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_document_is_written_as_it_was_read),
		cmocka_unit_test(invalid_rules_are_refused_as_aws_does),
		cmocka_unit_test(a_rule_means_its_events_and_keys),
		cmocka_unit_test(repeated_events_count_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
