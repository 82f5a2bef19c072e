/*
 * Tables of comma-separated values (RFC 4180, without line ends in fields), whose first line has
 * the names of the columns: files of Lightning's CSVLogger, and the usage of a run. If a row has
 * the value V in a column "name", the values in its other columns belong to the series V/COLUMN.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "metrics/internal.h"

/* Cuts off the next field, in place. Returns false at the end of the line. */
static bool next_field(char **at, char **field)
{
	char *from = *at, *to = *at;
	bool quoted;

	if (!from)
		return false;
	*field = to;
	quoted = *from == '"';
	if (quoted)
		from++;
	while (*from && (quoted || *from != ',')) {
		if (quoted && *from == '"') {
			from++;
			if (*from != '"') {
				quoted = false;
				continue;
			}
		}
		*to++ = *from++;
	}
	*at = *from ? from + 1 : NULL;
	*to = '\0';
	return true;
}

static int read_names(
	struct metrics_feed *feed, char *text, uint64_t offset, struct penstock_error *err)
{
	char *field;

	while (next_field(&text, &field)) {
		if (feed->columns.n == LIMIT_METRICS_COLUMNS) {
			metrics_problem(feed, offset, "the table has too many columns");
			feed->over = true;
			break;
		}
		if (strlist_add(&feed->columns, field) < 0)
			return error_memory(err);
	}
	return 0;
}

/* Finds the step, the time and the name of a row. */
static void read_place(const struct metrics_feed *feed, char *const *fields,
	struct metrics_point *point, char **name)
{
	double unit_ms, number;

	point->step = METRICS_NO_STEP;
	*name = NULL;
	for (size_t i = 0; i < feed->columns.n; i++) {
		const char *column = feed->columns.items[i];

		if (strcmp(column, "name") == 0)
			*name = fields[i];
		if (!fields[i] || !metrics_number(fields[i], &number) || !isfinite(number))
			continue;
		if (metrics_is_step(column) && fabs(number) < (double)(1LL << 53))
			point->step = (int64_t)number;
		else if (metrics_is_time(column, &unit_ms))
			point->time_ms = metrics_time_ms(number, unit_ms);
	}
}

static int row(struct metrics_feed *feed, char *text, size_t len, uint64_t offset,
	struct penstock_error *err)
{
	_cleanup_free_ char **fields = NULL;
	struct metrics_point point = {0};
	double unit_ms;
	char *name, *field;
	size_t n = 0;
	int r = 0;

	(void)len;
	if (!feed->columns.n)
		return read_names(feed, text, offset, err);
	fields = calloc(feed->columns.n, sizeof(*fields));
	if (!fields)
		return error_memory(err);
	while (next_field(&text, &field) && n < feed->columns.n)
		fields[n++] = field;
	if (n < feed->columns.n) {
		metrics_problem(feed, offset, "the row has %zu of %zu fields", n, feed->columns.n);
		return 0;
	}
	read_place(feed, fields, &point, &name);
	for (size_t i = 0; r == 0 && i < n; i++) {
		const char *column = feed->columns.items[i];
		_cleanup_free_ char *full = NULL;

		if (metrics_is_step(column) || metrics_is_time(column, &unit_ms) ||
			fields[i] == name || !metrics_number(fields[i], &point.value))
			continue;
		full = str_printf("%.*s%s%.*s", LIMIT_METRICS_NAME, name ? name : "",
			name ? "/" : "", LIMIT_METRICS_NAME, column);
		r = full ? metrics_feed_point(feed, full, &point, err) : error_memory(err);
	}
	return r;
}

static ssize_t take(struct metrics_feed *feed, const char *data, size_t len, bool end,
	struct penstock_error *err)
{
	return metrics_each_line(feed, data, len, end, row, err);
}

const struct metrics_format metrics_table = {.take = take};
