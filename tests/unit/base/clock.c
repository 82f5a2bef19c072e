#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>

#include "base/clock.h"

static void check_format(int64_t wall_ns, const char *text)
{
	char out[CLOCK_RFC3339_SIZE];

	clock_format_rfc3339(wall_ns, out);
	assert_string_equal(out, text);
}

/* Times are written in UTC with milliseconds. */
static void times_are_written_in_utc(void **state)
{
	(void)state;
	check_format(0, "1970-01-01T00:00:00.000Z");
	check_format(INT64_C(1795000000123999999), "2026-11-18T11:06:40.123Z");
	check_format(INT64_C(951782400) * NS_PER_S, "2000-02-29T00:00:00.000Z");
}

static void ignore(int signal)
{
	(void)signal;
}

/* A sleep lasts its full time even when signals arrive. */
static void a_sleep_survives_signals(void **state)
{
	const struct itimerval often = {{0, 2000}, {0, 2000}};
	const struct itimerval never = {{0, 0}, {0, 0}};
	int64_t begin;

	(void)state;
	signal(SIGALRM, ignore);
	setitimer(ITIMER_REAL, &often, NULL);
	begin = clock_monotonic_ns();
	clock_sleep_ms(50);
	setitimer(ITIMER_REAL, &never, NULL);
	assert_true(clock_monotonic_ns() - begin >= 50 * NS_PER_MS);
}

/* The wall clock counts from 1970, and the monotonic clock never goes back. */
static void clocks_go_forward(void **state)
{
	int64_t before = clock_monotonic_ns();

	(void)state;
	for (int i = 0; i < 1000; i++) {
		int64_t now = clock_monotonic_ns();

		assert_true(now >= before);
		before = now;
	}
	assert_true(clock_wall_ns() > INT64_C(1700000000) * NS_PER_S);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(times_are_written_in_utc),
		cmocka_unit_test(a_sleep_survives_signals),
		cmocka_unit_test(clocks_go_forward),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
