/* The decision by the policies of an identity: its own, its boundary, and those of its session. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "server/directory/documents.h"
#include "server/directory/identity.h"

#define POLICY(effect, action)                                                                     \
	"{\"Version\":\"2012-10-17\",\"Statement\":{\"Effect\":\"" effect                          \
	"\",\"Action\":\"" action "\",\"Resource\":\"arn:aws:s3:::b/*\"}}"
#define ALLOWS	POLICY("Allow", "s3:*")
#define DENIES	POLICY("Deny", "s3:GetObject")
#define SILENT	POLICY("Allow", "s3:PutObject")
#define INVALID "{\"Version\":1}"

static const struct {
	bool is_root;
	const char *own[2], *boundary, *session; /* NULL if there is none */
	enum policy_result result;
	bool limited;
} rows[] = {
	{false, {NULL}, NULL, NULL, POLICY_NEITHER, false},
	{false, {ALLOWS}, NULL, NULL, POLICY_ALLOW, false},
	{false, {SILENT}, NULL, NULL, POLICY_NEITHER, false},
	{false, {SILENT, ALLOWS}, NULL, NULL, POLICY_ALLOW, false},
	{false, {ALLOWS, DENIES}, NULL, NULL, POLICY_DENY, false},
	{false, {ALLOWS, INVALID}, NULL, NULL, POLICY_DENY, false},
	{false, {ALLOWS}, ALLOWS, NULL, POLICY_ALLOW, false},
	{false, {ALLOWS}, SILENT, NULL, POLICY_NEITHER, false},
	{false, {SILENT}, ALLOWS, NULL, POLICY_NEITHER, false},
	{false, {ALLOWS}, DENIES, NULL, POLICY_DENY, false},
	{false, {ALLOWS}, NULL, ALLOWS, POLICY_ALLOW, false},
	{false, {ALLOWS}, NULL, SILENT, POLICY_NEITHER, true},
	{false, {ALLOWS}, NULL, DENIES, POLICY_DENY, true},
	{false, {ALLOWS}, SILENT, ALLOWS, POLICY_NEITHER, false},
	{true, {NULL}, NULL, NULL, POLICY_ALLOW, false},
	{true, {NULL}, NULL, SILENT, POLICY_NEITHER, true},
	{true, {NULL}, NULL, ALLOWS, POLICY_ALLOW, false},
};

static struct documents documents;

static void add(struct identity *who, struct identity_documents *to, const char *text)
{
	if (text)
		assert_true(identity_add_document(who, to, text, &documents));
}

static void all_policies_of_a_sender_have_a_say(void **state)
{
	const struct policy_question question = {
		.action = "s3:GetObject", .resource = "arn:aws:s3:::b/k"};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct identity *who = identity_new();

		assert_non_null(who);
		print_message("row %zu\n", i);
		who->is_root = rows[i].is_root;
		add(who, &who->own, rows[i].own[0]);
		add(who, &who->own, rows[i].own[1]);
		add(who, &who->boundary, rows[i].boundary);
		add(who, &who->session, rows[i].session);

		assert_int_equal(identity_evaluate(who, &question), rows[i].result);
		assert_int_equal(identity_is_limited(who, &question), rows[i].limited);
		assert_int_equal(
			who->has_policies, rows[i].own[0] || rows[i].boundary || rows[i].session);
		identity_unref(who);
	}
	documents_release(&documents);
}

/* Thousands of temporary keys may have the same policies. */
static void identities_share_their_policies(void **state)
{
	const struct policy_question question = {
		.action = "s3:GetObject", .resource = "arn:aws:s3:::b/k"};
	struct identity *a = identity_new(), *b = identity_new();

	(void)state;
	assert_true(a && b);
	add(a, &a->own, ALLOWS);
	add(b, &b->own, SILENT);
	add(b, &b->session, ALLOWS);
	add(b, &b->boundary, INVALID);
	add(a, &a->boundary, INVALID);

	assert_ptr_equal(a->own.policies[0], b->session.policies[0]);
	assert_ptr_not_equal(b->own.policies[0], b->session.policies[0]);
	assert_null(a->boundary.policies[0]);
	assert_null(b->boundary.policies[0]);
	assert_int_equal(documents.bytes, sizeof(ALLOWS) + sizeof(SILENT) + sizeof(INVALID) - 3);

	documents_release(&documents);
	identity_unref(b);
	assert_int_equal(documents.bytes, 0);
	assert_int_equal(policy_evaluate(a->own.policies[0], &question), POLICY_ALLOW);
	identity_unref(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_policies_of_a_sender_have_a_say),
		cmocka_unit_test(identities_share_their_policies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
