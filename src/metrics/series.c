/* The series of a training run. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "metrics/metrics.h"

void metrics_release(struct metrics *metrics)
{
	for (size_t i = 0; i < metrics->n; i++) {
		free(metrics->series[i].name);
		free(metrics->series[i].points);
		free(metrics->series[i].repeats);
	}
	free(metrics->series);
	*metrics = (struct metrics){0};
}

/* Returns the index of a series, or the index at which to insert it if `*found` is false. */
static size_t place_of(const struct metrics *metrics, const char *name, bool *found)
{
	size_t from = 0, to = metrics->n;

	*found = false;
	while (from < to && !*found) {
		size_t middle = from + (to - from) / 2;
		int order = strcmp(metrics->series[middle].name, name);

		*found = order == 0;
		if (order < 0)
			from = middle + 1;
		else
			to = middle;
	}
	return *found ? to : from;
}

const struct metrics_series *metrics_find(const struct metrics *metrics, const char *name)
{
	bool found;
	size_t i = place_of(metrics, name, &found);

	return found ? &metrics->series[i] : NULL;
}

/* Inserts a series. Takes ownership of `name`, even on failure. Returns NULL if out of memory. */
static struct metrics_series *insert(struct metrics *metrics, size_t at, char *name)
{
	struct metrics_series *list = array_grow(
		metrics->series, metrics->n, sizeof(*metrics->series));

	if (!list) {
		free(name);
		return NULL;
	}
	metrics->series = list;
	memmove(&list[at + 1], &list[at], (metrics->n - at) * sizeof(*list));
	list[at] = (struct metrics_series){.name = name, .stride = 1};
	metrics->n++;
	return &list[at];
}

static void thin(struct metrics_series *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i += 2)
		s->points[n++] = s->points[i];
	s->n = n;
	s->stride *= 2;
}

/* Drops the points from `step` on, and notes them as repeated; `last` is the last of these
 * points. */
static int go_back(struct metrics_series *s, int64_t step, const struct metrics_point *last)
{
	struct metrics_repeat *list;

	while (s->n && s->points[s->n - 1].step >= step)
		s->n--;
	if (s->n_repeats == LIMIT_METRICS_REPEATS)
		return 0;
	list = array_grow(s->repeats, s->n_repeats, sizeof(*list));
	if (!list)
		return -1;
	s->repeats = list;
	list[s->n_repeats++] = (struct metrics_repeat){step, last->step, last->time_ms};
	return 0;
}

static int add_point(struct metrics_series *s, const struct metrics_point *point)
{
	const struct metrics_point last = s->n ? s->points[s->n - 1] : *point;

	if (s->provisional)
		s->n--;
	if (point->step != METRICS_NO_STEP && last.step > point->step &&
		go_back(s, point->step, &last) < 0)
		return -1;
	if (s->n == LIMIT_METRICS_POINTS)
		thin(s);
	if (s->n == s->room) {
		size_t room = s->room ? 2 * s->room : ARRAY_FIRST;
		struct metrics_point *list = reallocarray(s->points, room, sizeof(*list));

		if (!list)
			return -1;
		s->points = list;
		s->room = room;
	}
	s->provisional = s->seen++ % s->stride != 0;
	s->points[s->n++] = *point;
	return 0;
}

int metrics_add(struct metrics *metrics, const char *group, const char *name,
	const struct metrics_point *point, struct penstock_error *err)
{
	char *full = str_printf("%s%s%.*s", group, *group ? "/" : "", LIMIT_METRICS_NAME, name);
	struct metrics_series *series;
	bool found;
	size_t at;

	if (!full)
		return error_memory(err);
	str_make_utf8(full);
	str_hide_controls(full);
	at = place_of(metrics, full, &found);
	if (!found && metrics->n == LIMIT_METRICS_SERIES) {
		metrics->dropped++;
		free(full);
		return 0;
	}
	if (found) {
		free(full);
		series = &metrics->series[at];
	} else {
		series = insert(metrics, at, full);
	}
	return series && add_point(series, point) == 0 ? 0 : error_memory(err);
}
