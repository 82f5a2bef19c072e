/* The reply of an attempt: curl's callbacks for its headers and its body. */
#include "net/http/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/range.h"

void call_raise(struct call *call, struct penstock_error *err)
{
	if (call->error.code)
		penstock_error_release(err);
	else
		error_move(&call->error, err);
}

void call_raise_fatal(struct call *call, struct penstock_error *err)
{
	call->fatal = true;
	call_raise(call, err);
}

bool call_is_cancelled(const struct http_engine *engine, const struct call *call)
{
	const struct http_request *request = call->request;

	return (request->cancel && atomic_load(request->cancel)) ||
	       (engine->options.cancel && !request->tidies_up &&
		       atomic_load(engine->options.cancel));
}

bool call_stop_cancelled(struct call *call)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (!call_is_cancelled(call->engine, call))
		return false;
	error_set(&err, PENSTOCK_E_CANCELLED, "cancelled");
	call_raise_fatal(call, &err);
	return true;
}

/* ---- reply headers ---- */

void http_reply_reset(struct http_reply *reply)
{
	strlist_release(&reply->headers);
	buf_clear(&reply->error_body);
	reply->status = 0;
	reply->content_length = HTTP_LENGTH_UNKNOWN;
	reply->total_size = HTTP_LENGTH_UNKNOWN;
	reply->range_offset = 0;
}

static bool status_expected(const struct call *call, int status)
{
	const struct http_request *request = call->request;
	bool any = false;

	for (size_t i = 0; i < ARRAY_SIZE(request->expect); i++) {
		if (request->expect[i] == status)
			return true;
		any = any || request->expect[i] != 0;
	}
	return !any && status >= 200 && status < 300;
}

bool call_range(const struct call *call, uint64_t *offset, uint64_t *length)
{
	const struct http_range *range = &call->request->range;

	if (!range->wanted && !call->kept)
		return false;
	*offset = (range->wanted ? range->offset : 0) + call->kept;
	*length = range->wanted && range->length ? range->length - call->kept : 0;
	return true;
}

/* Checks that the reply to a range request has the right bytes of the same resource. */
static int check_partial(struct call *call, struct penstock_error *err)
{
	struct http_reply *reply = call->reply;
	const char *text = http_reply_header(reply, "Content-Range");
	struct byte_range got = {0};
	uint64_t offset = 0;
	uint64_t length = 0;
	uint64_t size = 0;
	bool satisfied = false;

	if (!call_range(call, &offset, &length))
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"the server sent a part (206) although the whole resource was requested");
	if (!text || !range_parse_content(text, &got, &size, &satisfied) || !satisfied)
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"the server sent a part (206) without a valid Content-Range");
	if (got.first != offset || (length && got.last > offset + length - 1) ||
		(size != RANGE_UNKNOWN_SIZE && got.last >= size))
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"the server sent a different range than requested: Content-Range %s, "
			"requested from %" PRIu64,
			text, offset);
	if (size != RANGE_UNKNOWN_SIZE &&
		got.last != (length && offset + length < size ? offset + length : size) - 1)
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"the server sent less than requested: Content-Range %s", text);
	call->expected = byte_range_length(&got);
	if (reply->content_length != HTTP_LENGTH_UNKNOWN && reply->content_length != call->expected)
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"Content-Length %" PRIu64 " does not match Content-Range %s",
			reply->content_length, text);
	reply->range_offset = got.first;
	reply->total_size = size;
	return 0;
}

/* Remembers the validator of the resource, or checks that the resource is unchanged since the kept
 * bytes. */
static int check_validator(struct call *call, struct penstock_error *err)
{
	const char *validator = http_reply_header(call->reply, "ETag");

	if (!validator || strncmp(validator, "W/", 2) == 0)
		validator = http_reply_header(call->reply, "Last-Modified");
	if (!call->kept) {
		size_t len = validator ? strlen(validator) : 0;

		if (len >= sizeof(call->validator))
			len = 0;
		if (len)
			memcpy(call->validator, validator, len);
		call->validator[len] = '\0';
		return 0;
	}
	if (validator && strcmp(validator, call->validator) == 0)
		return 0;
	if (!call->request->range.wanted) {
		/* Start again if the sink can restart. */
		call->validator[0] = '\0';
		if (http_sink_restartable(&call->request->sink))
			return error_set(err, PENSTOCK_E_UNAVAILABLE,
				"the resource changed while it was fetched; starting again");
	}
	return error_set(err, PENSTOCK_E_CHANGED, "the resource changed while it was fetched");
}

