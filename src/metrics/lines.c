/* Files with a JSON object on each line. An object without the number of a step or of an epoch has
 * no metrics. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "metrics/internal.h"
#include "s3/date.h"
#include "s3/json.h"

/* The numbers that JSON lacks, as Python writes them. */
static const char *const words[] = {"-Infinity", "Infinity", "NaN"};

/* Quotes the numbers that JSON lacks, so that the line is JSON. */
static int quote_numbers(const char *text, size_t len, struct buf *out)
{
	bool inside = false;
	size_t at = 0;

	while (at < len) {
		size_t n = 1;
		bool word = false;

		if (text[at] == '"')
			inside = !inside;
		if (inside && text[at] == '\\' && at + 1 < len)
			n = 2;
		for (size_t i = 0; !inside && !word && i < ARRAY_SIZE(words); i++) {
			word = str_starts(text + at, words[i]);
			n = word ? strlen(words[i]) : 1;
		}
		if (word)
			buf_add_char(out, '"');
		buf_add(out, text + at, n);
		if (word)
			buf_add_char(out, '"');
		at += n;
	}
	return buf_failed(out) ? -1 : 0;
}

static bool number_of(const json_t *value, double *out)
{
	if (json_is_number(value)) {
		*out = json_number_value(value);
		return true;
	}
	if (!json_is_string(value))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (strcmp(json_string_value(value), words[i]) == 0)
			return metrics_number(words[i], out);
	return false;
}

static int64_t time_of(const json_t *value, double unit_ms)
{
	double number;
	int64_t ns;

	if (json_is_number(value) && number_of(value, &number))
		return metrics_time_ms(number, unit_ms);
	return json_is_string(value) && date_parse_iso(json_string_value(value), &ns)
		       ? ns / NS_PER_MS
		       : 0;
}

/* Finds the step and the time of a line. Returns false if the line has neither a step nor an epoch,
 * or a step beyond 2^53. A line that has only an epoch gets the step of the last line with a step,
 * or the epoch if there is no such line: after steps, the small number of an epoch would look like
 * the step of a resumed training run. */
static bool read_place(struct metrics_feed *feed, json_t *line, struct metrics_point *point)
{
	const json_t *epoch = json_object_get(line, "epoch");
	bool found = json_is_number(epoch), stepped = false;
	double unit_ms, step = feed->stepped ? feed->step : json_number_value(epoch);
	const char *name;
	json_t *value;

	json_object_foreach (line, name, value) {
		if (metrics_is_step(name) && json_is_number(value)) {
			step = json_number_value(value);
			found = stepped = true;
		} else if (metrics_is_time(name, &unit_ms)) {
			point->time_ms = time_of(value, unit_ms);
		}
	}
	if (!found || fabs(step) > (double)(1LL << 53))
		return false;
	if (stepped) {
		feed->stepped = true;
		feed->step = step;
	}
	point->step = (int64_t)step;
	return true;
}

struct walk {
	struct metrics_feed *feed;
	struct metrics_point *point;
	struct penstock_error *err;
};

static int add_members(const struct walk *w, const char *below, json_t *object, int depth)
{
	const char *name;
	json_t *value;
	double unit_ms;
	int r = 0;

	json_object_foreach (object, name, value) {
		_cleanup_free_ char *full = NULL;

		if (r < 0)
			break;
		if (!*below && (metrics_is_step(name) || metrics_is_time(name, &unit_ms)))
			continue;
		full = str_printf("%s%s%.*s", below, *below ? "/" : "", LIMIT_METRICS_NAME, name);
		if (!full)
			r = error_memory(w->err);
		else if (json_is_object(value) && depth < LIMIT_METRICS_DEPTH)
			r = add_members(w, full, value, depth + 1);
		else if (number_of(value, &w->point->value))
			r = metrics_feed_point(w->feed, full, w->point, w->err);
	}
	return r;
}

static int line(struct metrics_feed *feed, char *text, size_t len, uint64_t offset,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf json = BUF_INIT(2 * LIMIT_METRICS_RECORD + 64);
	_cleanup_(s3_json_freep) json_t *object = NULL;
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	struct metrics_point point = {0};
	int r;

	if (quote_numbers(text, len, &json) < 0)
		return json.failure == BUF_NO_MEMORY ? error_memory(err) : 0;
	r = s3_json_load(json.data, json.len, &object, &e);
	if (r == -(int)PENSTOCK_E_MEMORY)
		return error_move(err, &e);
	if (r < 0 || !json_is_object(object)) {
		metrics_problem(feed, offset, "the line is not a JSON object");
		return 0;
	}
	if (!read_place(feed, object, &point))
		return 0;
	return add_members(
		&(struct walk){.feed = feed, .point = &point, .err = err}, "", object, 1);
}

static ssize_t take(struct metrics_feed *feed, const char *data, size_t len, bool end,
	struct penstock_error *err)
{
	return metrics_each_line(feed, data, len, end, line, err);
}

const struct metrics_format metrics_lines = {.take = take};
