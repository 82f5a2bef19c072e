/* Policies: mistakes, statements that match, conditions, and access for the public. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <cmocka.h>

#include <penstock/error.h>

#include "alloc_fail.h"
#include "s3/access/policy.h"

#define POLICY(statement) "{\"Version\":\"2012-10-17\",\"Statement\":" statement "}"
#define ALLOW(rest)	  POLICY("[{\"Effect\":\"Allow\"," rest "}]")
#define ALL		  "\"Principal\":\"*\","
#define GET		  "\"Action\":\"s3:GetObject\","
#define IN_B		  "\"Resource\":\"arn:aws:s3:::b/*\""
#define PUBLIC(rest)	  ALLOW(ALL GET IN_B rest)
#define IF(condition)	  PUBLIC(",\"Condition\":" condition)

/* --- reading --------------------------------------------------------------------------------- */

static const char *const invalid_policies[] = {
	"",
	"[]",
	" {}",
	"{",
	"{}",
	"{\"Version\":\"2012-10-17\"}",
	POLICY("[]"),
	POLICY("[3]"),
	"{\"Version\":\"2013-10-17\",\"Statement\":[]}",
	"{\"Statement\":[],\"Statement\":[]}",
	"{\"More\":1,\"Statement\":[]}",
	ALLOW(ALL GET IN_B ",\"More\":1"),
	ALLOW(GET IN_B), /* no principal */
	ALLOW(ALL IN_B),
	ALLOW(ALL "\"Action\":\"s3:GetObject\""),
	ALLOW(ALL GET "\"NotAction\":\"s3:GetObject\"," IN_B),
	ALLOW("\"NotPrincipal\":\"*\"," GET IN_B),
	ALLOW("\"Principal\":\"ada\"," GET IN_B),
	ALLOW("\"Principal\":{}," GET IN_B),
	ALLOW("\"Principal\":{\"AWS\":[]}," GET IN_B),
	ALLOW("\"Principal\":{\"AWS\":\"arn:aws:iam::111111111111:user/*\"}," GET IN_B),
	ALLOW("\"Principal\":{\"AWS\":\"arn:aws:iam::111111111111:group/g\"}," GET IN_B),
	ALLOW("\"Principal\":{\"AWS\":\"1234\"}," GET IN_B),
	ALLOW("\"Principal\":{\"Other\":\"*\"}," GET IN_B),
	ALLOW(ALL "\"Action\":\"s3:GetObjct\"," IN_B),
	ALLOW(ALL "\"Action\":\"iam:CreateUser\"," IN_B),
	ALLOW(ALL "\"Action\":[]," IN_B),
	ALLOW(ALL "\"Action\":3," IN_B),
	ALLOW(ALL GET "\"Resource\":\"arn:aws:s3:::c/*\""),
	ALLOW(ALL GET "\"Resource\":\"arn:aws:s3:::bb/*\""),
	ALLOW(ALL GET "\"Resource\":\"b/*\""),
	POLICY("[{\"Effect\":\"allow\"," ALL GET IN_B "}]"),
	POLICY("[{" ALL GET IN_B "}]"),
	PUBLIC(",\"Sid\":3"),
	IF("[]"),
	IF("{\"StringEquals\":{}}"),
	IF("{\"StringEqual\":{\"s3:prefix\":\"a\"}}"),
	IF("{\"NullIfExists\":{\"s3:prefix\":\"true\"}}"),
	IF("{\"Null\":{\"s3:prefix\":\"${aws:username}\"}}"),
	IF("{\"StringEquals\":{\"s3:prefi\":\"a\"}}"),
	IF("{\"StringEquals\":{\"prefix\":\"a\"}}"),
	IF("{\"StringEquals\":{\"s3:ExistingObjectTag/\":\"a\"}}"),
	IF("{\"StringEquals\":{\"s3:prefix\":[]}}"),
	IF("{\"StringEquals\":{\"s3:prefix\":{}}}"),
	IF("{\"IpAddress\":{\"aws:SourceIp\":\"10.0.0.0/33\"}}"),
	IF("{\"NumericEquals\":{\"s3:max-keys\":\"ten\"}}"),
	IF("{\"DateLessThan\":{\"aws:CurrentTime\":\"soon\"}}"),
	IF("{\"Bool\":{\"aws:SecureTransport\":\"yes\"}}"),
};

