#include "server/monitor/metrics.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"

/* Upper bounds of the histogram's buckets, in microseconds; one more bucket, +Inf, follows. */
static const int64_t bounds_us[] = {500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000,
	500000, 1000000, 2500000, 5000000, 10000000};
#define N_BOUNDS ARRAY_SIZE(bounds_us)

/* Any other status is counted in the last entry. */
static const unsigned statuses[] = {
	200, 204, 206, 304, 400, 403, 404, 405, 409, 411, 412, 413, 416, 500, 501, 503, 507, 0};
#define N_STATUSES ARRAY_SIZE(statuses)

struct operation {
	atomic_ullong by_status[N_STATUSES];
	atomic_ullong slower[N_BOUNDS + 1]; /* not cumulative */
	atomic_ullong ns, received, sent;
};

struct metrics {
	size_t n;
	struct operation operations[];
};

int metrics_new(struct metrics **out, size_t n_operations, struct penstock_error *err)
{
	struct metrics *metrics = calloc(
		1, sizeof(*metrics) + n_operations * sizeof(struct operation));

	if (!metrics)
		return error_memory(err);
	metrics->n = n_operations;
	*out = metrics;
	return 0;
}

void metrics_free(struct metrics *metrics)
{
	free(metrics);
}

static void add(atomic_ullong *to, uint64_t n)
{
	atomic_fetch_add_explicit(to, n, memory_order_relaxed);
}

static unsigned long long get(atomic_ullong *from)
{
	return atomic_load_explicit(from, memory_order_relaxed);
}

void metrics_count(struct metrics *metrics, const struct metrics_request *request)
{
	struct operation *o = &metrics->operations[request->operation];
	size_t status = 0, bound = 0;

	while (status < N_STATUSES - 1 && statuses[status] != request->status)
		status++;
	while (bound < N_BOUNDS && request->ns > bounds_us[bound] * 1000)
		bound++;
	add(&o->by_status[status], 1);
	add(&o->slower[bound], 1);
	add(&o->ns, request->ns > 0 ? (uint64_t)request->ns : 0);
	add(&o->received, request->received);
	add(&o->sent, request->sent);
}

static unsigned long long requests_of(struct operation *o)
{
	unsigned long long n = 0;

	for (size_t i = 0; i < N_STATUSES; i++)
		n += get(&o->by_status[i]);
	return n;
}

void metrics_write_heading(struct buf *out, const char *name, const char *kind, const char *help)
{
	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

void metrics_write_value(
	struct buf *out, const char *name, const char *kind, const char *help, double value)
{
	metrics_write_heading(out, name, kind, help);
	buf_printf(out, "%s %.17g\n", name, value);
}

static void write_statuses(struct operation *o, const char *name, struct buf *out)
{
	for (size_t i = 0; i < N_STATUSES; i++) {
		unsigned long long n = get(&o->by_status[i]);

		if (n && statuses[i])
			buf_printf(out,
				"penstock_requests_total{operation=\"%s\",status=\"%u\"} %llu\n",
				name, statuses[i], n);
		else if (n)
			buf_printf(out,
				"penstock_requests_total{operation=\"%s\",status=\"other\"} %llu\n",
				name, n);
	}
}

static void write_histogram(struct operation *o, const char *name, struct buf *out)
{
	unsigned long long n = 0;

	for (size_t i = 0; i < N_BOUNDS; i++) {
		n += get(&o->slower[i]);
		buf_printf(out,
			"penstock_request_seconds_bucket{operation=\"%s\",le=\"%g\"} %llu\n", name,
			(double)bounds_us[i] / 1e6, n);
	}
	n += get(&o->slower[N_BOUNDS]);
	buf_printf(out, "penstock_request_seconds_bucket{operation=\"%s\",le=\"+Inf\"} %llu\n",
		name, n);
	buf_printf(out, "penstock_request_seconds_sum{operation=\"%s\"} %.9g\n", name,
		(double)get(&o->ns) / 1e9);
	buf_printf(out, "penstock_request_seconds_count{operation=\"%s\"} %llu\n", name, n);
}

static void write_received(struct operation *o, const char *name, struct buf *out)
{
	buf_printf(out, "penstock_received_bytes_total{operation=\"%s\"} %llu\n", name,
		get(&o->received));
}

static void write_sent(struct operation *o, const char *name, struct buf *out)
{
	buf_printf(out, "penstock_sent_bytes_total{operation=\"%s\"} %llu\n", name, get(&o->sent));
}

/* Calls `write` for each operation that has had requests. */
static void each(struct metrics *metrics, metrics_name_fn *name,
	void (*write)(struct operation *o, const char *name, struct buf *out), struct buf *out)
{
	for (size_t i = 0; i < metrics->n; i++) {
		char text[METRICS_NAME_SIZE];

		if (!requests_of(&metrics->operations[i]))
			continue;
		name(i, text);
		write(&metrics->operations[i], text, out);
	}
}

void metrics_write(struct metrics *metrics, metrics_name_fn *name, struct buf *out)
{
	metrics_write_heading(
		out, "penstock_requests_total", "counter", "Requests that have ended.");
	each(metrics, name, write_statuses, out);
	metrics_write_heading(out, "penstock_request_seconds", "histogram",
		"Time from the head of a request to the end of its reply.");
	each(metrics, name, write_histogram, out);
	metrics_write_heading(out, "penstock_received_bytes_total", "counter",
		"Bytes in the bodies of requests.");
	each(metrics, name, write_received, out);
	metrics_write_heading(
		out, "penstock_sent_bytes_total", "counter", "Bytes in the bodies of replies.");
	each(metrics, name, write_sent, out);
}
