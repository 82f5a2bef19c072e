/* Metrics of MLflow's file store: a line "TIMESTAMP_MS VALUE STEP" for each point. */
#include <string.h>

#include "base/str.h"
#include "metrics/internal.h"

static int line(struct metrics_feed *feed, char *text, size_t len, uint64_t offset,
	struct penstock_error *err)
{
	char *words[3] = {0}, *rest = text;
	struct metrics_point point = {0};

	(void)len;
	for (size_t i = 0; i < 3; i++)
		words[i] = strtok_r(NULL, " ", &rest);
	if (!words[2] || !str_to_i64(words[0], 0, METRICS_TIME_MAX, &point.time_ms) ||
		!metrics_number(words[1], &point.value) ||
		!str_to_i64(words[2], METRICS_NO_STEP + 1, INT64_MAX, &point.step)) {
		metrics_problem(feed, offset, "the line is not a metric of MLflow");
		return 0;
	}
	return metrics_feed_point(feed, feed->name, &point, err);
}

static ssize_t take(struct metrics_feed *feed, const char *data, size_t len, bool end,
	struct penstock_error *err)
{
	return metrics_each_line(feed, data, len, end, line, err);
}

const struct metrics_format metrics_mlflow = {.take = take};
