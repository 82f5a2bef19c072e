/*
 * Counts of requests, as Prometheus reads them.
 *
 *	metrics_new(&metrics, n_operations, err);
 *	metrics_count(metrics, &(struct metrics_request){.operation = 3, .status = 200, .ns = ns});
 *	metrics_write(metrics, name_of_operation, &text);
 *
 * Counting takes no lock.
 */
#ifndef SERVER_MONITOR_METRICS_H
#define SERVER_MONITOR_METRICS_H

#include <stddef.h>
#include <stdint.h>

struct buf;
struct metrics;
struct penstock_error;

struct metrics_request {
	size_t operation; /* below the number of operations */
	unsigned status;
	int64_t ns; /* from the head of the request to the end of the reply */
	uint64_t received, sent; /* bytes of the bodies */
};

int metrics_new(struct metrics **out, size_t n_operations, struct penstock_error *err);
void metrics_count(struct metrics *metrics, const struct metrics_request *request);

#define METRICS_NAME_SIZE 64
typedef void metrics_name_fn(size_t operation, char out[static METRICS_NAME_SIZE]);
void metrics_write(struct metrics *metrics, metrics_name_fn *name, struct buf *out);
/* Appends the description of values that follow; `kind` is "gauge" or "counter". */
void metrics_write_heading(struct buf *out, const char *name, const char *kind, const char *help);
/* Appends one value with its description. */
void metrics_write_value(
	struct buf *out, const char *name, const char *kind, const char *help, double value);
/* `metrics` may be NULL. */
void metrics_free(struct metrics *metrics);

#endif
