/* Lifecycle rules: their document, its mistakes, and the expiry times that follow from it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/limits.h"
#include "s3/bucket/lifecycle.h"

#define DOCUMENT(rules) "<LifecycleConfiguration>" rules "</LifecycleConfiguration>"
#define RULE(text)	"<Rule><Status>Enabled</Status>" text "</Rule>"
#define ONE(text)	DOCUMENT(RULE(text))
#define ALL		"<Filter/>"
#define DAYS(n)		"<Expiration><Days>" n "</Days></Expiration>"
#define TAG(k, v)	"<Tag><Key>" k "</Key><Value>" v "</Value></Tag>"
#define NONCURRENT(t)	"<NoncurrentVersionExpiration>" t "</NoncurrentVersionExpiration>"
#define UPLOAD(n)                                                                                  \
	"<AbortIncompleteMultipartUpload><DaysAfterInitiation>" n                                  \
	"</DaysAfterInitiation></AbortIncompleteMultipartUpload>"

static struct s3_lifecycle parsed(const char *xml)
{
	struct s3_lifecycle rules = {0};

	if (s3_lifecycle_parse(xml, strlen(xml), &rules, NULL) < 0)
		fail_msg("%s: %s", xml, rules.refusal.message);
	return rules;
}

/* A rule as the store writes it. */
#define WRITTEN(conditions, actions)                                                               \
	"<Rule><ID>a</ID>" conditions "<Status>Enabled</Status>" actions "</Rule>"

static void a_document_is_written_as_it_was_read(void **state)
{
	static const char *const rows[] = {
		WRITTEN("<Prefix>old/</Prefix>", DAYS("3")),
		WRITTEN("<Filter></Filter>",
			"<Expiration><Date>2030-01-01T00:00:00.000Z</Date></Expiration>"),
		WRITTEN("<Filter></Filter>", "<Expiration><Date>9999-01-01</Date></Expiration>"),
		WRITTEN("<Filter><Prefix>p&amp;q</Prefix></Filter>",
			"<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker>"
			"</Expiration>"),
		WRITTEN("<Filter>" TAG("k", "v w") "</Filter>", DAYS("1")),
		WRITTEN("<Filter><And><Prefix>p</Prefix>" TAG("k", "v") TAG("l",
				"") "<ObjectSizeGreaterThan>5</ObjectSizeGreaterThan>"
				    "<ObjectSizeLessThan>9</ObjectSizeLessThan></And></Filter>",
			NONCURRENT("<NoncurrentDays>4</NoncurrentDays><NewerNoncurrentVersions>2"
				   "</NewerNoncurrentVersions>")),
		WRITTEN("<Filter></Filter>", UPLOAD("7")),
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct buf written = BUF_INIT(LIMIT_XML_BODY);
		struct s3_lifecycle rules;
		char xml[1024];

		snprintf(xml, sizeof(xml), DOCUMENT("%s"), rows[i]);
		rules = parsed(xml);
		s3_lifecycle_write(&written, &rules);
		assert_non_null(strstr(buf_str(&written), rows[i]));
		s3_lifecycle_release(&rules);
		buf_release(&written);
	}
}

