/*
 * An HTTP server for monitoring this process, on an address of its own: GET /metrics (for
 * Prometheus), /health/live and /health/ready. A slow client is disconnected after a time limit, or
 * earlier if other clients need a connection (server/request/connections.h).
 *
 *	monitor_start(&monitor, "127.0.0.1", 0,
 *		&(struct monitor_source){.write = write, .ready = ready, .cookie = server}, err);
 *	...	monitor_url(monitor) is "http://127.0.0.1:40124/metrics"
 *	monitor_stop(monitor);
 */
#ifndef SERVER_MONITOR_MONITOR_H
#define SERVER_MONITOR_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

struct buf;
struct monitor;
struct penstock_error;

/* Called by a thread of the monitor. */
struct monitor_source {
	void (*write)(void *cookie, struct buf *out); /* the metrics */
	bool (*ready)(void *cookie); /* returns true if the process can answer requests */
	void *cookie;
};

int monitor_start(struct monitor **out, const char *address, uint16_t port,
	const struct monitor_source *source, struct penstock_error *err);
/* Returns the URL of the metrics, valid until the monitor is stopped, or NULL if `monitor` is
 * NULL. */
const char *monitor_url(const struct monitor *monitor);
/* `monitor` may be NULL. */
void monitor_stop(struct monitor *monitor);

#endif
