#include "cli/runs/watch_metrics.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "records/layout.h"
#include "records/records.h"
#include "run/process/live.h"
#include "run/process/usage.h"
#include "server/monitor/metrics.h"
#include "server/monitor/monitor.h"

struct watch_metrics {
	struct records *records; /* used only by the thread of the monitor */
	char *home;
	struct monitor *monitor;
	atomic_ullong restarts;
};

/* A live run; `values` is indexed by enum value. */
enum value { ATTEMPT, AGE, LAG, WAITING, CPU, MEMORY, VALUE_COUNT_ };
struct live_run {
	char *labels; /* owned */
	double values[VALUE_COUNT_];
};

static const struct {
	const char *name, *help;
} descriptions[VALUE_COUNT_] = {
	[ATTEMPT] = {"penstock_run_attempt", "Number of the attempt."},
	[AGE] = {"penstock_run_age_seconds", "Time since the start of the attempt."},
	[LAG] = {"penstock_run_sync_lag_seconds",
		"Age of the oldest change that is not published."},
	[WAITING] = {"penstock_run_sync_waiting_bytes", "Bytes that are not published."},
	[CPU] = {"penstock_run_cpu_seconds", "Processor time of the live processes of the steps."},
	[MEMORY] = {"penstock_run_memory_bytes", "Resident memory of these processes."},
};

struct reading {
	const char *home;
	size_t by_state[RUN_STATE_COUNT_];
	struct live_run *runs;
	size_t n;
	bool no_memory;
};

/* Prometheus escapes backslash, quote and newline in the value of a label. */
static void add_label(struct buf *out, const char *name, const char *value)
{
	buf_printf(out, "%s=\"", name);
	for (; *value; value++) {
		if (*value == '\\' || *value == '"')
			buf_add_char(out, '\\');
		if (*value == '\n')
			buf_add_str(out, "\\n");
		else
			buf_add_char(out, *value);
	}
	buf_add_char(out, '"');
}

static int add_usage(void *cookie, const struct live_step *step)
{
	struct live_run *run = cookie;
	struct usage usage;

	usage_read(step->pids, step->n, &usage);
	run->values[CPU] += (double)usage.cpu_ms / 1000;
	run->values[MEMORY] += (double)usage.rss;
	return 0;
}

static int add_run(void *cookie, const struct records_run *run)
{
	struct reading *reading = cookie;
	const struct records_attempt *a = &run->last;
	_cleanup_(buf_release) struct buf labels = BUF_INIT(LIMIT_STRING);
	_cleanup_free_ char *dir = NULL;
	struct live_run *list;

	reading->by_state[a->state]++;
	if (!run_state_is_live(a->state))
		return 0;
	list = array_grow(reading->runs, reading->n, sizeof(*list));
	if (list)
		reading->runs = list;
	dir = run_path(reading->home, run->id, RUN_FILE_DIR);
	add_label(&labels, "id", run->id);
	buf_add_char(&labels, ',');
	add_label(&labels, "name", run->name ? run->name : "");
	if (!list || !dir || buf_failed(&labels)) {
		reading->no_memory = true;
		return 1;
	}
	list += reading->n++;
	*list = (struct live_run){.labels = buf_take(&labels),
		.values = {[ATTEMPT] = a->attempt,
			[AGE] = (double)(clock_wall_ns() - a->started_ns) / NS_PER_S,
			[LAG] = (double)a->sync_lag_ms / 1000,
			[WAITING] = (double)a->sync_bytes_waiting}};
	live_each(dir, add_usage, list);
	return 0;
}

static void write_runs(const struct reading *reading, struct buf *out)
{
	metrics_write_heading(
		out, "penstock_runs", "gauge", "Runs by the state of their last attempt.");
	for (unsigned state = 0; state < RUN_STATE_COUNT_; state++)
		buf_printf(out, "penstock_runs{state=\"%s\"} %zu\n",
			run_state_name((enum run_state)state), reading->by_state[state]);
	for (unsigned v = 0; reading->n && v < VALUE_COUNT_; v++) {
		metrics_write_heading(out, descriptions[v].name, "gauge", descriptions[v].help);
		for (size_t i = 0; i < reading->n; i++)
			buf_printf(out, "%s{%s} %.17g\n", descriptions[v].name,
				reading->runs[i].labels, reading->runs[i].values[v]);
	}
}

static void write_metrics(void *cookie, struct buf *out)
{
	struct watch_metrics *metrics = cookie;
	struct reading reading = {.home = metrics->home};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (records_list(metrics->records, add_run, &reading, &err) < 0)
		log_warn("cannot read the runs for the metrics: %s", err.message);
	else if (!reading.no_memory)
		write_runs(&reading, out);
	metrics_write_value(out, "penstock_watch_restarts_total", "counter",
		"Runs that this process has resumed.", (double)atomic_load(&metrics->restarts));
	for (size_t i = 0; i < reading.n; i++)
		free(reading.runs[i].labels);
	free(reading.runs);
}

static bool is_ready(void *cookie)
{
	(void)cookie;
	return true;
}

int watch_metrics_start(struct watch_metrics **out, const char *address, uint16_t port,
	const char *home, struct penstock_error *err)
{
	struct watch_metrics *metrics;
	int r;

	metrics = calloc(1, sizeof(*metrics));
	if (!metrics)
		return error_memory(err);
	metrics->home = strdup(home);
	r = metrics->home ? records_open(&metrics->records, home, err) : error_memory(err);
	if (r == 0)
		r = monitor_start(&metrics->monitor, address, port,
			&(struct monitor_source){
				.write = write_metrics, .ready = is_ready, .cookie = metrics},
			err);
	if (r < 0) {
		watch_metrics_stop(metrics);
		return r;
	}
	log_info("metrics at %s", monitor_url(metrics->monitor));
	*out = metrics;
	return 0;
}

void watch_metrics_restarted(struct watch_metrics *metrics)
{
	if (metrics)
		atomic_fetch_add(&metrics->restarts, 1);
}

void watch_metrics_stop(struct watch_metrics *metrics)
{
	if (!metrics)
		return;
	monitor_stop(metrics->monitor);
	records_free(metrics->records);
	free(metrics->home);
	free(metrics);
}