static void invalid_rules_are_refused_as_aws_does(void **state)
{
	static const struct {
		const char *xml;
		enum s3_error problem;
	} rows[] = {
		{DOCUMENT(""), S3_E_MALFORMED_XML},
		{"<Lifecycle/>", S3_E_MALFORMED_XML},
		{DOCUMENT("<Rule>" ALL DAYS("1") "</Rule>"), S3_E_MALFORMED_XML},
		{DOCUMENT("<Rule><Status>enabled</Status>" ALL DAYS("1") "</Rule>"),
			S3_E_MALFORMED_XML},
		{ONE(DAYS("1")), S3_E_MALFORMED_XML},
		{ONE(ALL "<Prefix></Prefix>" DAYS("1")), S3_E_MALFORMED_XML},
		{ONE(ALL), S3_E_INVALID_REQUEST},
		{ONE(ALL "<Expiration/>"), S3_E_MALFORMED_XML},
		{ONE(ALL DAYS("x")), S3_E_MALFORMED_XML},
		{ONE(ALL DAYS("0")), S3_E_INVALID_ARGUMENT},
		{ONE(ALL DAYS("-1")), S3_E_INVALID_ARGUMENT},
		{ONE(ALL "<Expiration><Days>1</Days><Date>2030-01-01</Date></Expiration>"),
			S3_E_MALFORMED_XML},
		{ONE(ALL "<Expiration><Date>20300101</Date></Expiration>"), S3_E_MALFORMED_XML},
		{ONE(ALL "<Expiration><Date>2030-01-01T01:00:00Z</Date></Expiration>"),
			S3_E_INVALID_ARGUMENT},
		{ONE(ALL NONCURRENT("")), S3_E_MALFORMED_XML},
		{ONE(ALL NONCURRENT("<NoncurrentDays>0</NoncurrentDays>")), S3_E_INVALID_ARGUMENT},
		{ONE(ALL NONCURRENT("<NoncurrentDays>1</NoncurrentDays>"
				    "<NewerNoncurrentVersions>101</NewerNoncurrentVersions>")),
			S3_E_INVALID_ARGUMENT},
		{ONE("<Prefix/>" NONCURRENT(
			 "<NoncurrentDays>1</NoncurrentDays>"
			 "<NewerNoncurrentVersions>1</NewerNoncurrentVersions>")),
			S3_E_INVALID_REQUEST},
		{ONE(ALL UPLOAD("0")), S3_E_INVALID_ARGUMENT},
		{ONE("<Filter>" TAG("a", "b") "</Filter>" UPLOAD("1")), S3_E_INVALID_REQUEST},
		{ONE("<Filter><ObjectSizeLessThan>5</ObjectSizeLessThan></Filter>" UPLOAD("1")),
			S3_E_INVALID_REQUEST},
		{ONE("<Filter>" TAG("a", "b") "</Filter><Expiration><ExpiredObjectDeleteMarker>"
					      "true</ExpiredObjectDeleteMarker></Expiration>"),
			S3_E_INVALID_REQUEST},
		{ONE("<Filter><And>" TAG("a", "b") TAG("a", "c") "</And></Filter>" DAYS("1")),
			S3_E_INVALID_REQUEST},
		{ONE("<Filter><And>" TAG("a", "") TAG("b", "") TAG("c", "") TAG("d", "")
				 TAG("e", "") TAG("f", "") TAG("g", "") TAG("h", "") TAG("i", "")
					 TAG("j", "") TAG("k", "") "</And></Filter>" DAYS("1")),
			S3_E_INVALID_REQUEST},
		{ONE("<Filter><Tag><Key>a</Key></Tag></Filter>" DAYS("1")), S3_E_MALFORMED_XML},
		{ONE("<Filter>" TAG("", "b") "</Filter>" DAYS("1")), S3_E_INVALID_TAG},
		{ONE("<Filter><Prefix>a</Prefix><And><Prefix>b</Prefix></And></Filter>" DAYS("1")),
			S3_E_MALFORMED_XML},
		{ONE("<Filter><And><ObjectSizeGreaterThan>5</ObjectSizeGreaterThan>"
		     "<ObjectSizeLessThan>5</ObjectSizeLessThan></And></Filter>" DAYS("1")),
			S3_E_INVALID_REQUEST},
		{ONE(ALL "<Transition><Days>1</Days><StorageClass>GLACIER</StorageClass>"
			 "</Transition>"),
			S3_E_NOT_IMPLEMENTED},
		{ONE(ALL DAYS("3") "<NoncurrentVersionTransition><NoncurrentDays>1"
				   "</NoncurrentDays></NoncurrentVersionTransition>"),
			S3_E_NOT_IMPLEMENTED},
		{ONE(ALL "<Transition><Date>20220927</Date></Transition>"), S3_E_MALFORMED_XML},
		{ONE(ALL "<Transition><Days>1</Days></Transition>"
			 "<Transition><Days>2</Days></Transition>"),
			S3_E_NOT_IMPLEMENTED},
		{ONE(ALL "<Transition><Days>x</Days></Transition>"
			 "<Transition><Days>2</Days></Transition>"),
			S3_E_MALFORMED_XML},
		{ONE(ALL DAYS("1") DAYS("2")), S3_E_MALFORMED_XML},
		{DOCUMENT(RULE("<ID>a</ID>" ALL DAYS("1")) RULE("<ID>a</ID>" ALL DAYS("1"))),
			S3_E_INVALID_ARGUMENT},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct s3_lifecycle rules = {0};

		print_message("%s\n", rows[i].xml);
		assert_true(s3_lifecycle_parse(rows[i].xml, strlen(rows[i].xml), &rules, NULL) < 0);
		assert_int_equal(rules.refusal.problem, rows[i].problem);
		assert_true(rules.refusal.problem == S3_E_MALFORMED_XML || *rules.refusal.message);
		assert_int_equal(rules.n, 0);
		s3_lifecycle_release(&rules);
	}
}