static void invalid_policies_are_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(invalid_policies) / sizeof(invalid_policies[0]); i++) {
		struct penstock_error err = PENSTOCK_ERROR_INIT;
		const char *text = invalid_policies[i];
		struct policy *policy = NULL;

		print_message("%s\n", text);
		assert_int_equal(
			policy_parse(text, strlen(text), POLICY_OF_BUCKET, "b", &policy, &err),
			-PENSTOCK_E_PROTOCOL);
		assert_null(policy);
		assert_non_null(err.message);
		penstock_error_release(&err);
	}
}

/* A user's policy has no principal, and a role's trust policy has no resource. */
static void a_kind_has_its_own_elements(void **state)
{
	static const struct {
		const char *text;
		bool valid[3];
	} rows[] = {
		{PUBLIC(""), {true, false, false}},
		{ALLOW(GET IN_B), {false, true, false}},
		{ALLOW("\"Action\":\"iam:*\",\"Resource\":\"*\""), {false, true, false}},
		{ALLOW(ALL "\"Action\":\"sts:AssumeRole\""), {false, false, true}},
		{ALLOW("\"Action\":\"nothing\",\"Resource\":\"*\""), {false, false, false}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (int kind = 0; kind < 3; kind++) {
			struct policy *policy = NULL;

			print_message("%d %s\n", kind, rows[i].text);
			assert_int_equal(policy_parse(rows[i].text, strlen(rows[i].text),
						 (enum policy_kind)kind, kind ? NULL : "b", &policy,
						 NULL) == 0,
				rows[i].valid[kind]);
			policy_free(policy);
		}
}

/* --- evaluating ------------------------------------------------------------------------------ */

/* The condition keys of a test and their values: {"s3:prefix", "a", "s3:prefix", "b", NULL}. */
static int look_up(const struct policy_question *q, const char *key, struct policy_values *out)
{
	for (const char *const *p = q->cookie; p && *p; p += 2) {
		if (strcasecmp(p[0], key) != 0)
			continue;
		if (strcmp(p[1], "!") == 0)
			return -PENSTOCK_E_IO;
		out->items[out->n++] = p[1];
	}
	return 0;
}

#define ACCOUNT "111111111111"
#define OTHER	"222222222222"
#define IAM	"arn:aws:iam::"

static const struct policy_caller root = {
	.account = ACCOUNT, .arn = IAM ACCOUNT ":root", .canonical_id = "c1", .is_root = true};
static const struct policy_caller ada = {
	.account = ACCOUNT, .arn = IAM ACCOUNT ":user/ada", .canonical_id = "c1"};
static const struct policy_caller other = {
	.account = OTHER, .arn = IAM OTHER ":root", .is_root = true};
static const struct policy_caller session = {.account = ACCOUNT,
	.arn = "arn:aws:sts::" ACCOUNT ":assumed-role/r/s",
	.role_arn = IAM ACCOUNT ":role/r"};
static const struct policy_caller anonymous = {0};
static const struct policy_caller logging = {.service = "logging.s3.amazonaws.com"};

static struct policy *parse(const char *text, enum policy_kind kind)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct policy *policy = NULL;

	if (policy_parse(text, strlen(text), kind, kind == POLICY_OF_BUCKET ? "b" : NULL, &policy,
		    &err) < 0)
		fail_msg("%s: %s", text, err.message);
	return policy;
}

static enum policy_result ask(const char *text, const char *action, const char *resource,
	const struct policy_caller *caller, const char **values)
{
	struct policy *policy = parse(text, POLICY_OF_BUCKET);
	enum policy_result result = policy_evaluate(
		policy, &(struct policy_question){.action = action,
				.resource = resource,
				.caller = caller,
				.values = look_up,
				.cookie = values});

	policy_free(policy);
	return result;
}

static void principals_are_matched(void **state)
{
	static const struct {
		const char *principal;
		enum policy_result root, ada, other, session, anonymous, logging;
	} rows[] = {
		{"\"Principal\":\"*\"", POLICY_ALLOW, POLICY_ALLOW, POLICY_ALLOW, POLICY_ALLOW,
			POLICY_ALLOW, POLICY_ALLOW},
		{"\"Principal\":{\"AWS\":\"*\"}", POLICY_ALLOW, POLICY_ALLOW, POLICY_ALLOW,
			POLICY_ALLOW, POLICY_ALLOW, POLICY_ALLOW},
		{"\"Principal\":{\"AWS\":\"" ACCOUNT "\"}", POLICY_ALLOW, POLICY_DELEGATE,
			POLICY_NEITHER, POLICY_DELEGATE, POLICY_NEITHER, POLICY_NEITHER},
		{"\"Principal\":{\"AWS\":[\"" IAM ACCOUNT ":root\",\"" IAM ACCOUNT ":user/ada\"]}",
			POLICY_ALLOW, POLICY_ALLOW, POLICY_NEITHER, POLICY_DELEGATE, POLICY_NEITHER,
			POLICY_NEITHER},
		{"\"Principal\":{\"AWS\":\"" IAM ACCOUNT ":role/r\"}", POLICY_NEITHER,
			POLICY_NEITHER, POLICY_NEITHER, POLICY_ALLOW, POLICY_NEITHER,
			POLICY_NEITHER},
		{"\"Principal\":{\"AWS\":\"arn:aws:sts::" ACCOUNT ":assumed-role/r/s\"}",
			POLICY_NEITHER, POLICY_NEITHER, POLICY_NEITHER, POLICY_ALLOW,
			POLICY_NEITHER, POLICY_NEITHER},
		{"\"Principal\":{\"Service\":\"logging.s3.amazonaws.com\"}", POLICY_NEITHER,
			POLICY_NEITHER, POLICY_NEITHER, POLICY_NEITHER, POLICY_NEITHER,
			POLICY_ALLOW},
		{"\"Principal\":{\"AWS\":\"" IAM "tenant:root\"}", POLICY_NEITHER, POLICY_NEITHER,
			POLICY_NEITHER, POLICY_NEITHER, POLICY_NEITHER, POLICY_NEITHER},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char text[1000];

		snprintf(text, sizeof(text), ALLOW("%s," GET IN_B), rows[i].principal);
		print_message("%s\n", text);
#define ASK(caller) ask(text, "s3:GetObject", "arn:aws:s3:::b/k", &(caller), NULL)
		assert_int_equal(ASK(root), rows[i].root);
		assert_int_equal(ASK(ada), rows[i].ada);
		assert_int_equal(ASK(other), rows[i].other);
		assert_int_equal(ASK(session), rows[i].session);
		assert_int_equal(ASK(anonymous), rows[i].anonymous);
		assert_int_equal(ASK(logging), rows[i].logging);
	}
}

/* A deny for an account also applies to its users. NotPrincipal exempts the named principals. */
static void a_deny_beats_any_allow(void **state)
{
	static const char account[] = POLICY(
		"[{\"Effect\":\"Allow\"," ALL GET IN_B
		"},{\"Effect\":\"Deny\",\"Principal\":{\"AWS\":\"" ACCOUNT "\"}," GET IN_B "}]");
	static const char all_but_ada[] = POLICY(
		"{\"Effect\":\"Deny\",\"NotPrincipal\":{\"AWS\":\"" IAM ACCOUNT
		":user/ada\"}," GET IN_B "}");
	const char *k = "arn:aws:s3:::b/k";

	(void)state;
	assert_int_equal(ask(account, "s3:GetObject", k, &ada, NULL), POLICY_DENY);
	assert_int_equal(ask(account, "s3:GetObject", k, &root, NULL), POLICY_DENY);
	assert_int_equal(ask(account, "s3:GetObject", k, &other, NULL), POLICY_ALLOW);
	assert_int_equal(ask(all_but_ada, "s3:GetObject", k, &ada, NULL), POLICY_NEITHER);
	assert_int_equal(ask(all_but_ada, "s3:GetObject", k, &root, NULL), POLICY_DENY);
	assert_int_equal(ask(all_but_ada, "s3:GetObject", k, &anonymous, NULL), POLICY_DENY);
}

static void actions_and_resources_are_matched(void **state)
{
	static const struct {
		const char *elements, *action, *resource;
		bool allowed;
	} rows[] = {
		{GET IN_B, "s3:GetObject", "b/k", true},
		{GET IN_B, "s3:GetObject", "b/", true},
		{GET IN_B, "s3:GetObject", "b", false},
		{GET IN_B, "s3:GetObject", "bb/k", false},
		{GET IN_B, "s3:GetObjectAcl", "b/k", false},
		{"\"Action\":\"S3:getobject\"," IN_B, "s3:GetObject", "b/k", true},
		{"\"Action\":\"s3:Get*\"," IN_B, "s3:GetObjectAcl", "b/k", true},
		{"\"Action\":\"s3:?etObject\"," IN_B, "s3:GetObject", "b/k", true},
		{"\"Action\":\"*\"," IN_B, "s3:GetObject", "b/k", true},
		{"\"NotAction\":\"s3:Get*\"," IN_B, "s3:GetObject", "b/k", false},
		{"\"NotAction\":[\"s3:Get*\"]," IN_B, "s3:PutObject", "b/k", true},
		{GET "\"Resource\":\"*\"", "s3:GetObject", "b/k", true},
		{GET "\"Resource\":\"arn:aws:s3:::*\"", "s3:GetObject", "b/k", true},
		{GET "\"Resource\":[\"arn:aws:s3:::b/a\",\"arn:aws:s3:::b/k\"]", "s3:GetObject",
			"b/k", true},
		{GET "\"Resource\":\"arn:aws:s3:::b/a*c*e\"", "s3:GetObject", "b/abcbcde", true},
		{GET "\"Resource\":\"arn:aws:s3:::b/a*c*e\"", "s3:GetObject", "b/abcbcd", false},
		{GET "\"Resource\":\"arn:aws:s3:::b/??\"", "s3:GetObject", "b/\u00e4\u00f6", true},
		{GET "\"Resource\":\"arn:aws:s3:::b/K\"", "s3:GetObject", "b/k", false},
		{GET "\"NotResource\":\"arn:aws:s3:::b/secret/*\"", "s3:GetObject", "b/k", true},
		{GET "\"NotResource\":\"arn:aws:s3:::b/secret/*\"", "s3:GetObject", "b/secret/k",
			false},
		{GET "\"Resource\":\"arn:aws:s3:::b/${aws:username}/*\"", "s3:GetObject", "b/a*a/k",
			true},
		{GET "\"Resource\":\"arn:aws:s3:::b/${aws:username}/*\"", "s3:GetObject", "b/aba/k",
			false}, /* the '*' is literal */
		{GET "\"Resource\":\"arn:aws:s3:::b/${aws:userid}/*\"", "s3:GetObject", "b//k",
			false},
		{GET "\"Resource\":\"arn:aws:s3:::b/${aws:userid, 'all'}/*\"", "s3:GetObject",
			"b/all/k", true},
		{GET "\"Resource\":\"arn:aws:s3:::b/${*}${$}${?}\"", "s3:GetObject", "b/*$?", true},
		{GET "\"Resource\":\"arn:aws:s3:::b/${*}\"", "s3:GetObject", "b/k", false},
		{GET "\"Resource\":\"arn:aws:s3:::b/${open\"", "s3:GetObject", "b/${open", true},
	};
	const char *values[] = {"aws:username", "a*a", NULL};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char text[1000], arn[100];

		snprintf(text, sizeof(text), ALLOW(ALL "%s"), rows[i].elements);
		snprintf(arn, sizeof(arn), "arn:aws:s3:::%s", rows[i].resource);
		print_message("%s: %s %s\n", text, rows[i].action, arn);
		assert_int_equal(ask(text, rows[i].action, arn, &ada, values),
			rows[i].allowed ? POLICY_ALLOW : POLICY_NEITHER);
	}
}

