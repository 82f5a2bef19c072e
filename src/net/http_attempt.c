/* One attempt: a curl handle set up for a call, and the callbacks that move its bytes. */
#include "net/http_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <penstock/version.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/near_socket.h"
#include "s3/range.h"
#include "base/banned.h"

#define MAX_REDIRECTS 10
/* A body that fits goes out in one packet train with its headers. */
#define INLINE_BODY_MAX (64 * KIB)

/* Raises a hook's or sink's error: it ends the request unless the code is one to try again on. */
static void raise_error(struct call *call, struct penstock_error *err)
{
	if (call->error.code)
		penstock_error_release(err);
	else
		error_move(&call->error, err);
}

static void raise_fatal(struct call *call, struct penstock_error *err)
{
	call->fatal = true;
	raise_error(call, err);
}

/* ---- request body ---- */

static ssize_t source_fd(struct call *call, char *data, size_t size, struct penstock_error *err)
{
	const struct http_source *source = &call->request->source;
	uint64_t left = source->length - call->source_read;
	ssize_t n;

	if (size > left)
		size = (size_t)left;
	n = fs_pread_all(source->fd, data, size, (off_t)(source->offset + call->source_read));
	if (n < 0)
		return error_errno(err, errno, "cannot read the file to be sent"), -1;
	if ((size_t)n < size) {
		error_set(err, PENSTOCK_E_CHANGED, "the file became shorter while it was sent");
		return -1;
	}
	return n;
}

static ssize_t source_memory(struct call *call, char *data, size_t size)
{
	const struct http_source *source = &call->request->source;
	uint64_t left = source->length - call->source_read;

	if (size > left)
		size = (size_t)left;
	memcpy(data, (const char *)source->data + call->source_read, size);
	return (ssize_t)size;
}

static ssize_t source_callback(
	struct call *call, char *data, size_t size, struct penstock_error *err)
{
	const struct http_source *source = &call->request->source;
	ssize_t n;

	call->source_touched = true;
	n = source->read(source->cookie, data, size, err);
	if (n == 0 && source->length != HTTP_LENGTH_UNKNOWN && call->source_read < source->length) {
		error_set(err, PENSTOCK_E_CHANGED, "the data to be sent ended too early");
		return -1;
	}
	return n;
}

static int ask_gate(const struct call *call, struct penstock_error *err)
{
	const struct http_gate *gate = call->request->gate;

	return gate->may_send(gate->cookie, err);
}

static size_t on_read(char *data, size_t size, size_t n, void *cookie)
{
	struct call *call = cookie;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	ssize_t got = 0;

	size *= n;
	if (call->request->gate && ask_gate(call, &err) < 0) {
		raise_fatal(call, &err);
		return CURL_READFUNC_ABORT;
	}
	switch (call->request->source.kind) {
	case HTTP_SOURCE_NONE:
		break;
	case HTTP_SOURCE_MEMORY:
		got = source_memory(call, data, size);
		break;
	case HTTP_SOURCE_FD:
		got = source_fd(call, data, size, &err);
		break;
	case HTTP_SOURCE_CALLBACK:
		got = source_callback(call, data, size, &err);
		break;
	}
	if (got < 0) {
		raise_fatal(call, &err);
		return CURL_READFUNC_ABORT;
	}
	call->source_read += (uint64_t)got;
	call->window_moved += (uint64_t)got;
	call->moved += (uint64_t)got;
	if (got == 0 || call->source_read == call->request->source.length)
		call->sent_ms = clock_monotonic_ms();
	return (size_t)got;
}

/* curl starts again by itself when a kept connection turns out to be dead. */
static int on_seek(void *cookie, curl_off_t offset, int origin)
{
	struct call *call = cookie;
	const struct http_source *source = &call->request->source;

	if (offset != 0 || origin != SEEK_SET)
		return CURL_SEEKFUNC_CANTSEEK;
	if (source->kind == HTTP_SOURCE_CALLBACK && call->source_touched) {
		if (!source->rewind || source->rewind(source->cookie) < 0)
			return CURL_SEEKFUNC_FAIL;
		call->source_touched = false;
	}
	call->source_read = 0;
	return CURL_SEEKFUNC_OK;
}