/* Handles a reply with the whole resource: skips the bytes that the sink already has. */
static int check_whole(struct call *call, struct penstock_error *err)
{
	const struct http_range *range = &call->request->range;

	if (range->wanted && (!range->full_is_fine || range->offset || call->kept))
		return error_set(err, PENSTOCK_E_UNSUPPORTED, "the server does not support ranges");
	call->skip = call->kept;
	call->reply->total_size = call->reply->content_length;
	return 0;
}

static int accept_reply(struct call *call, struct penstock_error *err)
{
	struct http_reply *reply = call->reply;
	bool get = strcmp(call->request->method, "GET") == 0;
	int r = 0;

	if (get) {
		r = check_validator(call, err);
		if (r == 0)
			r = reply->status == 206 ? check_partial(call, err)
						 : check_whole(call, err);
		if (r == -(int)PENSTOCK_E_UNSUPPORTED)
			call->fatal = true;
	} else {
		reply->total_size = reply->content_length;
	}
	if (r == 0 && call->request->on_headers)
		r = call->request->on_headers(call->request->cookie, reply, err);
	return r;
}

/*
 * Reads the announced length of the body. Two different lengths are an error, because an
 * intermediary may use the other length; a length next to a transfer encoding is ignored (RFC 9112,
 * section 6.3).
 */
static int read_length(struct http_reply *reply, struct penstock_error *err)
{
	static const char name[] = "Content-Length:";
	const char *first = http_reply_header(reply, "Content-Length");

	if (!first)
		return 0;
	for (size_t i = 0; i < reply->headers.n; i++) {
		const char *line = reply->headers.items[i];
		const char *value = line + strlen(name);

		if (strncasecmp(line, name, strlen(name)) != 0)
			continue;
		if (strcmp(value + strspn(value, " \t"), first) != 0)
			return error_set(err, PENSTOCK_E_PROTOCOL,
				"the server sent two different Content-Length headers");
	}
	if (!str_to_u64(first, 0, INT64_MAX, &reply->content_length))
		return error_set(err, PENSTOCK_E_PROTOCOL, "invalid Content-Length");
	if (http_reply_header(reply, "Transfer-Encoding"))
		reply->content_length = HTTP_LENGTH_UNKNOWN;
	/* libcurl reads no body after a 204, regardless of the announced length (RFC 9110, section
	 * 8.6). */
	if (reply->status == 204 && reply->content_length != HTTP_LENGTH_UNKNOWN &&
		reply->content_length > 0)
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"the server announced %" PRIu64 " bytes in a reply without a body (204)",
			reply->content_length);
	return 0;
}

/* Handles the empty line after a reply's headers. */
static int headers_end(struct call *call, struct penstock_error *err)
{
	struct http_reply *reply = call->reply;
	int r;

	if (reply->status < 200)
		return 0;
	if (call->request->follow_redirects && reply->status >= 300 && reply->status < 400 &&
		reply->status != 304 && http_reply_header(reply, "Location"))
		return 0;
	call->headers_done = true;
	r = read_length(reply, err);
	if (r == 0 && call->request->translate)
		r = call->request->translate(call->request->cookie, reply, err);
	if (r < 0)
		return r;
	call->good = status_expected(call, reply->status);
	return call->good ? accept_reply(call, err) : 0;
}

/* Parses the status of "HTTP/1.1 200 OK". Returns 0 if there are not three digits. */
static int status_of(const char *line, size_t len)
{
	const char *at = memchr(line, ' ', len);
	int status = 0;

	for (int i = 1; i <= 3; i++) {
		if (!at || at + i >= line + len || at[i] < '0' || at[i] > '9')
			return 0;
		status = status * 10 + (at[i] - '0');
	}
	return status;
}

/* A line that begins with white space continues the previous header (RFC 9112, section 5.2). */
static int unfold(struct strlist *headers, const char *line, size_t len, struct penstock_error *err)
{
	char **last = headers->n ? &headers->items[headers->n - 1] : NULL;
	char *joined;

	while (len && (*line == ' ' || *line == '\t')) {
		line++;
		len--;
	}
	if (!last)
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"the first header of the reply begins with a space");
	joined = str_printf("%s %.*s", *last, (int)len, line);
	if (!joined)
		return error_memory(err);
	free(*last);
	*last = joined;
	return 0;
}