/* If a variable has no value, an allow statement does not apply, and a deny statement applies to
 * all resources. */
static void a_variable_without_a_value_allows_no_more(void **state)
{
	static const char rest[] = "\"NotResource\":\"arn:aws:s3:::b/${aws:username}/*\"";
	char allow[1000], deny[1000];

	(void)state;
	snprintf(allow, sizeof(allow), ALLOW(ALL GET "%s"), rest);
	snprintf(deny, sizeof(deny), POLICY("[{\"Effect\":\"Deny\"," ALL GET "%s}]"), rest);

	assert_int_equal(
		ask(allow, "s3:GetObject", "arn:aws:s3:::b/k", &anonymous, NULL), POLICY_NEITHER);
	assert_int_equal(
		ask(deny, "s3:GetObject", "arn:aws:s3:::b/k", &anonymous, NULL), POLICY_DENY);
}

/* The same holds for a negated operator, even if the request lacks the key of the condition. */
static void a_negated_condition_without_a_value_allows_no_more(void **state)
{
	static const char *const conditions[] = {
		"{\"StringNotLike\":{\"s3:prefix\":\"${aws:username}*\"}}",
		"{\"StringNotLikeIfExists\":{\"s3:prefix\":[\"x\",\"${aws:username}*\"]}}",
		"{\"ForAnyValue:StringNotEquals\":{\"s3:prefix\":\"${aws:username}\"}}",
		"{\"ForAllValues:StringNotEquals\":{\"s3:prefix\":\"${aws:username}\"}}",
	};
	const char *values[] = {"s3:prefix", "a", NULL};

	(void)state;
	for (size_t i = 0; i < sizeof(conditions) / sizeof(conditions[0]); i++)
		for (size_t k = 0; k < 2; k++) {
			const char **of = k ? values : NULL;
			char allow[1000], deny[1000];

			print_message("%s\n", conditions[i]);
			snprintf(allow, sizeof(allow), IF("%s"), conditions[i]);
			snprintf(deny, sizeof(deny),
				POLICY("[{\"Effect\":\"Deny\"," ALL GET
				       "\"Resource\":\"arn:aws:s3:::b/*\",\"Condition\":%s}]"),
				conditions[i]);
			assert_int_equal(
				ask(allow, "s3:GetObject", "arn:aws:s3:::b/k", &session, of),
				POLICY_NEITHER);
			/* Without the key, only ForAnyValue does not hold. */
			assert_int_equal(
				ask(deny, "s3:GetObject", "arn:aws:s3:::b/k", &session, of),
				!k && i == 2 ? POLICY_NEITHER : POLICY_DENY);
		}
}

