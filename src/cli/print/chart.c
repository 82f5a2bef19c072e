#include "cli/print/chart.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/str.h"

/* Columns and rows of the dots in a character, and the least width of a plot in characters. */
enum { DOTS_X = 2, DOTS_Y = 4, MIN_PLOT = 8 };
#define LABEL_SIZE 24
/* More digits would make the labels too wide. */
#define LABEL_DIGITS "%.4g"

bool chart_unicode(void)
{
	const char *locale = str_env("LC_ALL");

	if (!locale)
		locale = str_env("LC_CTYPE");
	if (!locale)
		locale = str_env("LANG");
	return locale && (strcasestr(locale, "UTF-8") || strcasestr(locale, "UTF8"));
}

/* Sum, bounds and number of the finite values of a column. */
struct column {
	double sum, low, high;
	size_t n;
};

static void column_add(struct column *c, double value)
{
	if (!isfinite(value))
		return;
	c->low = c->n ? fmin(c->low, value) : value;
	c->high = c->n ? fmax(c->high, value) : value;
	c->sum += value;
	c->n++;
}

static double column_mean(const struct column *c)
{
	/* The sum of large values may be infinite, although the mean is finite. */
	return isfinite(c->sum) ? c->sum / (double)c->n : c->low / 2 + c->high / 2;
}

static struct column bounds_of(const double *values, size_t n)
{
	struct column all = {0};

	for (size_t i = 0; i < n; i++)
		column_add(&all, values[i]);
	return all;
}

/* Returns the position of `value` between two bounds: 0 to n - 1. */
static size_t place(double value, double low, double high, size_t n)
{
	double share = high / 2 - low / 2 > 0 ? (value / 2 - low / 2) / (high / 2 - low / 2) : 0.5;
	double at = share * (double)(n - 1) + 0.5;

	return at <= 0 ? 0 : at >= (double)n ? n - 1 : (size_t)at;
}

void chart_spark(const double *y, size_t n, unsigned width, char out[static CHART_SPARK_SIZE])
{
	static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	struct column all = bounds_of(y, n);
	size_t len = 0, w = width < CHART_SPARK_MAX ? width : CHART_SPARK_MAX;

	if (w > n)
		w = n;
	for (size_t i = 0; all.n && i < w; i++) {
		size_t from = i * n / w;
		struct column c = bounds_of(y + from, (i + 1) * n / w - from);
		const char *block =
			c.n ? blocks[place(column_mean(&c), all.low, all.high, ARRAY_SIZE(blocks))]
			    : " ";

		memcpy(out + len, block, strlen(block));
		len += strlen(block);
	}
	out[len] = '\0';
}

struct canvas {
	uint8_t *dots; /* dots of each character, as in a braille pattern */
	size_t columns, rows; /* characters */
};

static void set_dot(struct canvas *canvas, size_t x, size_t y)
{
	/* Dots 1, 2, 3 and 7 are the left column, from top to bottom; see Unicode, "Braille
	 * Patterns". */
	static const uint8_t bits[DOTS_X][DOTS_Y] = {
		{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
	size_t below = canvas->rows * DOTS_Y - 1 - y;

	canvas->dots[below / DOTS_Y * canvas->columns + x / DOTS_X] |=
		bits[x % DOTS_X][below % DOTS_Y];
}

/* Draws the means of the columns that have points, with lines between them. */
static void draw(struct canvas *canvas, const struct column *columns, const struct column *all)
{
	size_t width = canvas->columns * DOTS_X, height = canvas->rows * DOTS_Y;
	size_t last_x = SIZE_MAX, last_y = 0;

	for (size_t x = 0; x < width; x++) {
		size_t y;

		if (!columns[x].n)
			continue;
		y = place(column_mean(&columns[x]), all->low, all->high, height);
		/* Draw a line from the last column that has points. */
		for (size_t at = last_x == SIZE_MAX ? x : last_x; at <= x; at++) {
			size_t from = last_x == SIZE_MAX || last_x == x ? y : last_y;
			double share = last_x == SIZE_MAX || last_x == x
					       ? 1
					       : (double)(at - last_x) / (double)(x - last_x);
			double level = (double)from + ((double)y - (double)from) * share;

			set_dot(canvas, at, (size_t)(level + 0.5));
		}
		/* Fill the gaps in steep parts. */
		for (size_t up = last_x != SIZE_MAX && x - last_x == 1 ? (y < last_y ? y : last_y)
								       : y;
			last_x != SIZE_MAX && x - last_x == 1 && up <= (y < last_y ? last_y : y);
			up++)
			set_dot(canvas, x, up);
		last_x = x;
		last_y = y;
	}
}

static void print_row(FILE *to, const struct canvas *canvas, size_t row, bool unicode)
{
	const uint8_t *dots = canvas->dots + row * canvas->columns;
	size_t used = canvas->columns;

	while (used && !dots[used - 1])
		used--;
	for (size_t i = 0; i < used; i++) {
		if (!unicode || !dots[i])
			putc(dots[i] ? '*' : ' ', to);
		else /* U+2800 and the dots, in UTF-8 */
			fprintf(to, "\xe2%c%c", 0xa0 | dots[i] >> 6, 0x80 | (dots[i] & 0x3f));
	}
	putc('\n', to);
}

static void print_axis(FILE *to, const struct chart *chart, size_t margin, size_t columns)
{
	const char *from = chart->from ? chart->from : "", *end = chart->to ? chart->to : "";
	size_t space = columns > strlen(from) + strlen(end) ? columns - strlen(from) - strlen(end)
							    : 1;

	fprintf(to, "%*s%s", (int)margin, "", chart->unicode ? "└" : "+");
	for (size_t i = 0; i < columns; i++)
		fputs(chart->unicode ? "─" : "-", to);
	fprintf(to, "\n%*s %s%*s%s\n", (int)margin, "", from, (int)space, "", end);
}

int chart_print(FILE *to, const struct chart *chart)
{
	struct column all = bounds_of(chart->y, chart->n);
	char high[LABEL_SIZE], low[LABEL_SIZE];
	_cleanup_free_ struct column *columns = NULL;
	_cleanup_free_ uint8_t *dots = NULL;
	struct canvas canvas = {.rows = chart->height > 3 ? chart->height - 2 : 1};
	size_t margin;

	if (!all.n || chart->n < 2)
		return 0;
	snprintf(high, sizeof(high), LABEL_DIGITS, all.high);
	snprintf(low, sizeof(low), LABEL_DIGITS, all.low);
	margin = strlen(high) > strlen(low) ? strlen(high) : strlen(low);
	canvas.columns = chart->width > margin + 1 + MIN_PLOT ? chart->width - margin - 1
							      : MIN_PLOT;
	columns = calloc(canvas.columns * DOTS_X, sizeof(*columns));
	dots = calloc(canvas.columns * canvas.rows, 1);
	if (!columns || !dots)
		return -1;
	canvas.dots = dots;
	for (size_t i = 0; i < chart->n; i++)
		column_add(&columns[place(chart->x[i], chart->x[0], chart->x[chart->n - 1],
				   canvas.columns * DOTS_X)],
			chart->y[i]);
	draw(&canvas, columns, &all);
	for (size_t row = 0; row < canvas.rows; row++) {
		bool last = row == canvas.rows - 1;

		fprintf(to, "%*s%s", (int)margin,
			row == 0 ? high
			: last	 ? low
				 : "",
			!chart->unicode	   ? "|"
			: row == 0 || last ? "┤"
					   : "│");
		print_row(to, &canvas, row, chart->unicode);
	}
	print_axis(to, chart, margin, canvas.columns);
	return 0;
}
