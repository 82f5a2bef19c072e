#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <penstock/error.h>

#include "base/limits.h"
#include "run/internal.h"
#include "run/retry.h"
#include "workflow/workflow.h"
#include "workflow/model.h"

/* For any random number, the pause differs from the expected one by at most a fifth. */
static void check_pause(int64_t backoff, unsigned n, int64_t expected)
{
	int64_t least = retry_pause_ms(backoff, n, 0);
	int64_t middle = retry_pause_ms(backoff, n, UINT32_MAX / 2);
	int64_t most = retry_pause_ms(backoff, n, UINT32_MAX);

	assert_int_equal(least, expected * 4 / 5);
	assert_int_equal(most, expected * 6 / 5);
	assert_true(least < middle && middle < most);
}

static void each_pause_is_twice_the_last_one_up_to_a_limit(void **state)
{
	(void)state;
	check_pause(1000, 1, 1000);
	check_pause(1000, 2, 2000);
	check_pause(1000, 5, 16000);
	check_pause(1000, 11, LIMIT_RETRY_PAUSE_MS);
	check_pause(1000, UINT32_MAX, LIMIT_RETRY_PAUSE_MS);
	check_pause(3600 * 1000, 1, 3600 * 1000);
	check_pause(3600 * 1000, 9, 3600 * 1000);
}

static void only_codes_of_the_list_are_its(void **state)
{
	int codes[] = {3, 255};
	const struct workflow_retry retry = {.codes = codes, .n_codes = 2};
	const struct workflow_retry none = {0};

	(void)state;
	assert_true(workflow_retry_has_code(&retry, 3) && workflow_retry_has_code(&retry, 255));
	assert_false(workflow_retry_has_code(&retry, 4) || workflow_retry_has_code(&retry, 0));
	assert_false(workflow_retry_has_code(&none, 0));
}

static void a_notice_that_was_withdrawn_ends_no_pause(void **state)
{
	const struct run_options options = {.wait_ms = 0};
	struct run run = {.options = &options, .reaction.interrupts.event_fd = -1};
	struct interrupts *interrupts = &run.reaction.interrupts;
	struct notice notice;

	(void)state;
	pthread_mutex_init(&interrupts->lock, NULL);
	notice_set(&notice, "azure", "Preempt");
	interrupts_notice(interrupts, &notice);
	assert_int_equal(run_wait_for_retry(&run, NULL), -PENSTOCK_E_CANCELLED);
	notice.withdrawn = true;
	interrupts_notice(interrupts, &notice);

	assert_int_equal(run_wait_for_retry(&run, NULL), 0);
	assert_int_equal(atomic_load(&interrupts->cancel), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_pause_is_twice_the_last_one_up_to_a_limit),
		cmocka_unit_test(only_codes_of_the_list_are_its),
		cmocka_unit_test(a_notice_that_was_withdrawn_ends_no_pause),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