/* Version 2012-10-17 introduced variables. */
static void an_old_policy_has_no_variables(void **state)
{
	static const char text[] = "{\"Version\":\"2008-10-17\",\"Statement\":{\"Effect\":"
				   "\"Allow\"," ALL GET
				   "\"Resource\":\"arn:aws:s3:::b/${aws:username}\"}}";
	const char *values[] = {"aws:username", "ada", NULL};

	(void)state;
	assert_int_equal(
		ask(text, "s3:GetObject", "arn:aws:s3:::b/ada", &ada, values), POLICY_NEITHER);
	assert_int_equal(ask(text, "s3:GetObject", "arn:aws:s3:::b/${aws:username}", &ada, values),
		POLICY_ALLOW);
}

#define ZEROS "00000000000000000000000000000000000000000000000000"

/* The condition keys of the request and their values; "s3:RequestObjectTagKeys" has several
 * values. */
static const char *request[] = {"s3:prefix", "home/ada", "s3:max-keys", "100", "aws:SourceIp",
	"10.1.2.3", "aws:CurrentTime", "2026-05-01T00:00:00Z", "aws:SecureTransport", "false",
	"aws:PrincipalArn", "arn:aws:iam::111111111111:user/ada", "s3:RequestObjectTagKeys", "a",
	"s3:RequestObjectTagKeys", "b", "aws:username", "ada", "s3:x-amz-acl", "!",
	"s3:signatureAge", ZEROS "1000", NULL};

