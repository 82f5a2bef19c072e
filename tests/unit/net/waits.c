#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/pace/waits.h"

static void slow_is_far_beyond_the_other_waits(void **state)
{
	struct waits gets, puts;

	(void)state;
	waits_init(&gets);
	waits_init(&puts);

	for (int i = 0; i < 7; i++)
		waits_add(&gets, 20);
	assert_int_equal(waits_slow_ms(&gets, 700), 0);
	waits_add(&gets, 20);
	assert_int_equal(waits_slow_ms(&gets, 700), 720);
	assert_int_equal(waits_slow_ms(&gets, 100), 120);

	for (int i = 0; i < 56; i++)
		waits_add(&puts, i % 4 ? 100 : 1500);
	assert_int_equal(waits_slow_ms(&puts, 700), 3000);
	for (int i = 0; i < WAITS_SAMPLES; i++)
		waits_add(&puts, 4500);
	assert_int_equal(waits_slow_ms(&puts, 700), 9000);
}

static void a_request_is_slow_sooner_if_others_move(void **state)
{
	struct waits waits;

	(void)state;
	waits_init(&waits);
	assert_false(waits_is_slow(&waits, 100, 100000, 0));

	for (int i = 0; i < 8; i++)
		waits_add(&waits, 20);
	assert_false(waits_is_slow(&waits, 100, 119, 0));
	assert_true(waits_is_slow(&waits, 100, 120, 0));
	assert_true(waits_is_slow(&waits, 100, 120, 59));
	assert_false(waits_is_slow(&waits, 100, 239, 60));
	assert_true(waits_is_slow(&waits, 100, 240, 60));
}

static void quantiles_are_those_of_the_latest_waits(void **state)
{
	struct waits waits;

	(void)state;
	waits_init(&waits);
	assert_int_equal(waits_quantile(&waits, 5), -1);

	for (int i = 0; i < 1000; i++)
		waits_add(&waits, 5000);
	for (int i = WAITS_SAMPLES; i > 0; i--)
		waits_add(&waits, i);
	assert_int_equal(waits_quantile(&waits, 0), 1);
	assert_int_equal(waits_quantile(&waits, 5), 32);
	assert_int_equal(waits_quantile(&waits, 10), 64);

	waits_add(&waits, -7);
	assert_int_equal(waits_quantile(&waits, 0), 0);
}

static void few_requests_are_sent_again(void **state)
{
	struct waits waits;
	unsigned spent = 0;

	(void)state;
	waits_init(&waits);

	for (int i = 0; i < 1000; i++) {
		waits_add(&waits, 1);
		spent += waits_spend(&waits);
	}
	assert_in_range(spent, 40, 53);
	for (int i = 0; i < 1000; i++)
		waits_add(&waits, 1);
	for (spent = 0; waits_spend(&waits); spent++)
		;
	assert_in_range(spent, 7, 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slow_is_far_beyond_the_other_waits),
		cmocka_unit_test(a_request_is_slow_sooner_if_others_move),
		cmocka_unit_test(quantiles_are_those_of_the_latest_waits),
		cmocka_unit_test(few_requests_are_sent_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