static int header_line(struct call *call, const char *line, size_t len, struct penstock_error *err)
{
	struct http_reply *reply = call->reply;
	/* A line of white space does not end the headers, because libcurl does not end them
	 * there. */
	bool end = len && (line[0] == '\r' || line[0] == '\n');
	char *copy;
	int r;

	while (len && (line[len - 1] == '\n' || line[len - 1] == '\r' || line[len - 1] == ' '))
		len--;
	/* Only the first line can be a status line, even if later ones look like one. */
	if (!call->in_head && len >= 5 && memcmp(line, "HTTP/", 5) == 0) {
		http_reply_reset(reply);
		call->in_head = true;
		call->headers_done = false;
		call->good = false;
		reply->status = status_of(line, len);
		return 0;
	}
	if (call->headers_done) /* a trailer */
		return 0;
	if (end) {
		call->in_head = false;
		return headers_end(call, err);
	}
	if (len == 0 || line[0] == ' ' || line[0] == '\t')
		return unfold(&reply->headers, line, len, err);
	copy = strndup(line, len);
	r = copy ? strlist_add(&reply->headers, copy) : -1;
	free(copy);
	return r < 0 ? error_memory(err) : 0;
}

size_t call_on_header(char *line, size_t size, size_t n, void *cookie)
{
	struct call *call = cookie;
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	size *= n;
	call->window_moved += size;
	call->moved += size;
	if (!call->answered_ms)
		call->answered_ms = clock_monotonic_ms();
	call->header_bytes += size;
	if (call->header_bytes > LIMIT_HTTP_HEADERS)
		error_set(&err, PENSTOCK_E_PROTOCOL, "the headers of the reply exceed %zu bytes",
			LIMIT_HTTP_HEADERS);
	else if (header_line(call, line, size, &err) == 0)
		return size;
	if (!error_is_retryable(&err))
		call->fatal = true;
	call_raise(call, &err);
	return 0;
}

/* ---- reply body ---- */

static enum http_take sink_fd(
	struct call *call, const void *data, size_t len, struct penstock_error *err)
{
	const struct http_sink *sink = &call->request->sink;
	uint64_t at = call->kept + call->received;

	if (sink->limit && (at > sink->limit || len > sink->limit - at)) {
		error_set(err, PENSTOCK_E_PROTOCOL,
			"the server sent more than the %" PRIu64 " bytes requested", sink->limit);
		return HTTP_REFUSE;
	}
	if (fs_pwrite_all(sink->fd, data, len, (off_t)(sink->offset + at)) < 0) {
		error_errno(err, errno, "cannot write the received data");
		return HTTP_REFUSE;
	}
	return HTTP_TAKEN;
}

static enum http_take sink_take(
	struct call *call, const void *data, size_t len, struct penstock_error *err)
{
	const struct http_sink *sink = &call->request->sink;

	switch (sink->kind) {
	case HTTP_SINK_DISCARD:
		return HTTP_TAKEN;
	case HTTP_SINK_BUF:
		if (buf_add(sink->buf, data, len) == 0)
			return HTTP_TAKEN;
		buf_error(sink->buf, "the reply", err);
		return HTTP_REFUSE;
	case HTTP_SINK_FD:
		return sink_fd(call, data, len, err);
	case HTTP_SINK_CALLBACK:
		return sink->write(sink->cookie, data, len, err);
	}
	return HTTP_TAKEN;
}

/* Keeps the beginning of an error body, and ends the transfer of a longer body. */
static size_t take_error_body(struct call *call, const char *data, size_t len)
{
	struct buf *body = &call->reply->error_body;
	size_t room = body->limit - body->len;

	buf_add(body, data, len < room ? len : room);
	if (len <= room)
		return len;
	call->body_cut = true;
	return 0;
}

size_t call_on_write(char *data, size_t size, size_t n, void *cookie)
{
	struct call *call = cookie;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	size_t skip;

	size *= n;
	call->window_moved += size;
	call->moved += size;
	if (!call->good)
		return take_error_body(call, data, size);
	if (call->expected != HTTP_LENGTH_UNKNOWN && size > call->expected - call->received) {
		error_set(
			&err, PENSTOCK_E_PROTOCOL, "the server sent more bytes than it announced");
		call_raise(call, &err);
		return 0;
	}
	skip = call->skip < size ? (size_t)call->skip : size;
	if (skip < size) {
		switch (sink_take(call, data + skip, size - skip, &err)) {
		case HTTP_TAKEN:
			break;
		case HTTP_PAUSE:
			call->paused = true;
			return CURL_WRITEFUNC_PAUSE;
		case HTTP_REFUSE:
			call_raise_fatal(call, &err);
			return 0;
		}
	}
	http_limit_take(call->engine, size);
	if (call_stop_cancelled(call))
		return 0;
	call->skip -= skip;
	call->received += size - skip;
	return size;
}
