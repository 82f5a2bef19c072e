/*
 * Plots in a terminal.
 *
 *	struct chart chart = {.width = 80, .height = 12, .unicode = chart_unicode()};
 *
 *	chart.n = n;	// points with x and y
 *	chart.x = steps;
 *	chart.y = losses;
 *	chart_print(stdout, &chart);
 *	chart_spark(losses, n, 16, text);	// "▇▅▃▂▁▁"
 */
#ifndef CLI_PRINT_CHART_H
#define CLI_PRINT_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct chart {
	unsigned width, height; /* characters, with the axes */
	bool unicode; /* braille patterns, eight dots in a character; else asterisks */
	const double *x, *y; /* in the order of x; a `y` that is not finite is a gap */
	size_t n;
	const char *from, *to; /* labels of the first and the last x; may be NULL */
};

/* Returns true if the locale's encoding is UTF-8. */
bool chart_unicode(void);
/* Returns 0, or -1 if out of memory. Prints nothing if there is only one point, or if no point is
 * finite. */
int chart_print(FILE *to, const struct chart *chart);
#define CHART_SPARK_MAX	 32
#define CHART_SPARK_SIZE (3 * CHART_SPARK_MAX + 1)
/* Draws a line of at most `width` (up to CHART_SPARK_MAX) blocks. The line is "" if no point is
 * finite. */
void chart_spark(const double *y, size_t n, unsigned width, char out[static CHART_SPARK_SIZE]);

#endif