/* ---- reply headers ---- */

static void reply_reset(struct http_reply *reply)
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

/*
 * The bytes this attempt asked for: from `*offset`; 0 in `*length`: to the end. False: no range. Less is kept than the
 * range is long: attempt_keep_or_restart() sees to it.
 */
static bool range_asked(const struct call *call, uint64_t *offset, uint64_t *length)
{
	const struct http_range *range = &call->request->range;

	if (!range->wanted && !call->kept)
		return false;
	*offset = (range->wanted ? range->offset : 0) + call->kept;
	*length = range->wanted && range->length ? range->length - call->kept : 0;
	return true;
}

/* A reply to a range: the right bytes of the same resource? */
static int check_partial(struct call *call, struct penstock_error *err)
{
	struct http_reply *reply = call->reply;
	const char *text = http_reply_header(reply, "Content-Range");
	struct byte_range got = {0};
	uint64_t offset = 0;
	uint64_t length = 0;
	uint64_t size = 0;
	bool satisfied = false;

	if (!range_asked(call, &offset, &length))
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"the server sent a part (206) of what was asked for whole");
	if (!text || !range_parse_content(text, &got, &size, &satisfied) || !satisfied)
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"the server sent a part (206) without saying which (Content-Range)");
	if (got.first != offset || (length && got.last > offset + length - 1) ||
		(size != RANGE_UNKNOWN_SIZE && got.last >= size))
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"the server sent other bytes than those asked for: Content-Range %s, asked "
			"from %" PRIu64,
			text, offset);
	if (size != RANGE_UNKNOWN_SIZE &&
		got.last != (length && offset + length < size ? offset + length : size) - 1)
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"the server sent fewer bytes than asked for: Content-Range %s", text);
	call->expected = byte_range_length(&got);
	if (reply->content_length != HTTP_LENGTH_UNKNOWN && reply->content_length != call->expected)
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"Content-Length %" PRIu64 " does not fit Content-Range %s",
			reply->content_length, text);
	reply->range_offset = got.first;
	reply->total_size = size;
	return 0;
}

static const char *validator_of(const struct http_reply *reply)
{
	const char *etag = http_reply_header(reply, "ETag");

	if (etag && strncmp(etag, "W/", 2) != 0)
		return etag;
	return http_reply_header(reply, "Last-Modified");
}

/* Remembers what the bytes are of, or checks that the rest is of the same. */
static int check_validator(struct call *call, struct penstock_error *err)
{
	const char *validator = validator_of(call->reply);

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
		/* From the beginning then, if the sink can. */
		call->validator[0] = '\0';
		if (http_sink_restartable(&call->request->sink))
			return error_set(err, PENSTOCK_E_UNAVAILABLE,
				"it changed while it was fetched; starting again");
	}
	return error_set(err, PENSTOCK_E_CHANGED, "it changed while it was fetched");
}

/* A whole reply (200) where a part was asked for. */
static int check_whole(struct call *call, struct penstock_error *err)
{
	const struct http_range *range = &call->request->range;

	if (range->wanted && (!range->full_is_fine || range->offset || call->kept))
		return error_set(err, PENSTOCK_E_UNSUPPORTED, "the server does not send ranges");
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
 * What the body's length is said to be. Two lengths that differ mean that somebody on the way reads
 * another body than we do; one beside a transfer encoding does not count (RFC 9112, section 6.3).
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
				"the server sent two different Content-Length");
	}
	if (!str_to_u64(first, 0, INT64_MAX, &reply->content_length))
		return error_set(err, PENSTOCK_E_PROTOCOL, "Content-Length is no number");
	if (http_reply_header(reply, "Transfer-Encoding"))
		reply->content_length = HTTP_LENGTH_UNKNOWN;
	/* libcurl reads no body after it, whatever is announced (RFC 9110, section 8.6). */
	if (reply->status == 204 && reply->content_length != HTTP_LENGTH_UNKNOWN &&
		reply->content_length > 0)
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"the server announced %" PRIu64 " bytes in a reply that has no body (204)",
			reply->content_length);
	return 0;
}

/* The empty line after a reply's headers. */
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

/* Of "HTTP/1.1 200 OK"; 0 where there are no three digits. */
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

