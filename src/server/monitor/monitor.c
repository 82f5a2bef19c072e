#include "server/monitor/monitor.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "server/monitor/listen.h"
#include "server/request/connections.h"

struct monitor {
	struct monitor_source source;
	struct connections *connections;
	struct MHD_Daemon *daemon;
	char *url;
};

static void on_connection(void *cls, struct MHD_Connection *connection, void **mine,
	enum MHD_ConnectionNotificationCode what)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct monitor *monitor = cls;

	if (what == MHD_CONNECTION_NOTIFY_CLOSED)
		connections_closed(monitor->connections, *mine);
	else if (info)
		*mine = connections_opened(monitor->connections, info->connect_fd, NULL);
}

static enum MHD_Result reply(
	struct MHD_Connection *connection, unsigned status, const char *type, struct buf *text)
{
	size_t len = text->len;
	char *data = buf_failed(text) ? NULL : buf_take(text);
	struct MHD_Response *response = data ? MHD_create_response_from_buffer(
						       len, data, MHD_RESPMEM_MUST_FREE)
					     : NULL;
	enum MHD_Result sent;

	if (!response) {
		free(data);
		return MHD_NO;
	}
	MHD_add_response_header(response, "Content-Type", type);
	sent = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return sent;
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *connection, const char *path,
	const char *method, const char *version, const char *data, size_t *data_len, void **con_cls)
{
	const union MHD_ConnectionInfo *mine = MHD_get_connection_info(
		connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct monitor *monitor = cls;
	const struct monitor_source *source = &monitor->source;
	struct buf text = BUF_INIT(LIMIT_XML_BODY);
	unsigned status = MHD_HTTP_OK;
	const char *type = "text/plain";
	enum MHD_Result sent;

	(void)version;
	(void)data;
	(void)data_len;
	(void)con_cls;
	connections_renew(monitor->connections, mine ? mine->socket_context : NULL);
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
		status = MHD_HTTP_METHOD_NOT_ALLOWED;
		buf_add_str(&text, "use GET\n");
	} else if (strcmp(path, "/metrics") == 0) {
		type = "text/plain; version=0.0.4";
		source->write(source->cookie, &text);
	} else if (strcmp(path, "/health/live") == 0) {
		buf_add_str(&text, "live\n");
	} else if (strcmp(path, "/health/ready") == 0) {
		bool ready = source->ready(source->cookie);

		status = ready ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
		buf_add_str(&text, ready ? "ready\n" : "not ready\n");
	} else {
		status = MHD_HTTP_NOT_FOUND;
		buf_add_str(&text,
			"not found; the paths are /metrics, /health/live and /health/ready\n");
	}
	sent = reply(connection, status, type, &text);
	buf_release(&text);
	return sent;
}

int monitor_start(struct monitor **out, const char *address, uint16_t port,
	const struct monitor_source *source, struct penstock_error *err)
{
	_cleanup_close_ int fd = listen_on(address, port, err);
	_cleanup_free_ char *url = NULL;
	struct monitor *monitor;
	int r = fd < 0 ? fd : listen_url(fd, "http", &url, err);

	if (r < 0)
		return r;
	monitor = calloc(1, sizeof(*monitor));
	if (monitor)
		monitor->url = str_printf("%s/metrics", url);
	if (!monitor || !monitor->url) {
		free(monitor);
		return error_memory(err);
	}
	monitor->source = *source;
	r = connections_start(&monitor->connections, LIMIT_MONITOR_CONNECTIONS,
		(int64_t)LIMIT_MONITOR_SECONDS * 1000, err);
	if (r < 0) {
		monitor_stop(monitor);
		return r;
	}
	monitor->daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, handle,
		monitor, MHD_OPTION_LISTEN_SOCKET, take_fd(fd), MHD_OPTION_CONNECTION_LIMIT,
		(unsigned)LIMIT_MONITOR_CONNECTIONS, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
		(unsigned)LIMIT_MONITOR_CONNECTIONS / 4, MHD_OPTION_CONNECTION_TIMEOUT,
		(unsigned)LIMIT_MONITOR_SECONDS, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
		monitor, MHD_OPTION_END);
	if (!monitor->daemon) {
		monitor_stop(monitor);
		return error_set(err, PENSTOCK_E_IO, "cannot start the metrics server");
	}
	*out = monitor;
	return 0;
}

const char *monitor_url(const struct monitor *monitor)
{
	return monitor ? monitor->url : NULL;
}

void monitor_stop(struct monitor *monitor)
{
	if (!monitor)
		return;
	if (monitor->daemon)
		MHD_stop_daemon(monitor->daemon);
	connections_stop(monitor->connections);
	free(monitor->url);
	free(monitor);
}
