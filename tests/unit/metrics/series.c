/* Series of metrics: order, resumed trainings, limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/limits.h"
#include "metrics/metrics.h"

static void add(
	struct metrics *metrics, const char *group, const char *name, int64_t step, double value)
{
	struct metrics_point point = {.step = step, .time_ms = 1, .value = value};

	assert_int_equal(metrics_add(metrics, group, name, &point, NULL), 0);
}

static void test_series_are_in_the_order_of_their_names(void **state)
{
	struct metrics metrics = {0};

	(void)state;
	add(&metrics, "", "m", 1, 1);
	add(&metrics, "a", "m", 1, 2);
	add(&metrics, "", "b", 1, 3);
	add(&metrics, "", "x\xff", 1, 4);
	add(&metrics, "a", "m", 2, 5);
	assert_int_equal(metrics.n, 4);
	assert_string_equal(metrics.series[0].name, "a/m");
	assert_string_equal(metrics.series[1].name, "b");
	assert_string_equal(metrics.series[2].name, "m");
	assert_string_equal(metrics.series[3].name, "x?");
	assert_int_equal(metrics_find(&metrics, "a/m")->n, 2);
	assert_null(metrics_find(&metrics, "c"));
	metrics_release(&metrics);
}

static void test_a_resumed_training_replaces_what_was_lost(void **state)
{
	struct metrics metrics = {0};
	const struct metrics_series *s;

	(void)state;
	for (int64_t i = 0; i <= 120; i++)
		add(&metrics, "", "loss", i, 1);
	for (int64_t i = 100; i <= 130; i++)
		add(&metrics, "", "loss", i, 2);
	s = metrics_find(&metrics, "loss");
	assert_int_equal(s->n, 131);
	for (size_t i = 0; i < s->n; i++) {
		assert_int_equal(s->points[i].step, i);
		assert_true(s->points[i].value == (i < 100 ? 1 : 2));
	}
	assert_int_equal(s->n_repeats, 1);
	assert_int_equal(s->repeats[0].from, 100);
	assert_int_equal(s->repeats[0].to, 120);
	/* All points with the same step, and all points without a step, are kept. */
	add(&metrics, "", "loss", 130, 3);
	assert_int_equal(s->n, 132);
	for (int i = 0; i < 10; i++)
		add(&metrics, "", "cpu", METRICS_NO_STEP, i);
	assert_int_equal(metrics_find(&metrics, "cpu")->n, 10);
	metrics_release(&metrics);
}

static void test_a_long_series_is_thinned_evenly(void **state)
{
	struct metrics metrics = {0};
	const struct metrics_series *s;
	int64_t n = 3 * (int64_t)LIMIT_METRICS_POINTS;

	(void)state;
	for (int64_t i = 0; i < n; i++)
		add(&metrics, "", "x", i, (double)i);
	s = metrics_find(&metrics, "x");
	assert_in_range(s->n, LIMIT_METRICS_POINTS / 2, LIMIT_METRICS_POINTS);
	assert_int_equal(s->seen, n);
	assert_int_equal(s->points[s->n - 1].step, n - 1);
	for (size_t i = 0; i + 1 < s->n; i++)
		assert_int_equal(s->points[i].step, i * s->stride);
	metrics_release(&metrics);
}

static void test_too_many_series_are_counted(void **state)
{
	struct metrics metrics = {0};
	char name[16];

	(void)state;
	for (int i = 0; i < LIMIT_METRICS_SERIES + 5; i++) {
		snprintf(name, sizeof(name), "%d", i);
		add(&metrics, "", name, 1, 1);
	}
	assert_int_equal(metrics.n, LIMIT_METRICS_SERIES);
	assert_int_equal(metrics.dropped, 5);
	metrics_release(&metrics);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_series_are_in_the_order_of_their_names),
		cmocka_unit_test(test_a_resumed_training_replaces_what_was_lost),
		cmocka_unit_test(test_a_long_series_is_thinned_evenly),
		cmocka_unit_test(test_too_many_series_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
