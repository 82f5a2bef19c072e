/* Parsing of texts, shared by the formats. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "metrics/internal.h"

/* A number from this value on is a wall clock in ms: in s, it would be after the year 5000. */
#define MS_FROM 1e11

void metrics_problem(struct metrics_feed *feed, uint64_t offset, const char *fmt, ...)
{
	char reason[96];
	va_list ap;

	if (*feed->problem)
		return;
	va_start(ap, fmt);
	vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	snprintf(feed->problem, sizeof(feed->problem), "byte %llu: %s", (unsigned long long)offset,
		reason);
}

bool metrics_too_large(struct metrics_feed *feed, uint64_t size)
{
	if (!feed->format->most || size <= feed->format->most)
		return false;
	metrics_problem(feed, 0, "the file is larger than %zu MiB", feed->format->most / MIB);
	feed->over = true;
	return true;
}

int metrics_feed_point(struct metrics_feed *feed, const char *name,
	const struct metrics_point *point, struct penstock_error *err)
{
	return metrics_add(feed->metrics, feed->group, name, point, err);
}

bool metrics_number(const char *text, double *out)
{
	char *end;

	/* strtod() accepts hexadecimal numbers and leading blanks, which are not valid metrics. */
	if (strpbrk(text, "xX \t"))
		return false;
	*out = strtod(text, &end);
	return end != text && !*end;
}

bool metrics_is_step(const char *name)
{
	static const char *const names[] = {
		"step", "global_step", "_step", "steps", "iteration", "iter"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

bool metrics_is_time(const char *name, double *unit_ms)
{
	static const char *const names[] = {"time", "timestamp", "_timestamp", "wall_time", "ts"};

	*unit_ms = 0;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(names[i], name) == 0)
			return true;
	*unit_ms = 1;
	return strcmp(name, "time_ms") == 0;
}

int64_t metrics_time_ms(double value, double unit_ms)
{
	if (unit_ms == 0)
		unit_ms = fabs(value) < MS_FROM ? 1000 : 1;
	value *= unit_ms;
	return value > 0 && value < (double)METRICS_TIME_MAX ? (int64_t)value : 0;
}

ssize_t metrics_each_line(struct metrics_feed *feed, const char *data, size_t len, bool end,
	int (*line)(struct metrics_feed *feed, char *text, size_t len, uint64_t offset,
		struct penstock_error *err),
	struct penstock_error *err)
{
	size_t at = 0;

	while (at < len && !feed->over) {
		const char *newline = memchr(data + at, '\n', len - at);
		size_t n = newline ? (size_t)(newline - data) - at : len - at;
		_cleanup_free_ char *text = NULL;
		int r;

		if (!newline && !end) {
			if (n > LIMIT_METRICS_RECORD) {
				metrics_problem(feed, feed->offset + at, "the line is too long");
				feed->over = true;
			}
			break;
		}
		text = malloc(n + 1);
		if (!text)
			return error_memory(err);
		memcpy(text, data + at, n);
		text[n] = '\0';
		if (n && text[n - 1] == '\r')
			text[--n] = '\0';
		r = n ? line(feed, text, n, feed->offset + at, err) : 0;
		if (r < 0)
			return r;
		at += (newline ? (size_t)(newline - data) + 1 : len) - at;
	}
	return (ssize_t)at;
}