static void conditions_are_evaluated(void **state)
{
	static const struct {
		const char *condition;
		bool holds;
	} rows[] = {
		{"{}", true},
		{"{\"StringEquals\":{\"s3:prefix\":\"home/ada\"}}", true},
		{"{\"StringEquals\":{\"S3:Prefix\":[\"x\",\"home/ada\"]}}", true},
		{"{\"StringEquals\":{\"s3:prefix\":\"home/*\"}}", false},
		{"{\"StringEquals\":{\"s3:prefix\":\"home/${aws:username}\"}}", true},
		{"{\"StringEquals\":{\"s3:prefix\":\"home/${aws:userid}\"}}", false},
		{"{\"StringEquals\":{\"s3:delimiter\":\"/\"}}", false},
		{"{\"StringEqualsIfExists\":{\"s3:delimiter\":\"/\"}}", true},
		{"{\"StringEqualsIfExists\":{\"s3:prefix\":\"/\"}}", false},
		{"{\"StringNotEquals\":{\"s3:prefix\":\"home/ada\"}}", false},
		{"{\"StringNotEquals\":{\"s3:prefix\":[\"x\",\"home/ada\"]}}", false},
		{"{\"StringNotEquals\":{\"s3:delimiter\":\"/\"}}", true},
		{"{\"StringEqualsIgnoreCase\":{\"s3:prefix\":\"HOME/Ada\"}}", true},
		{"{\"StringNotEqualsIgnoreCase\":{\"s3:prefix\":\"HOME/Ada\"}}", false},
		{"{\"StringLike\":{\"s3:prefix\":\"home/*\"}}", true},
		{"{\"StringLike\":{\"s3:prefix\":\"home/${aws:username}*\"}}", true},
		{"{\"StringNotLike\":{\"s3:prefix\":\"home/*\"}}", false},
		{"{\"NumericEquals\":{\"s3:max-keys\":100}}", true},
		{"{\"NumericEquals\":{\"s3:max-keys\":\"100.0\"}}", true},
		{"{\"NumericNotEquals\":{\"s3:max-keys\":\"100\"}}", false},
		{"{\"NumericLessThan\":{\"s3:max-keys\":\"100\"}}", false},
		{"{\"NumericLessThanEquals\":{\"s3:max-keys\":\"100\"}}", true},
		{"{\"NumericGreaterThan\":{\"s3:max-keys\":\"99.5\"}}", true},
		{"{\"NumericGreaterThanEquals\":{\"s3:max-keys\":\"101\"}}", false},
		{"{\"NumericEquals\":{\"s3:prefix\":\"0\"}}", false}, /* not a number */
		{"{\"NumericGreaterThan\":{\"s3:max-keys\":\"0\"}}", true},
		{"{\"NumericLessThan\":{\"s3:max-keys\":\"" ZEROS "100.5\"}}", true},
		{"{\"NumericGreaterThan\":{\"s3:signatureAge\":\"2\"}}", true},
		{"{\"DateEquals\":{\"aws:CurrentTime\":\"2026-05-01T00:00:00Z\"}}", true},
		{"{\"DateLessThan\":{\"aws:CurrentTime\":\"2026-05-01T00:00:01Z\"}}", true},
		{"{\"DateGreaterThan\":{\"aws:CurrentTime\":1777593599}}", true},
		{"{\"DateGreaterThan\":{\"aws:CurrentTime\":1777593600}}", false},
		{"{\"Bool\":{\"aws:SecureTransport\":false}}", true},
		{"{\"Bool\":{\"aws:SecureTransport\":\"TRUE\"}}", false},
		{"{\"IpAddress\":{\"aws:SourceIp\":\"10.0.0.0/8\"}}", true},
		{"{\"IpAddress\":{\"aws:SourceIp\":\"10.1.2.3\"}}", true},
		{"{\"IpAddress\":{\"aws:SourceIp\":\"10.1.2.0/31\"}}", false},
		{"{\"IpAddress\":{\"aws:SourceIp\":[\"::/0\",\"11.0.0.0/8\"]}}", false},
		{"{\"NotIpAddress\":{\"aws:SourceIp\":\"10.0.0.0/8\"}}", false},
		{"{\"ArnEquals\":{\"aws:PrincipalArn\":\"arn:aws:iam::1*:user/*\"}}", true},
		{"{\"ArnLike\":{\"aws:PrincipalArn\":\"arn:aws:iam::*:user/ada\"}}", true},
		{"{\"ArnLike\":{\"aws:PrincipalArn\":\"arn:*\"}}", true},
		{"{\"ArnLike\":{\"aws:PrincipalArn\":\"arn:aws:*:x:*:user/ada\"}}", false},
		{"{\"ArnNotLike\":{\"aws:PrincipalArn\":\"arn:aws:iam::*:user/ada\"}}", false},
		{"{\"Null\":{\"s3:delimiter\":\"true\"}}", true},
		{"{\"Null\":{\"s3:delimiter\":false}}", false},
		{"{\"Null\":{\"s3:prefix\":\"false\"}}", true},
		{"{\"ForAllValues:StringEquals\":{\"s3:RequestObjectTagKeys\":[\"a\",\"b\"]}}",
			true},
		{"{\"ForAllValues:StringEquals\":{\"s3:RequestObjectTagKeys\":\"a\"}}", false},
		{"{\"ForAnyValue:StringEquals\":{\"s3:RequestObjectTagKeys\":\"a\"}}", true},
		{"{\"ForAnyValue:StringEquals\":{\"s3:RequestObjectTagKeys\":\"c\"}}", false},
		{"{\"ForAnyValue:StringNotEquals\":{\"s3:RequestObjectTagKeys\":\"a\"}}", true},
		{"{\"ForAllValues:StringNotEquals\":{\"s3:RequestObjectTagKeys\":\"a\"}}", false},
		{"{\"ForAllValues:StringEquals\":{\"s3:delimiter\":\"/\"}}", true},
		{"{\"ForAnyValue:StringNotEquals\":{\"s3:delimiter\":\"/\"}}", false},
		{"{\"ForAnyValue:StringEqualsIfExists\":{\"s3:delimiter\":\"/\"}}", true},
		{"{\"StringEquals\":{\"s3:prefix\":\"home/ada\",\"s3:delimiter\":\"/\"}}", false},
		{"{\"StringEquals\":{\"s3:prefix\":\"home/ada\"},\"Bool\":{"
		 "\"aws:SecureTransport\":true}}",
			false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char text[1000];

		snprintf(text, sizeof(text), IF("%s"), rows[i].condition);
		print_message("%s\n", rows[i].condition);
		assert_int_equal(ask(text, "s3:GetObject", "arn:aws:s3:::b/k", &ada, request),
			rows[i].holds ? POLICY_ALLOW : POLICY_NEITHER);
	}
}

/* An unreadable value makes the evaluation fail, so that a deny with such a condition is not
 * skipped. */
static void a_value_that_cannot_be_read_is_a_failure(void **state)
{
	(void)state;
	assert_int_equal(ask(IF("{\"StringEquals\":{\"s3:x-amz-acl\":\"private\"}}"),
				 "s3:GetObject", "arn:aws:s3:::b/k", &ada, request),
		POLICY_FAILED);
	assert_int_equal(ask(IF("{\"StringEquals\":{\"s3:prefix\":\"${s3:x-amz-acl}\"}}"),
				 "s3:GetObject", "arn:aws:s3:::b/k", &ada, request),
		POLICY_FAILED);
}

static void a_policy_without_principal_is_of_its_owner(void **state)
{
	struct policy *policy = parse(
		POLICY("[{\"Effect\":\"Allow\",\"Action\":[\"s3:*\",\"iam:Get*\"],\"Resource\":"
		       "\"*\"},{\"Effect\":\"Deny\",\"Action\":\"s3:Delete*\",\"Resource\":\"*\"}]"),
		POLICY_OF_IDENTITY);
	struct policy_question q = {.action = "s3:GetObject", .resource = "arn:aws:s3:::b/k"};

	(void)state;
	assert_int_equal(policy_evaluate(policy, &q), POLICY_ALLOW);
	q.action = "s3:DeleteObject";
	assert_int_equal(policy_evaluate(policy, &q), POLICY_DENY);
	q = (struct policy_question){.action = "iam:GetUser", .resource = "*"};
	assert_int_equal(policy_evaluate(policy, &q), POLICY_ALLOW);
	q.action = "iam:CreateUser";
	assert_int_equal(policy_evaluate(policy, &q), POLICY_NEITHER);
	assert_int_equal(policy_evaluate(NULL, &q), POLICY_NEITHER);
	policy_free(policy);
}

/* If the limit is reached, even a statement with a negated comparison allows nothing. */
static void an_evaluation_has_a_limit_of_steps(void **state)
{
	static const char *const rows[] = {
		PUBLIC(""),
		ALLOW(ALL GET "\"Resource\":\"arn:aws:s3:::b/*k*\""),
		ALLOW(ALL "\"NotAction\":\"s3:*u*Obj*A*\"," IN_B),
		ALLOW(ALL GET "\"NotResource\":\"arn:aws:s3:::b/*a*b\""),
		IF("{\"StringNotLike\":{\"s3:prefix\":\"*a*b\"}}"),
		IF("{\"StringLike\":{\"s3:prefix\":\"${aws:username,'a'}*\"}}"),
		IF("{\"NumericEquals\":{\"s3:max-keys\":[1,2,3]}}"),
	};
	const char *values[] = {"s3:prefix", "aaaaaaaaaaaaaaaaaaaaaaaa", "s3:max-keys", "3", NULL};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct policy *policy = parse(rows[i], POLICY_OF_BUCKET);
		size_t left = SIZE_MAX, needed, steps;
		struct policy_question q = {.action = "s3:GetObject",
			.resource = "arn:aws:s3:::b/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaak",
			.caller = &ada,
			.values = look_up,
			.cookie = values,
			.steps = &left};

		print_message("%s\n", rows[i]);
		assert_int_equal(policy_evaluate(policy, &q), POLICY_ALLOW);
		needed = SIZE_MAX - left;
		for (steps = 0; steps <= needed + 1; steps++) {
			left = steps;
			assert_int_equal(policy_evaluate(policy, &q),
				steps > needed ? POLICY_ALLOW : POLICY_FAILED);
		}
		policy_free(policy);
	}
}

