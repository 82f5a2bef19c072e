/* The decision on a request: a table of all combinations of policies and grants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "s3/access/decision.h"

/* Rows and columns are in the order of enum policy_result: the row is the result of the caller's
 * own policies, the column that of the bucket's policy. 'x' means allowed, 'a' means allowed if
 * there is a grant. */
static const struct {
	enum access_relation relation;
	bool restricted;
	const char *table[5];
} tables[] = {
	/* One allow is sufficient, and a deny overrides it. */
	{OWN_ACCOUNT, false, {"..x..", "..x..", "xxx..", ".....", "....."}},
	{OWN_ACCOUNT, true, {"..x..", "..x..", "xxx..", ".....", "....."}},
	/* Both accounts have to allow the request. */
	{OTHER_ACCOUNT, false, {".....", ".....", "axx..", ".....", "....."}},
	{OTHER_ACCOUNT, true, {".....", ".....", ".....", ".....", "....."}},
	{ANONYMOUS, false, {"aax..", "aax..", "aax..", ".....", "....."}},
	{ANONYMOUS, true, {".....", ".....", ".....", ".....", "....."}},
	{AWS_SERVICE, false, {"aax..", "aax..", "aax..", ".....", "....."}},
	{AWS_SERVICE, true, {"aax..", "aax..", "aax..", ".....", "....."}},
};

static void a_request_is_allowed_as_the_table_says(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (int n = 0; n < 5 * 5 * 2; n++) {
			const struct access_facts facts = {.relation = tables[i].relation,
				.restricted = tables[i].restricted,
				.identity = (enum policy_result)(n / 10),
				.bucket = (enum policy_result)(n / 2 % 5),
				.acl = n % 2};
			char wanted = tables[i].table[facts.identity][facts.bucket];

			print_message("relation %d restricted %d identity %d bucket %d acl %d\n",
				(int)facts.relation, facts.restricted, (int)facts.identity,
				(int)facts.bucket, facts.acl);
			assert_int_equal(access_decide(&facts),
				wanted == 'x' || (wanted == 'a' && facts.acl));
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_is_allowed_as_the_table_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