/* A line that begins with white space goes on with the header before it (RFC 9112, section 5.2). */
static int unfold(struct strlist *headers, const char *line, size_t len, struct penstock_error *err)
{
	char **last = headers->n ? &headers->items[headers->n - 1] : NULL;
	char *joined;

	while (len && (*line == ' ' || *line == '\t')) {
		line++;
		len--;
	}
	if (!last)
		return error_set(
			err, PENSTOCK_E_PROTOCOL, "the reply's first header begins with a space");
	if (asprintf(&joined, "%s %.*s", *last, (int)len, line) < 0)
		return error_memory(err);
	free(*last);
	*last = joined;
	return 0;
}

static int header_line(struct call *call, const char *line, size_t len, struct penstock_error *err)
{
	struct http_reply *reply = call->reply;
	/* White space alone ends no head for libcurl, and must not for us. */
	bool end = len && (line[0] == '\r' || line[0] == '\n');
	char *copy;
	int r;

	while (len && (line[len - 1] == '\n' || line[len - 1] == '\r' || line[len - 1] == ' '))
		len--;
	/* Only the first line of a head is a status line, whatever later ones look like. */
	if (!call->in_head && len >= 5 && memcmp(line, "HTTP/", 5) == 0) {
		reply_reset(reply);
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

static size_t on_header(char *line, size_t size, size_t n, void *cookie)
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
		error_set(&err, PENSTOCK_E_PROTOCOL,
			"the reply's headers are longer than %zu bytes", LIMIT_HTTP_HEADERS);
	else if (header_line(call, line, size, &err) == 0)
		return size;
	if (!error_is_retryable(&err))
		call->fatal = true;
	raise_error(call, &err);
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
			"the server sent more than the %" PRIu64 " bytes asked for", sink->limit);
		return HTTP_REFUSE;
	}
	if (fs_pwrite_all(sink->fd, data, len, (off_t)(sink->offset + at)) < 0) {
		error_errno(err, errno, "cannot write what was received");
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

/* An error's body: its beginning is kept, and a long one is not waited for. */
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

static size_t on_write(char *data, size_t size, size_t n, void *cookie)
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
		raise_error(call, &err);
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
			raise_fatal(call, &err);
			return 0;
		}
	}
	call->skip -= skip;
	call->received += size - skip;
	return size;
}

/* ---- handles ---- */

/*
 * Steps are started while transfers run: no connection may leak into them. Our own store on this machine is spoken to
 * over its Unix socket.
 */
static curl_socket_t on_socket(void *cookie, curlsocktype purpose, struct curl_sockaddr *address)
{
	const struct call *call = cookie;
	struct sockaddr_un name;
	int fd;

	(void)purpose;
	/* What failed there goes over TCP. */
	if (call->attempt <= 1 && near_find(&address->addr, &name)) {
		/* libcurl allows this, and has room for a sockaddr_storage. */
		memcpy(&address->addr, &name, sizeof(name));
		address->addrlen = sizeof(name);
		address->family = AF_UNIX;
		address->protocol = 0;
	}
	fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
	near_tune(fd);
	return fd;
}

/* libcurl copies texts. Without memory it keeps what was set before: a DELETE would be sent as a GET. */
#define SET_TEXT(handle, option, text)                                                             \
	do {                                                                                       \
		if (curl_easy_setopt((handle)->curl, option, text) != CURLE_OK)                    \
			(handle)->no_memory = true;                                                \
	} while (0)

