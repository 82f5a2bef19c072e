/* Formats of metrics: for the files of src/metrics alone. */
#ifndef METRICS_INTERNAL_H
#define METRICS_INTERNAL_H

#include "metrics/metrics.h"

struct metrics_format {
	/*
	 * Parses records from the beginning of `data`. Returns the number of bytes consumed, or a
	 * negative code. The remaining bytes are the beginning of a record, and are passed again
	 * together with more bytes. `end` means that no more bytes follow.
	 */
	ssize_t (*take)(struct metrics_feed *feed, const char *data, size_t len, bool end,
		struct penstock_error *err);
	bool locks; /* a writer locks the file as SQLite does */
	size_t most; /* bytes of the largest file that is read; 0 for no limit */
};

extern const struct metrics_format metrics_events, metrics_lines, metrics_table, metrics_mlflow,
	metrics_mlflow_db, metrics_commit;

/* Like metrics_feed_init() for a file of MLflow with the series GROUP/NAME, at any path. */
int metrics_feed_init_mlflow(struct metrics_feed *feed, struct metrics *metrics, const char *group,
	const char *name, struct penstock_error *err);
/* Sets feed->problem, unless the file has an earlier problem. */
void metrics_problem(struct metrics_feed *feed, uint64_t offset, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Returns true, and sets feed->problem, if a file of this size is too large to be read. */
bool metrics_too_large(struct metrics_feed *feed, uint64_t size);
/* Adds a point to a series of this file. */
int metrics_feed_point(struct metrics_feed *feed, const char *name,
	const struct metrics_point *point, struct penstock_error *err);
/* Parses the whole text as a number, which may be "NaN" or "Infinity". */
bool metrics_number(const char *text, double *out);
/* Returns true for the names that programs give to the number of a step. */
bool metrics_is_step(const char *name);
/* Returns true for the names that programs give to a time. `unit_ms` gets the unit of the time in
 * ms; 0 if the unit depends on the value. */
bool metrics_is_time(const char *name, double *unit_ms);
/* Converts a time in the unit of metrics_is_time() to a wall clock in ms. Returns 0 if the result
 * is not between 0 and METRICS_TIME_MAX. */
int64_t metrics_time_ms(double value, double unit_ms);

/* Calls `line` for each whole line, without its end. Stops at an incomplete line of more than
 * LIMIT_METRICS_RECORD bytes, and ignores the rest of the file. */
ssize_t metrics_each_line(struct metrics_feed *feed, const char *data, size_t len, bool end,
	int (*line)(struct metrics_feed *feed, char *text, size_t len, uint64_t offset,
		struct penstock_error *err),
	struct penstock_error *err);

#endif
