/* Plots: every point is on the canvas, for any numbers. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cli/print/chart.h"

static char *plot(const double *x, const double *y, size_t n, unsigned width, unsigned height)
{
	struct chart chart = {.width = width, .height = height, .x = x, .y = y, .n = n};
	char *text = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&text, &len);

	assert_non_null(to);
	assert_int_equal(chart_print(to, &chart), 0);
	fclose(to);
	return text;
}

static size_t count(const char *text, char c)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == c;
	return n;
}

static void test_a_line_rises_from_corner_to_corner(void **state)
{
	const double x[] = {0, 1, 2, 3}, y[] = {0, 1, 2, 3};
	char *text = plot(x, y, 4, 20, 6);

	(void)state;
	assert_int_equal(count(text, '\n'), 6);
	assert_true(count(text, '*') >= 18);
	assert_ptr_equal(strstr(text, "3|"), text);
	assert_non_null(strstr(text, "\n0|*"));
	free(text);
}

static void test_odd_numbers(void **state)
{
	static const double sets[][3] = {{1, 1, 1}, {0, 0, 0}, {-DBL_MAX, 0, DBL_MAX},
		{DBL_MIN, DBL_MIN / 4, 0}, {NAN, 1, INFINITY}, {-1e-300, 1e300, -1e300}};
	static const double steps[][3] = {{0, 1, 2}, {5, 5, 5}, {-DBL_MAX, 0, DBL_MAX}};

	(void)state;
	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
		for (size_t k = 0; k < sizeof(steps) / sizeof(steps[0]); k++) {
			char *text = plot(steps[k], sets[i], 3, 10, 4);
			char spark[CHART_SPARK_SIZE];

			assert_true(count(text, '*') > 0);
			free(text);
			text = plot(steps[k], sets[i], 1, 1000, 100);
			free(text);
			chart_spark(sets[i], 3, 2, spark);
			assert_true(strlen(spark) < sizeof(spark));
		}
	}
}

static void test_without_a_finite_point_there_is_nothing(void **state)
{
	const double x[] = {1, 2}, y[] = {NAN, -INFINITY};
	char *text = plot(x, y, 2, 40, 10), spark[CHART_SPARK_SIZE];

	(void)state;
	assert_string_equal(text, "");
	free(text);
	text = plot(x, y, 0, 40, 10);
	assert_string_equal(text, "");
	free(text);
	chart_spark(y, 2, 16, spark);
	assert_string_equal(spark, "");
	chart_spark(y, 0, 16, spark);
	assert_string_equal(spark, "");
}

static void test_one_point_has_no_plot(void **state)
{
	const double x[] = {3}, y[] = {0.5};
	char *text = plot(x, y, 1, 40, 10);

	(void)state;
	assert_string_equal(text, "");
	free(text);
}

static void test_sparks_are_at_most_as_wide_as_asked(void **state)
{
	double y[1000];
	char spark[CHART_SPARK_SIZE];

	(void)state;
	for (size_t i = 0; i < 1000; i++)
		y[i] = (double)i;
	chart_spark(y, 1000, 1000, spark);
	assert_int_equal(strlen(spark), 3 * CHART_SPARK_MAX);
	chart_spark(y, 3, 16, spark);
	assert_string_equal(spark, "▁▅█");
	y[1] = NAN;
	chart_spark(y, 3, 16, spark);
	assert_string_equal(spark, "▁ █");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_line_rises_from_corner_to_corner),
		cmocka_unit_test(test_odd_numbers),
		cmocka_unit_test(test_without_a_finite_point_there_is_nothing),
		cmocka_unit_test(test_one_point_has_no_plot),
		cmocka_unit_test(test_sparks_are_at_most_as_wide_as_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