/* AWS counts days from the creation of an object, and rounds up to the next midnight. */
static void objects_end_at_midnight(void **state)
{
	static const struct {
		int64_t modified, days, end; /* in hours */
	} rows[] = {{0, 1, 24}, {1, 1, 48}, {23, 1, 48}, {24, 1, 48}, {25, 1, 72}, {1, 30, 744}};
	const int64_t hour = S3_DAY_NS / 24;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char xml[256];
		struct s3_lifecycle rules;
		struct s3_lifecycle_end end;

		snprintf(xml, sizeof(xml), ONE("<ID>x</ID>" ALL DAYS("%lld")),
			(long long)rows[i].days);
		rules = parsed(xml);
		assert_true(s3_lifecycle_object_end(&rules,
			&(struct s3_lifecycle_object){
				.key = "k", .modified_ns = rows[i].modified * hour},
			S3_DAY_NS, &end));
		assert_int_equal(end.at_ns, rows[i].end * hour);
		assert_string_equal(end.id, "x");
		s3_lifecycle_release(&rules);
	}
}

static void the_earliest_rule_that_means_an_object_counts(void **state)
{
	static const char xml[] = DOCUMENT(RULE("<ID>all</ID>" ALL DAYS("9"))
			RULE("<ID>tag</ID><Filter>" TAG("a b", "c") "</Filter>" DAYS("5"))
				RULE("<ID>size</ID><Filter><And><Prefix>p/</Prefix>"
				     "<ObjectSizeGreaterThan>10</ObjectSizeGreaterThan>"
				     "<ObjectSizeLessThan>12</ObjectSizeLessThan></And>"
				     "</Filter>" DAYS("3")) "<Rule><ID>off</ID><Status>Disabled"
							    "</Status>" ALL DAYS("1") "</Rule>");
	static const struct {
		const char *key;
		uint64_t size;
		const char *tags, *id;
	} rows[] = {
		{"k", 11, NULL, "all"},
		{"k", 11, "a%20b=c", "tag"},
		{"k", 11, "x=y&a%20b=c&z=", "tag"},
		{"k", 11, "a%20b=cd", "all"},
		{"k", 11, "xa%20b=c", "all"},
		{"p/k", 11, "a%20b=c", "size"},
		{"p/k", 10, NULL, "all"},
		{"p/k", 12, NULL, "all"},
	};
	struct s3_lifecycle rules = parsed(xml);

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct s3_lifecycle_end end = {0};

		assert_true(s3_lifecycle_object_end(&rules,
			&(struct s3_lifecycle_object){
				.key = rows[i].key, .size = rows[i].size, .tags = rows[i].tags},
			S3_DAY_NS, &end));
		assert_string_equal(end.id, rows[i].id);
	}
	s3_lifecycle_release(&rules);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_document_is_written_as_it_was_read),
		cmocka_unit_test(invalid_rules_are_refused_as_aws_does),
		cmocka_unit_test(objects_end_at_midnight),
		cmocka_unit_test(the_earliest_rule_that_means_an_object_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
