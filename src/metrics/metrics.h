/*
 * Metrics of a training run: numbers by step and time that training code writes.
 *
 *	struct metrics metrics = {0};
 *	struct metrics_feed feed;
 *
 *	metrics_feed_init(&feed, &metrics, "logs/events.out.tfevents.1700000000.node7", err);
 *	while (r == 0 && (n = read(fd, block, sizeof(block))) > 0)
 *		r = metrics_feed_add(&feed, block, (size_t)n, err);
 *	metrics_feed_release(&feed);
 *	...	metrics.series[0].name is "logs/loss"
 *	metrics_release(&metrics);
 *
 * read.h reads all files of an output in this way.
 *
 * | file | kind | name of a series |
 * | `*tfevents*` | event file of TensorBoard | its directory and the tag |
 * | `metrics*.jsonl`, `log*.jsonl`, `*history*.jsonl` | an object per line | directory and member |
 * | `metrics.csv`, `*.usage` | a table whose first line has the names | directory and column |
 * | `mlruns/E/R/metrics/NAME` | file store of MLflow | `mlruns/E/R` and NAME |
 * | `mlflow.db` | database of MLflow | directory, `mlflow.db/E/R` and metric |
 * | `COMMIT.json`, `*.COMMIT.json` | commit of a checkpoint | directory of checkpoints, metric |
 *
 * A file may still grow: the bytes of an incomplete record are kept for the next call.
 * All input is untrusted. Not thread-safe.
 */
#ifndef METRICS_METRICS_H
#define METRICS_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

struct penstock_error;

#define METRICS_NO_STEP INT64_MIN
/* The largest wall clock in ms that also fits into an int64_t in ns. */
#define METRICS_TIME_MAX (INT64_MAX / 1000000)

struct metrics_point {
	int64_t step; /* METRICS_NO_STEP if the point has none */
	int64_t time_ms; /* wall clock; 0 if unknown */
	double value; /* may be infinite or NaN */
};

/* Steps that a resumed training run wrote again. */
struct metrics_repeat {
	int64_t from, to; /* the first and the last repeated step */
	int64_t time_ms; /* time of the last lost point; 0 if unknown */
};

/*
 * Points in the order in which they were written. A point whose step is lower than that of the
 * previous point comes from a resumed training run. The point replaces the earlier points from its
 * step on: training has repeated these steps.
 */
struct metrics_series {
	char *name; /* UTF-8 */
	struct metrics_point *points;
	size_t n, room;
	/* Beyond LIMIT_METRICS_POINTS, only every `stride`th point and the last point are kept. */
	uint64_t stride, seen;
	bool provisional; /* the last point is kept only as long as it is the last */
	struct metrics_repeat *repeats; /* the first LIMIT_METRICS_REPEATS repeats */
	size_t n_repeats;
};

struct metrics {
	struct metrics_series *series; /* in byte order of the names */
	size_t n;
	uint64_t dropped; /* points of series beyond LIMIT_METRICS_SERIES */
};

void metrics_release(struct metrics *metrics);
/* Adds a point to the series GROUP/NAME, or NAME if the group is "". Bytes of the name that are not
 * UTF-8, and control characters, become '?'; bytes beyond LIMIT_METRICS_NAME are left out. Points
 * of series beyond LIMIT_METRICS_SERIES are only counted in `dropped`. */
int metrics_add(struct metrics *metrics, const char *group, const char *name,
	const struct metrics_point *point, struct penstock_error *err);
/* Returns NULL if there is no such series. */
const struct metrics_series *metrics_find(const struct metrics *metrics, const char *name);

struct metrics_feed {
	struct metrics *metrics; /* borrowed */
	const struct metrics_format *format; /* NULL if the file has no metrics */
	char *group;
	char *name; /* name of the only series of a file of MLflow; NULL in other files */
	struct buf pending; /* the beginning of an incomplete record */
	uint64_t offset; /* offset of `pending` in the file */
	uint64_t skip; /* bytes still to skip of a record that is too large for metrics */
	bool over; /* ignore the rest of the file */
	bool stepped; /* a line had a step */
	double step; /* the last step */
	struct strlist columns; /* columns of a table */
	char problem[160]; /* the first problem, with its offset; "" if there is none */
};

/* Selects `format` by the path of the file below the output; NULL if the file has no metrics. */
int metrics_feed_init(struct metrics_feed *feed, struct metrics *metrics, const char *path,
	struct penstock_error *err);
/* Takes the next bytes of the file. Notes invalid bytes in `problem`, and skips them if the format
 * allows it. */
int metrics_feed_add(
	struct metrics_feed *feed, const void *data, size_t len, struct penstock_error *err);
/* Called at the end of a complete file: takes a last line without a line end, and notes an
 * incomplete record. */
int metrics_feed_end(struct metrics_feed *feed, struct penstock_error *err);
void metrics_feed_release(struct metrics_feed *feed);

#endif
