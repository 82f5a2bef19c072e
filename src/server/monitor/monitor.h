/*
 * Replies for those who watch the store, on an address of its own: GET /metrics, /health/live and
 * /health/ready.
 *
 *	monitor_reply(connection, "/metrics", "GET",
 *		&(struct monitor_source){.write = write, .ready = ready, .cookie = server});
 */
#ifndef SERVER_MONITOR_MONITOR_H
#define SERVER_MONITOR_MONITOR_H

#include <microhttpd.h>
#include <stdbool.h>

struct buf;

struct monitor_source {
	void (*write)(void *cookie, struct buf *out); /* the metrics */
	bool (*ready)(void *cookie); /* requests are answered */
	void *cookie;
};

enum MHD_Result monitor_reply(struct MHD_Connection *connection, const char *path,
	const char *method, const struct monitor_source *source);

#endif
