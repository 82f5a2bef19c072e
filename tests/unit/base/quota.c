#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "alloc_fail.h"
#include "base/quota.h"
#include "base/thread.h"

#define LIMIT 1000

static void an_owner_holds_as_much_as_it_leaves_to_others(void **state)
{
	struct quota quota;
	struct quota_share *a, *b, *c;

	(void)state;
	quota_init(&quota, LIMIT);
	a = quota_share(&quota, "a");
	b = quota_share(&quota, "b");
	c = quota_share(&quota, "");
	assert_false(quota_take(a, 501));
	assert_true(quota_take(a, 400));
	assert_true(quota_take(a, 100));
	assert_false(quota_take(a, 1));
	assert_true(quota_take(b, 250));
	assert_false(quota_take(b, 1));
	assert_true(quota_take(c, 125));
	assert_int_equal(quota_held(a), 500);
	assert_int_equal(quota_held(b), 250);
	assert_int_equal(quota_held(c), 125);

	quota_give_back(b, 250);
	assert_false(quota_take(a, 1));
	quota_give_back(a, 300);
	assert_true(quota_take(a, 200));

	quota_release(&quota);
}

static void no_number_is_too_large_to_be_refused(void **state)
{
	struct quota quota;
	struct quota_share *share;

	(void)state;
	quota_init(&quota, LIMIT);
	share = quota_share(&quota, "a");
	assert_true(quota_take(share, 1));
	assert_false(quota_take(share, SIZE_MAX));
	assert_false(quota_take(share, SIZE_MAX - 1));
	assert_false(quota_take(share, LIMIT));
	assert_int_equal(quota_held(share), 1);

	quota_release(&quota);
}

static void an_owner_has_one_share(void **state)
{
	struct quota quota;
	struct quota_share *share;

	(void)state;
	quota_init(&quota, LIMIT);
	share = quota_share(&quota, "123456789012345678901234567890");
	assert_string_equal(share->owner, "123456789012345678901234567890");
	assert_ptr_not_equal(quota_share(&quota, "1"), share);
	assert_ptr_equal(quota_share(&quota, "123456789012345678901234567890"), share);
	alloc_fail_arm(1);
	assert_ptr_equal(quota_share(&quota, "123456789012345678901234567890"), share);
	assert_null(quota_share(&quota, "2"));
	assert_true(alloc_fail_disarm());
	assert_non_null(quota_share(&quota, "2"));

	quota_release(&quota);
}

static int hold_and_give_back(void *cookie, size_t i, struct penstock_error *err)
{
	struct quota *quota = cookie;
	struct quota_share *share = quota_share(quota, i % 2 ? "odd" : "even");

	(void)err;
	for (int k = 0; k < 1000; k++)
		if (quota_take(share, i + 1))
			quota_give_back(share, i + 1);
	return 0;
}

static void threads_give_back_what_they_took(void **state)
{
	struct quota quota;
	atomic_int stop = 0;

	(void)state;
	quota_init(&quota, LIMIT);
	assert_int_equal(thread_each(&(struct thread_work){.name = "test",
					     .n = 8,
					     .parallel = 8,
					     .fn = hold_and_give_back,
					     .cookie = &quota,
					     .stop = &stop},
				 NULL),
		0);
	assert_int_equal(quota.held, 0);
	assert_int_equal(quota_held(quota_share(&quota, "odd")), 0);

	quota_release(&quota);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_owner_holds_as_much_as_it_leaves_to_others),
		cmocka_unit_test(no_number_is_too_large_to_be_refused),
		cmocka_unit_test(an_owner_has_one_share),
		cmocka_unit_test(threads_give_back_what_they_took),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
