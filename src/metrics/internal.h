/* Formats of metrics: for the files of src/metrics alone. */
#ifndef METRICS_INTERNAL_H
#define METRICS_INTERNAL_H

#include "metrics/metrics.h"

struct metrics_format {
	/*
	 * Takes records from the beginning of the bytes. Returns the number of bytes that it is
	 * done with, or a negative code; what is left is the beginning of a record, which comes
	 * again with more bytes. `end` means that no more bytes follow.
	 */
	ssize_t (*take)(struct metrics_feed *feed, const char *data, size_t len, bool end,
		struct penstock_error *err);
};

extern const struct metrics_format metrics_events, metrics_lines, metrics_table, metrics_mlflow,
	metrics_commit;

/* Notes the first problem of a file. */
void metrics_problem(struct metrics_feed *feed, uint64_t offset, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Adds a point of this file. */
int metrics_feed_point(struct metrics_feed *feed, const char *name,
	const struct metrics_point *point, struct penstock_error *err);
/* Parses a number, "NaN" and "Infinity" included, in all of the text. */
bool metrics_number(const char *text, double *out);
/* Returns true for the names that programs give to the number of a step. */
bool metrics_is_step(const char *name);
/* Likewise for the time. `unit_ms` gets how many ms its unit has; 0 if that depends on the
 * value. */
bool metrics_is_time(const char *name, double *unit_ms);
/* Makes a wall clock of a number of that unit; 0 if it is not between 0 and METRICS_TIME_MAX. */
int64_t metrics_time_ms(double value, double unit_ms);

/* Calls `line` for each whole line, without its end. Lines beyond LIMIT_METRICS_RECORD are
 * skipped. */
ssize_t metrics_each_line(struct metrics_feed *feed, const char *data, size_t len, bool end,
	int (*line)(struct metrics_feed *feed, char *text, size_t len, uint64_t offset,
		struct penstock_error *err),
	struct penstock_error *err);

#endif
