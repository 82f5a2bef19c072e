#include "net/metadata.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"

int metadata_ask(struct http_engine *engine, const struct metadata_request *ask, struct buf *out,
	struct http_reply *reply, struct penstock_error *err)
{
	struct http_request request = {.method = ask->method ? ask->method : "GET",
		.url = ask->url,
		.sink = HTTP_SINK_TO_BUF(out),
		.direct = true,
		.max_attempts = ask->attempts ? ask->attempts : 1,
		.connect_timeout_ms = ask->timeout_ms,
		.stall_timeout_ms = ask->timeout_ms,
		.cancel = ask->cancel};
	_cleanup_(http_reply_release) struct http_reply own = HTTP_REPLY_INIT;
	int r = 0;

	buf_clear(out);
	if (ask->body) {
		request.source.kind = HTTP_SOURCE_MEMORY;
		request.source.data = ask->body;
		request.source.length = strlen(ask->body);
	}
	for (size_t i = 0; i < ARRAY_SIZE(ask->headers) && ask->headers[i]; i++) {
		if (strlist_add(&request.headers, ask->headers[i]) < 0)
			r = error_memory(err);
	}
	if (r == 0)
		r = http_perform(engine, &request, reply ? reply : &own, err);
	strlist_release(&request.headers);
	return r;
}

int metadata_aws_token(struct http_engine *engine, const struct metadata_request *how,
	unsigned ttl_s, struct buf *header, struct penstock_error *err)
{
	struct metadata_request ask = *how;
	_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING);
	_cleanup_(buf_wipe) struct buf reply = BUF_INIT(LIMIT_HTTP_HEADERS);
	char ttl[64];
	int r;

	snprintf(ttl, sizeof(ttl), "X-aws-ec2-metadata-token-ttl-seconds: %u", ttl_s);
	buf_printf(&url, "%s/latest/api/token", how->url);
	if (buf_failed(&url))
		return buf_error(&url, "the URL", err);
	ask.method = "PUT";
	ask.url = buf_str(&url);
	ask.headers[0] = ttl;
	r = metadata_ask(engine, &ask, &reply, NULL, err);
	if (r < 0)
		return r;
	if (!reply.len || strpbrk(buf_str(&reply), "\r\n"))
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"cannot read the metadata of EC2: invalid session token");
	buf_clear(header);
	buf_printf(header, "X-aws-ec2-metadata-token: %s", buf_str(&reply));
	return buf_failed(header) ? buf_error(header, "the session token", err) : 0;
}
