/* Metrics of checkpoints, from their commits. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "checkpoint/commit.h"
#include "metrics/internal.h"

static ssize_t take(struct metrics_feed *feed, const char *data, size_t len, bool end,
	struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	_cleanup_(commit_freep) struct commit *c = NULL;
	int r;

	if (len > LIMIT_COMMIT)
		feed->over = true;
	if (!end || feed->over)
		return 0;
	r = commit_parse(&c, data, len, feed->group, &e);
	if (r == -(int)PENSTOCK_E_MEMORY)
		return error_move(err, &e);
	if (r < 0) {
		metrics_problem(feed, 0, "the file is not a commit of a checkpoint");
		return (ssize_t)len;
	}
	for (size_t i = 0; i < c->n_metrics; i++) {
		struct metrics_point point = {.step = (int64_t)c->step,
			.time_ms = c->time_ns / NS_PER_MS,
			.value = c->metrics[i].value};

		r = metrics_feed_point(feed, c->metrics[i].name, &point, err);
		if (r < 0)
			return r;
	}
	return (ssize_t)len;
}

const struct metrics_format metrics_commit = {.take = take};