static void a_public_policy_is_recognized(void **state)
{
	static const struct {
		const char *text;
		bool is_public;
	} rows[] = {
		{PUBLIC(""), true},
		{POLICY("{\"Effect\":\"Deny\"," ALL GET IN_B "}"), false},
		{ALLOW("\"Principal\":{\"AWS\":\"" ACCOUNT "\"}," GET IN_B), false},
		{ALLOW("\"Principal\":{\"Service\":\"logging.s3.amazonaws.com\"}," GET IN_B),
			false},
		{IF("{\"StringEquals\":{\"aws:SourceVpc\":\"vpc-1\"}}"), false},
		{IF("{\"StringLike\":{\"aws:SourceVpc\":\"vpc-*\"}}"), true},
		{IF("{\"StringNotEquals\":{\"aws:SourceVpc\":\"vpc-1\"}}"), true},
		{IF("{\"StringEqualsIfExists\":{\"aws:SourceVpc\":\"vpc-1\"}}"), true},
		{IF("{\"ForAllValues:StringEquals\":{\"aws:SourceVpc\":\"vpc-1\"}}"), true},
		{IF("{\"StringEquals\":{\"aws:userid\":\"${aws:userid}\"}}"), true},
		{IF("{\"StringEquals\":{\"aws:userid\":\"AIDA1\"}}"), false},
		{IF("{\"StringEquals\":{\"aws:userid\":\"anonymous\"}}"), true},
		{IF("{\"StringLike\":{\"aws:userid\":[\"AIDA1\",\"anonymous\"]}}"), true},
		{IF("{\"StringEqualsIgnoreCase\":{\"aws:UserId\":\"Anonymous\"}}"), true},
		{IF("{\"StringEquals\":{\"s3:prefix\":\"a\"}}"), true},
		{IF("{\"Null\":{\"aws:SourceVpc\":\"false\"}}"), true},
		{IF("{\"IpAddress\":{\"aws:SourceIp\":\"10.0.0.0/8\"}}"), false},
		{IF("{\"IpAddress\":{\"aws:SourceIp\":\"0.0.0.0/0\"}}"), true},
		{IF("{\"IpAddress\":{\"aws:SourceIp\":[\"10.0.0.0/8\",\"::/0\"]}}"), true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct policy *policy = parse(rows[i].text, POLICY_OF_BUCKET);

		print_message("%s\n", rows[i].text);
		assert_int_equal(policy_is_public(policy), rows[i].is_public);
		/* A condition only limits the principals, so the policy still admits anyone. */
		assert_int_equal(policy_admits_anyone(policy),
			rows[i].is_public || strstr(rows[i].text, "Condition") != NULL);
		policy_free(policy);
	}
}

/* A text that lost characters could match more. */
static void each_failed_allocation_is_a_failure(void **state)
{
	static const char text[] = IF(
		"{\"StringLike\":{\"s3:prefix\":[\"home/${aws:username}*\",\"a\"]}}");

	(void)state;
	for (size_t nth = 1;; nth++) {
		struct policy *policy = NULL;
		enum policy_result result;
		int rc;

		alloc_fail_arm(nth);
		rc = policy_parse(text, strlen(text), POLICY_OF_BUCKET, "b", &policy, NULL);
		result = rc == 0 ? policy_evaluate(policy,
					   &(struct policy_question){.action = "s3:GetObject",
						   .resource = "arn:aws:s3:::b/k",
						   .caller = &ada,
						   .values = look_up,
						   .cookie = request})
				 : POLICY_FAILED;
		policy_free(policy);
		if (!alloc_fail_disarm()) {
			assert_int_equal(result, POLICY_ALLOW);
			break;
		}
		assert_true(rc == 0 || rc == -PENSTOCK_E_MEMORY);
		assert_true(result == POLICY_ALLOW || result == POLICY_FAILED);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(invalid_policies_are_refused),
		cmocka_unit_test(a_kind_has_its_own_elements),
		cmocka_unit_test(principals_are_matched),
		cmocka_unit_test(a_deny_beats_any_allow),
		cmocka_unit_test(actions_and_resources_are_matched),
		cmocka_unit_test(a_variable_without_a_value_allows_no_more),
		cmocka_unit_test(a_negated_condition_without_a_value_allows_no_more),
		cmocka_unit_test(an_old_policy_has_no_variables),
		cmocka_unit_test(conditions_are_evaluated),
		cmocka_unit_test(a_value_that_cannot_be_read_is_a_failure),
		cmocka_unit_test(a_policy_without_principal_is_of_its_owner),
		cmocka_unit_test(an_evaluation_has_a_limit_of_steps),
		cmocka_unit_test(a_public_policy_is_recognized),
		cmocka_unit_test(each_failed_allocation_is_a_failure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
