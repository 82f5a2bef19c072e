/*
 * Serves the metrics of the runs of this home to Prometheus.
 *
 *	watch_metrics_start(&metrics, "127.0.0.1", 9101, home, err);
 *	watch_metrics_restarted(metrics);	// a run was resumed
 *	watch_metrics_stop(metrics);
 */
#ifndef CLI_RUNS_WATCH_METRICS_H
#define CLI_RUNS_WATCH_METRICS_H

#include <stdint.h>

struct penstock_error;
struct watch_metrics;

/* Port 0 selects a free port; the log names it. */
int watch_metrics_start(struct watch_metrics **out, const char *address, uint16_t port,
	const char *home, struct penstock_error *err);
/* May be called from any thread. `metrics` may be NULL, as for watch_metrics_stop(). */
void watch_metrics_restarted(struct watch_metrics *metrics);
void watch_metrics_stop(struct watch_metrics *metrics);

#endif
