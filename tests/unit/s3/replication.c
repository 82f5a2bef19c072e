/* Replication rules: the document, its mistakes, and the rule that applies to a version. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/limits.h"
#include "s3/bucket/replication.h"

#define ROLE	       "<Role>arn:aws:iam::1:role/r</Role>"
#define DOCUMENT(text) "<ReplicationConfiguration>" text "</ReplicationConfiguration>"
#define RULE(text)     "<Rule>" text "</Rule>"
#define TO(name)       "<Destination><Bucket>arn:aws:s3:::" name "</Bucket></Destination>"
#define ON	       "<Status>Enabled</Status>"
#define OFF	       "<Status>Disabled</Status>"
#define FIRST	       "<Priority>1</Priority>"
#define MARKERS(state) "<DeleteMarkerReplication>" state "</DeleteMarkerReplication>"
#define ALL	       "<Filter><Prefix></Prefix></Filter>"
#define TAG(key)       "<Tag><Key>" key "</Key><Value>v</Value></Tag>"
#define NEW(number)    "<Priority>" number "</Priority>" ALL ON MARKERS(ON)

static void a_document_is_written_as_it_was_read(void **state)
{
	static const char *const rows[] = {
		RULE("<ID>a</ID><Prefix>p/</Prefix>" ON TO("b")),
		RULE("<ID>a</ID>" FIRST "<Filter></Filter>" OFF MARKERS(OFF) TO("b")),
		RULE("<ID>a</ID>" FIRST "<Filter><And><Prefix>p</Prefix>" TAG("a")
				TAG("b") "</And></Filter>" ON MARKERS(OFF) TO("b")),
		RULE("<ID>a</ID>" FIRST ALL ON "<SourceSelectionCriteria><ReplicaModifications>" OFF
		     "</ReplicaModifications></SourceSelectionCriteria>"
		     "<ExistingObjectReplication>" OFF "</ExistingObjectReplication>" MARKERS(ON)
				TO("b")),
		RULE("<ID>a</ID>" FIRST ALL ON MARKERS(
			ON) "<Destination><Bucket>arn:aws:s3:::b</Bucket>"
			    "<StorageClass>GLACIER</StorageClass></Destination>"),
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct buf written = BUF_INIT(LIMIT_XML_BODY);
		struct s3_replication rules = {0};
		char xml[1024];

		snprintf(xml, sizeof(xml), DOCUMENT(ROLE "%s"), rows[i]);
		assert_int_equal(s3_replication_parse(xml, strlen(xml), &rules, NULL), 0);
		s3_replication_write(&written, &rules);
		assert_non_null(strstr(buf_str(&written), rows[i]));
		assert_non_null(strstr(buf_str(&written), ROLE));
		s3_replication_release(&rules);
		buf_release(&written);
	}
}

static void invalid_rules_are_refused_as_aws_does(void **state)
{
	static const struct {
		const char *xml;
		enum s3_error problem;
	} rows[] = {
		{"<Replication/>", S3_E_MALFORMED_XML},
		{DOCUMENT(ROLE), S3_E_MALFORMED_XML},
		{DOCUMENT(RULE(NEW("1") TO("b"))), S3_E_MALFORMED_XML},
		{DOCUMENT(ROLE RULE(NEW("1"))), S3_E_MALFORMED_XML},
		{DOCUMENT(ROLE RULE(ON TO("b"))), S3_E_MALFORMED_XML},
		{DOCUMENT(ROLE RULE("<Prefix></Prefix>" NEW("1") TO("b"))), S3_E_MALFORMED_XML},
		{DOCUMENT(ROLE RULE("<Prefix></Prefix>" TO("b"))), S3_E_MALFORMED_XML},
		{DOCUMENT(ROLE RULE(NEW("x") TO("b"))), S3_E_MALFORMED_XML},
		{DOCUMENT(ROLE RULE(NEW("-1") TO("b"))), S3_E_MALFORMED_XML},
		{DOCUMENT(ROLE RULE(FIRST "<Filter><Prefix>a</Prefix>" TAG(
			 "a") "</Filter>" ON MARKERS(OFF) TO("b"))),
			S3_E_MALFORMED_XML},
		{DOCUMENT(ROLE RULE(ALL ON MARKERS(ON) TO("b"))), S3_E_INVALID_REQUEST},
		{DOCUMENT(ROLE RULE(FIRST ALL ON TO("b"))), S3_E_INVALID_REQUEST},
		{DOCUMENT(ROLE RULE(FIRST ALL ON MARKERS("<Status>On</Status>") TO("b"))),
			S3_E_MALFORMED_XML},
		{DOCUMENT(ROLE RULE(FIRST "<Filter>" TAG("a") "</Filter>" ON MARKERS(ON) TO("b"))),
			S3_E_INVALID_REQUEST},
		{DOCUMENT(ROLE RULE(FIRST "<Filter><And>" TAG("a")
				 TAG("a") "</And></Filter>" ON MARKERS(OFF) TO("b"))),
			S3_E_INVALID_REQUEST},
		{DOCUMENT(ROLE RULE(NEW("1") TO(""))), S3_E_INVALID_ARGUMENT},
		{DOCUMENT(ROLE RULE(NEW("1") "<Destination><Bucket>b</Bucket></Destination>")),
			S3_E_INVALID_ARGUMENT},
		{DOCUMENT(ROLE RULE(NEW("1") TO("b")) RULE(NEW("1") TO("c"))),
			S3_E_INVALID_REQUEST},
		{DOCUMENT(ROLE RULE("<ID>a</ID>" NEW("1") TO("b"))
				 RULE("<ID>a</ID>" NEW("2") TO("c"))),
			S3_E_INVALID_ARGUMENT},
		{DOCUMENT(ROLE RULE(NEW("1") TO("b")) RULE("<Prefix></Prefix>" ON TO("c"))),
			S3_E_INVALID_REQUEST},
		{DOCUMENT(ROLE RULE("<Prefix></Prefix>" ON FIRST TO("c"))), S3_E_INVALID_REQUEST},
		{DOCUMENT(ROLE RULE(NEW("1") TO("b") "<ExistingObjectReplication>" ON
						     "</ExistingObjectReplication>")),
			S3_E_NOT_IMPLEMENTED},
		{DOCUMENT(
			 ROLE RULE(NEW("1") "<Destination><Bucket>arn:aws:s3:::b</Bucket><Account>1"
					    "</Account></Destination>")),
			S3_E_NOT_IMPLEMENTED},
		{DOCUMENT(ROLE RULE(
			 NEW("1") "<Destination><Bucket>arn:aws:s3:::b</Bucket><Metrics>" ON
				  "</Metrics></Destination>")),
			S3_E_NOT_IMPLEMENTED},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct s3_replication rules = {0};

		print_message("%s\n", rows[i].xml);
		assert_true(
			s3_replication_parse(rows[i].xml, strlen(rows[i].xml), &rules, NULL) < 0);
		assert_int_equal(rules.refusal.problem, rows[i].problem);
		assert_int_equal(rules.n, 0);
		s3_replication_release(&rules);
	}
}

static void the_rule_of_a_version_has_the_highest_priority(void **state)
{
	static const char xml[] = DOCUMENT(ROLE RULE("<ID>all</ID>" NEW("1") TO("b")) RULE(
		"<ID>p</ID><Priority>7</Priority><Filter><Prefix>p/</Prefix></Filter>" ON MARKERS(
			OFF) TO("b"))
			RULE("<ID>tag</ID><Priority>3</Priority><Filter>" TAG(
				"k") "</Filter>" ON MARKERS(OFF) TO("c"))
				RULE("<ID>off</ID><Priority>9</Priority>" ALL OFF MARKERS(ON)
						TO("b")));
	static const struct {
		const char *bucket, *key, *tags;
		bool marker;
		const char *id;
	} rows[] = {
		{"b", "x", NULL, false, "all"},
		{"b", "x", NULL, true, "all"},
		{"b", "p/x", "k=v", false, "p"},
		{"b", "p/x", NULL, true, NULL},
		{"c", "x", "a=b&k=v", false, "tag"},
		{"c", "x", "k=vv", false, NULL},
		{"c", "x", NULL, true, NULL},
		{"d", "x", NULL, false, NULL},
	};
	struct s3_replication rules = {0};

	(void)state;
	assert_int_equal(s3_replication_parse(xml, strlen(xml), &rules, NULL), 0);
	for (size_t i = 0; i < rules.n; i++)
		assert_true(rules.rules[i].first == (i == 0 || i == 2));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct s3_replication_rule *rule = s3_replication_choose(&rules,
			rows[i].bucket,
			&(struct s3_replication_version){.key = rows[i].key,
				.tags = rows[i].tags,
				.marker = rows[i].marker});

		if (rows[i].id)
			assert_string_equal(rule->id, rows[i].id);
		else
			assert_null(rule);
	}
	s3_replication_release(&rules);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_document_is_written_as_it_was_read),
		cmocka_unit_test(invalid_rules_are_refused_as_aws_does),
		cmocka_unit_test(the_rule_of_a_version_has_the_highest_priority),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
