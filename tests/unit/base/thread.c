#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

static void *signals_of(void *arg)
{
	pthread_sigmask(SIG_SETMASK, NULL, arg);
	return NULL;
}

/* A signal handler in a worker would interrupt the worker's system calls. */
static void a_thread_blocks_signals_and_its_starter_does_not(void **state)
{
	sigset_t there, here;
	pthread_t thread;

	(void)state;
	assert_int_equal(thread_start(&thread, "test", signals_of, &there, NULL), 0);
	pthread_join(thread, NULL);
	pthread_sigmask(SIG_SETMASK, NULL, &here);

	assert_true(sigismember(&there, SIGTERM));
	assert_true(sigismember(&there, SIGPIPE));
	assert_false(sigismember(&here, SIGTERM));
}

struct calls {
	atomic_int made[100];
	atomic_int stop;
	atomic_int cancel;
	size_t failing;
};

static int count_call(void *cookie, size_t i, struct penstock_error *err)
{
	struct calls *calls = cookie;

	atomic_fetch_add(&calls->made[i], 1);
	if (i + 1 == calls->failing)
		return error_set(err, PENSTOCK_E_CORRUPT, "item %zu", i);
	return 0;
}

static int wait_for_stop(void *cookie, size_t i, struct penstock_error *err)
{
	struct calls *calls = cookie;

	atomic_fetch_add(&calls->made[i], 1);
	atomic_store(&calls->cancel, 1);
	while (!atomic_load(&calls->stop))
		clock_sleep_ms(1);
	return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
}

static struct thread_work work_of(struct calls *calls)
{
	return (struct thread_work){.name = "test",
		.n = 100,
		.parallel = 4,
		.fn = count_call,
		.cookie = calls,
		.cancel = &calls->cancel,
		.stop = &calls->stop};
}

static void each_item_is_called_once(void **state)
{
	struct calls calls = {0};
	struct thread_work work = work_of(&calls);

	(void)state;
	assert_int_equal(thread_each(&work, NULL), 0);

	for (size_t i = 0; i < 100; i++)
		assert_int_equal(calls.made[i], 1);
	assert_int_equal(calls.stop, 0);
}

static void no_items_are_no_work(void **state)
{
	struct calls calls = {0};
	struct thread_work work = work_of(&calls);

	(void)state;
	work.n = 0;
	assert_int_equal(thread_each(&work, NULL), 0);
}

/* With one thread, the items after the failed item are not started. */
static void a_failure_ends_the_work_and_is_returned(void **state)
{
	struct calls calls = {.failing = 3};
	struct thread_work work = work_of(&calls);
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	(void)state;
	work.parallel = 1;
	assert_int_equal(thread_each(&work, &err), -PENSTOCK_E_CORRUPT);

	assert_non_null(strstr(err.message, "item 2"));
	assert_int_equal(calls.made[2], 1);
	assert_int_equal(calls.made[3], 0);
	penstock_error_release(&err);
}

/* The first item fails; the others wait until they are stopped. */
static int fail_or_wait(void *cookie, size_t i, struct penstock_error *err)
{
	struct calls *calls = cookie;

	if (i == 0)
		return error_set(err, PENSTOCK_E_CORRUPT, "item %zu", i);
	while (!atomic_load(&calls->stop))
		;
	return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
}

/* Items that stop early because of a failure also fail; their errors must not hide the first
 * one. */
static void the_failure_that_ended_the_others_is_returned(void **state)
{
	(void)state;
	for (int i = 0; i < 1000; i++) {
		struct calls calls = {0};
		struct thread_work work = work_of(&calls);
		struct penstock_error err = PENSTOCK_ERROR_INIT;

		work.fn = fail_or_wait;
		work.n = work.parallel = 2;
		assert_int_equal(thread_each(&work, &err), -PENSTOCK_E_CORRUPT);
		penstock_error_release(&err);
	}
}

static void a_cancel_reaches_the_calls_in_progress(void **state)
{
	struct calls calls = {0};
	struct thread_work work = work_of(&calls);

	(void)state;
	work.fn = wait_for_stop;
	assert_int_equal(thread_each(&work, NULL), -PENSTOCK_E_CANCELLED);

	assert_int_equal(calls.made[4], 0);
}

static void work_that_is_cancelled_before_does_not_start(void **state)
{
	struct calls calls = {.cancel = 1};
	struct thread_work work = work_of(&calls);

	(void)state;
	assert_int_equal(thread_each(&work, NULL), 0);

	assert_int_equal(calls.made[0], 0);
	assert_int_equal(calls.stop, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thread_blocks_signals_and_its_starter_does_not),
		cmocka_unit_test(each_item_is_called_once),
		cmocka_unit_test(no_items_are_no_work),
		cmocka_unit_test(a_failure_ends_the_work_and_is_returned),
		cmocka_unit_test(the_failure_that_ended_the_others_is_returned),
		cmocka_unit_test(a_cancel_reaches_the_calls_in_progress),
		cmocka_unit_test(work_that_is_cancelled_before_does_not_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