static void set_protocols(struct http_handle *handle, bool https_only_redirects)
{
#if LIBCURL_VERSION_NUM >= 0x075500
	SET_TEXT(handle, CURLOPT_PROTOCOLS_STR, "http,https");
	SET_TEXT(
		handle, CURLOPT_REDIR_PROTOCOLS_STR, https_only_redirects ? "https" : "http,https");
#else
	curl_easy_setopt(handle->curl, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
	curl_easy_setopt(handle->curl, CURLOPT_REDIR_PROTOCOLS,
		https_only_redirects ? CURLPROTO_HTTPS : CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
}

struct http_handle *http_handle_new(struct http_engine *engine)
{
	struct http_handle *handle = calloc(1, sizeof(*handle));
	CURL *curl = handle ? curl_easy_init() : NULL;

	if (!curl) {
		free(handle);
		return NULL;
	}
	handle->curl = curl;
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
#if LIBCURL_VERSION_NUM >= 0x075700
	/* A name server that does not answer must not hold up the end of a request. */
	curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L);
#endif
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, handle->message);
	curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(curl, CURLOPT_TCP_NODELAY, 1L);
	curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(curl, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	curl_easy_setopt(curl, CURLOPT_HTTP_TRANSFER_DECODING, 1L);
	curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
	SET_TEXT(handle, CURLOPT_USERAGENT, "penstock/" PENSTOCK_VERSION);
	curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, (long)engine->options.buffer);
	curl_easy_setopt(curl, CURLOPT_READFUNCTION, on_read);
	curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, on_seek);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_write);
	curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, on_socket);
	if (engine->ca_file)
		SET_TEXT(handle, CURLOPT_CAINFO, engine->ca_file);
	if (engine->ca_path)
		SET_TEXT(handle, CURLOPT_CAPATH, engine->ca_path);
	set_protocols(handle, false);
	if (handle->no_memory) {
		http_handle_free(handle);
		return NULL;
	}
	return handle;
}

void http_handle_free(struct http_handle *handle)
{
	if (!handle)
		return;
	curl_easy_cleanup(handle->curl);
	free(handle->nodes);
	free(handle);
}

/* ---- setting up an attempt ---- */

static bool has_header(const struct strlist *headers, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < headers->n; i++) {
		if (strncasecmp(headers->items[i], name, len) == 0 && headers->items[i][len] == ':')
			return true;
	}
	return false;
}

/* The request's header strings as curl wants them, without copying any. */
static int setup_headers(struct call *call)
{
	static char no_expect[] = "Expect:";
	static char no_type[] = "Content-Type:";
	struct http_handle *handle = call->handle;
	const struct strlist *headers = &call->request->headers;
	size_t n = 0;

	if (headers->n + 2 > handle->nodes_cap) {
		size_t cap = headers->n + 18;
		struct curl_slist *grown = realloc(handle->nodes, cap * sizeof(*grown));

		if (!grown)
			return -1;
		handle->nodes = grown;
		handle->nodes_cap = cap;
	}
	handle->nodes[n++].data = no_expect;
	if (call->request->source.kind != HTTP_SOURCE_NONE && !has_header(headers, "Content-Type"))
		handle->nodes[n++].data = no_type;
	for (size_t i = 0; i < headers->n; i++)
		handle->nodes[n++].data = headers->items[i];
	for (size_t i = 0; i < n; i++)
		handle->nodes[i].next = i + 1 < n ? &handle->nodes[i + 1] : NULL;
	curl_easy_setopt(handle->curl, CURLOPT_HTTPHEADER, handle->nodes);
	return 0;
}

static void setup_method(struct call *call)
{
	const struct http_request *request = call->request;
	const struct http_source *source = &request->source;
	struct http_handle *handle = call->handle;
	CURL *curl = handle->curl;
	bool get = strcmp(request->method, "GET") == 0;
	bool head = strcmp(request->method, "HEAD") == 0;
	bool bodiless = source->kind == HTTP_SOURCE_NONE || source->length == 0;

	curl_easy_setopt(curl, CURLOPT_POSTFIELDS, NULL);
	curl_easy_setopt(curl, CURLOPT_HTTPGET, 1L);
	SET_TEXT(handle, CURLOPT_CUSTOMREQUEST, get || head ? NULL : request->method);
	if (head) {
		curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
	} else if (bodiless &&
		   (strcmp(request->method, "PUT") == 0 || strcmp(request->method, "POST") == 0)) {
		curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)0);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "");
	} else if (bodiless) {
		return;
	} else if (source->kind == HTTP_SOURCE_MEMORY && source->length <= INLINE_BODY_MAX) {
		curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)source->length);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, source->data);
	} else {
		curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE,
			source->length == HTTP_LENGTH_UNKNOWN ? (curl_off_t)-1
							      : (curl_off_t)source->length);
	}
}

