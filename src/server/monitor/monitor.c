#include "server/monitor/monitor.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/limits.h"

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

enum MHD_Result monitor_reply(struct MHD_Connection *connection, const char *path,
	const char *method, const struct monitor_source *source)
{
	struct buf text = BUF_INIT(LIMIT_XML_BODY);
	unsigned status = MHD_HTTP_OK;
	const char *type = "text/plain";
	enum MHD_Result sent;

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
		buf_add_str(&text, "there are /metrics, /health/live and /health/ready\n");
	}
	sent = reply(connection, status, type, &text);
	buf_release(&text);
	return sent;
}
