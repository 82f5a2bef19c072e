/* Tests alloc_fail.h itself: the allocations that count and fail, and the end of a loop. */
#include "alloc_fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <cmocka.h>

static void *volatile sink; /* prevents the compiler from removing allocations */

static bool malloc_works(void)
{
	sink = malloc(10);
	free(sink);
	return sink != NULL;
}

/* Exactly the requested allocation fails, and alloc_fail_disarm() reports the failure. */
static void only_the_nth_allocation_fails(void **state)
{
	(void)state;
	alloc_fail_arm(2);
	bool first = malloc_works(), second = malloc_works(), third = malloc_works();
	bool fired = alloc_fail_disarm();

	assert_true(first && !second && third && fired);
	assert_int_equal(alloc_fail_count(), 3);
	assert_true(malloc_works());
}

/* If there are fewer allocations, no allocation fails and the loop ends. */
static void a_short_scenario_does_not_fire(void **state)
{
	(void)state;
	alloc_fail_arm(3);
	bool works = malloc_works();
	bool fired = alloc_fail_disarm();

	assert_true(works);
	assert_false(fired);
}

/* Each function that allocates can fail, even inside libc. */
static void every_kind_of_allocation_fails(void **state)
{
	void *results[9];
	char *text = NULL;
	int rc;

	(void)state;
	alloc_fail_arm_all(1);
	results[0] = sink = malloc(10);
	results[1] = sink = calloc(1, 10);
	results[2] = sink = realloc(NULL, 10);
	results[3] = sink = reallocarray(NULL, 1, 10);
	results[4] = sink = aligned_alloc(64, 64);
	results[5] = sink = strdup("text");
	results[6] = sink = strndup("text", 2);
	results[7] = NULL;
	rc = posix_memalign(&results[7], 64, 64);
	results[8] = sink = fopen("/dev/null", "r");
	int printed = asprintf(&text, "%d", 7);
	alloc_fail_disarm();

	for (size_t i = 0; i < 9; i++)
		assert_null(results[i]);
	assert_true(rc != 0 && printed < 0);
}

static void *use_malloc(void *works)
{
	*(bool *)works = malloc_works();
	return NULL;
}

/* A pause applies to one thread; allocations of other threads still count. */
static void a_pause_is_of_one_thread(void **state)
{
	bool here, there = true;
	pthread_t thread;

	(void)state;
	alloc_fail_pause();
	alloc_fail_arm_all(1);
	here = malloc_works();
	pthread_create(&thread, NULL, use_malloc, &there);
	pthread_join(thread, NULL);
	alloc_fail_disarm();
	alloc_fail_resume();

	assert_true(here);
	assert_false(there);
}

/* Allocations of a skipped library do not count; fopen() allocates in libc. */
static void a_skipped_library_does_not_count(void **state)
{
	FILE *f;

	(void)state;
	alloc_fail_skip_library("libc.so");
	alloc_fail_arm_all(1);
	f = fopen("/dev/null", "r");
	alloc_fail_disarm();

	assert_non_null(f);
	fclose(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_the_nth_allocation_fails),
		cmocka_unit_test(a_short_scenario_does_not_fire),
		cmocka_unit_test(every_kind_of_allocation_fails),
		cmocka_unit_test(a_pause_is_of_one_thread),
		cmocka_unit_test(a_skipped_library_does_not_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
