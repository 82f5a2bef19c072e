/* `dataset bench`: measures how fast samples are read, and names the limit. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "cli/dataset/dataset.h"
#include "cli/print/util.h"
#include "dataset/ahead.h"
#include "dataset/order/order.h"

#define BATCH  256 /* samples */
#define AHEAD  4 /* batches in flight */
#define WINDOW 16 /* blocks, as in the Loader */

/* The measurement of one order in which samples are read. */
struct measure {
	const char *name;
	enum order_kind kind;
	uint64_t samples, bytes;
	double seconds, cpu_seconds; /* elapsed time; CPU time of all threads */
};

static double cpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct batch {
	struct ahead_job *job;
	char *data;
	size_t room, n;
	uint64_t bytes;
};

static int start(struct set_operand *in, struct ahead *ahead, const struct order *order,
	struct batch *batch, uint64_t *at, struct penstock_error *err)
{
	uint64_t ids[BATCH], offsets[BATCH + 1], count = dataset_count(in->set);
	char *grown;
	int r;

	batch->n = count < BATCH ? (size_t)count : BATCH;
	order_batch(order, *at, batch->n, ids);
	*at = (*at + batch->n) % count;
	/* Use fewer samples if the batch exceeds the limit of a layout, or 64 MiB. */
	while ((r = dataset_layout(in->set, ids, batch->n, offsets, err)) ==
			-(int)PENSTOCK_E_LIMIT &&
		batch->n > 1) {
		penstock_error_release(err);
		batch->n /= 2;
	}
	if (r < 0)
		return r;
	while (batch->n > 1 && offsets[batch->n] > 64 * MIB)
		batch->n--;
	batch->bytes = offsets[batch->n];
	if (batch->bytes >= batch->room) {
		grown = realloc(batch->data, (size_t)batch->bytes + 1);
		if (!grown)
			return error_memory(err);
		batch->data = grown;
		batch->room = (size_t)batch->bytes + 1;
	}
	return ahead_start(ahead, ids, batch->n, batch->data, &batch->job, err);
}

static int run(struct set_operand *in, struct ahead *ahead, struct measure *m, int64_t ms,
	struct penstock_error *err)
{
	struct batch batches[AHEAD] = {{0}};
	uint64_t count = dataset_count(in->set), at = 0, block, size;
	struct order order;
	int64_t begin = clock_monotonic_ms(), now = begin;
	double cpu = cpu_now();
	int r;

	size = dataset_find(in->set, count / 2).size;
	block = size ? MIB / size : 1;
	block = block ? block : 1;
	r = order_init(&order,
		&(struct order_options){
			.kind = m->kind, .n = count, .block = block, .window = WINDOW},
		err);
	for (int i = 0; r == 0 && i < AHEAD; i++)
		r = start(in, ahead, &order, &batches[i], &at, err);
	for (int i = 0; r == 0 && now - begin < ms; i = (i + 1) % AHEAD) {
		struct ahead_job *job = batches[i].job;

		while (!ahead_ended(job, 100) && !atomic_load(in->options.place.cancel))
			;
		if (atomic_load(in->options.place.cancel)) {
			r = error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
			break;
		}
		batches[i].job = NULL;
		r = ahead_wait(job, err);
		m->samples += batches[i].n;
		m->bytes += batches[i].bytes;
		now = clock_monotonic_ms();
		if (r == 0)
			r = start(in, ahead, &order, &batches[i], &at, err);
	}
	m->seconds = (double)(now - begin) / 1000;
	m->cpu_seconds = cpu_now() - cpu;
	for (int i = 0; i < AHEAD; i++) {
		ahead_drop(batches[i].job);
		free(batches[i].data);
	}
	return r;
}

/* Names the bottleneck: the processor, if penstock's threads keep it busy; the bandwidth, if reads
 * in order, which are larger, do not transfer many more bytes per second; otherwise the latency of
 * each read. */
static const char *limit_of(const struct measure *m, const struct measure *in_order)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (m->seconds > 0 && m->cpu_seconds / m->seconds > 0.7 * (double)(cpus > 0 ? cpus : 1))
		return "processor";
	if (m == in_order)
		return "bandwidth";
	return (double)m->bytes / m->seconds > 0.7 * (double)in_order->bytes / in_order->seconds
		       ? "bandwidth"
		       : "latency";
}

static int print(const struct set_operand *in, const struct measure *all, size_t n)
{
	struct grid grid = grid_new("ORDER", "SAMPLES/S", "BYTES/S", "CPUS", "LIMIT");
	json_t *list = cli_has(in->cli, "json") ? json_array() : NULL;

	for (size_t i = 0; i < n; i++) {
		const struct measure *m = &all[i];
		double samples = (double)m->samples / m->seconds;
		double bytes = (double)m->bytes / m->seconds, cpus = m->cpu_seconds / m->seconds;
		char size[STR_SIZE_SIZE];

		json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:f, s:s}", "order", m->name,
						    "samples_per_s", samples, "bytes_per_s", bytes,
						    "cpus", cpus, "limit", limit_of(m, all)));
		str_format_size((uint64_t)bytes, size);
		grid_add(&grid, m->name);
		grid_addf(&grid, "%.0f", samples);
		grid_add(&grid, size);
		grid_addf(&grid, "%.1f", cpus);
		grid_add(&grid, limit_of(m, all));
	}
	return show_list(&grid, list, 0);
}

int dataset_bench(struct set_operand *in, const char *url, struct penstock_error *err)
{
	struct measure all[] = {{.name = "in order", .kind = ORDER_SEQUENTIAL},
		{.name = "window", .kind = ORDER_WINDOW}, {.name = "random", .kind = ORDER_FULL}};
	struct ahead *ahead = NULL;
	int64_t ms;
	int r;

	if (!cli_duration_ms(in->cli, "seconds", 3000, &ms))
		return CLI_EXIT_USAGE;
	if (ms <= 0)
		return cli_misuse(in->cli, "--seconds must be more than 0");
	r = set_open(in, url, err);
	if (r == 0)
		r = ahead_new(&ahead, in->set, 0, err);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(all); i++)
		r = run(in, ahead, &all[i], ms, err);
	ahead_free(ahead);
	return r < 0 ? r : print(in, all, ARRAY_SIZE(all));
}