static void setup_range(struct call *call)
{
	struct http_handle *handle = call->handle;
	uint64_t offset;
	uint64_t length;

	if (!range_asked(call, &offset, &length)) {
		SET_TEXT(handle, CURLOPT_RANGE, NULL);
		return;
	}
	if (length)
		snprintf(handle->range, sizeof(handle->range), "%" PRIu64 "-%" PRIu64, offset,
			offset + length - 1);
	else
		snprintf(handle->range, sizeof(handle->range), "%" PRIu64 "-", offset);
	SET_TEXT(handle, CURLOPT_RANGE, handle->range);
}

/* What is sent brings back little: no memory for more. */
static size_t receive_buffer(const struct http_engine *engine, const struct http_request *request)
{
	size_t most = engine->options.buffer;

	if (request->source.kind != HTTP_SOURCE_NONE)
		return LIMIT_HTTP_REPLY_BUFFER;
	return request->receive_buffer && request->receive_buffer < most ? request->receive_buffer
									 : most;
}

static int setup_options(struct http_engine *engine, struct call *call, struct penstock_error *err)
{
	const struct http_request *request = call->request;
	struct http_handle *handle = call->handle;
	CURL *curl = handle->curl;
	int64_t connect = request->connect_timeout_ms ? request->connect_timeout_ms
						      : engine->options.connect_timeout_ms;

	handle->no_memory = false;
	SET_TEXT(handle, CURLOPT_URL, request->url);
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)connect);
	curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, request->follow_redirects ? 1L : 0L);
	SET_TEXT(handle, CURLOPT_NOPROXY, request->direct ? "*" : NULL);
	curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT,
		request->fresh_connection || call->renew_connection ? 1L : 0L);
	curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, (long)receive_buffer(engine, request));
	if (request->follow_redirects)
		set_protocols(handle, strncasecmp(request->url, "https:", 6) == 0);
	curl_easy_setopt(curl, CURLOPT_READDATA, call);
	curl_easy_setopt(curl, CURLOPT_SEEKDATA, call);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, call);
	curl_easy_setopt(curl, CURLOPT_HEADERDATA, call);
	curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, call);
	curl_easy_setopt(curl, CURLOPT_PRIVATE, call);
	setup_method(call);
	setup_range(call);
	return handle->no_memory ? error_memory(err) : 0;
}

static void attempt_reset(struct call *call)
{
	penstock_error_release(&call->error);
	reply_reset(call->reply);
	call->started_ms = clock_monotonic_ms();
	call->window_ms = call->started_ms;
	call->window_moved = 0;
	call->sent_ms = 0;
	call->answered_ms = 0;
	call->moved = 0;
	call->moved_seen = 0;
	call->silent_ms = call->started_ms;
	call->resending = false;
	call->received = 0;
	call->skip = 0;
	call->expected = HTTP_LENGTH_UNKNOWN;
	call->header_bytes = 0;
	call->in_head = false;
	call->headers_done = false;
	call->good = false;
	call->body_cut = false;
	call->fatal = false;
	call->absent = false;
	call->paused = false;
	call->handle->message[0] = '\0';
}

int attempt_setup(struct http_engine *engine, struct call *call)
{
	struct http_request *request = call->request;
	struct penstock_error *err = &call->error;
	int r = 0;

	attempt_reset(call);
	if (strncasecmp(request->url, "http://", 7) != 0 &&
		strncasecmp(request->url, "https://", 8) != 0)
		r = error_set(err, PENSTOCK_E_INVALID, "not an http:// or https:// URL");
	else if (request->cancel && atomic_load(request->cancel))
		r = error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
	else if (on_seek(call, 0, SEEK_SET) != CURL_SEEKFUNC_OK)
		r = error_set(err, PENSTOCK_E_UNAVAILABLE,
			"the data to be sent cannot be read a second time");
	if (r == 0 && request->prepare)
		r = request->prepare(request->cookie, request, call->attempt, err);
	if (r == 0 && request->gate)
		r = ask_gate(call, err);
	if (r == 0 && setup_headers(call) < 0)
		r = error_memory(err);
	if (r == 0)
		r = setup_options(engine, call, err);
	if (r < 0)
		http_error_name(request, err);
	return r;
}
