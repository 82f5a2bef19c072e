/* One attempt: sets up a curl handle for a call, and reads the request body in curl's callbacks. */
#include "net/http/internal.h"

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

#define MAX_REDIRECTS 10
/* A body up to this size is sent together with its headers. */
#define INLINE_BODY_MAX (64 * KIB)

/* ---- request body ---- */

static ssize_t source_fd(struct call *call, char *data, size_t size, struct penstock_error *err)
{
	const struct http_source *source = &call->request->source;
	ssize_t n = fs_pread_all(
		source->fd, data, size, (off_t)(source->offset + call->source_read));

	if (n < 0)
		return error_errno(err, errno, "cannot read the file to send"), -1;
	if ((size_t)n < size) {
		error_set(err, PENSTOCK_E_CHANGED, "the file was truncated while it was sent");
		return -1;
	}
	return n;
}

static ssize_t source_callback(
	struct call *call, char *data, size_t size, struct penstock_error *err)
{
	const struct http_source *source = &call->request->source;
	ssize_t n;

	call->source_touched = true;
	n = source->read(source->cookie, data, size, err);
	if (n == 0 && source->length != HTTP_LENGTH_UNKNOWN && call->source_read < source->length) {
		error_set(err, PENSTOCK_E_CHANGED, "the data to send ended too early");
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
	const struct http_source *source = &call->request->source;
	uint64_t left = source->length - call->source_read;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	size_t most;
	ssize_t got = 0;

	size *= n;
	if (call->engine->options.limit && size > HTTP_LIMITED_PIECE)
		size = HTTP_LIMITED_PIECE;
	most = size < left ? size : (size_t)left;
	if (call->request->gate && ask_gate(call, &err) < 0) {
		call_raise_fatal(call, &err);
		return CURL_READFUNC_ABORT;
	}
	switch (source->kind) {
	case HTTP_SOURCE_NONE:
		break;
	case HTTP_SOURCE_MEMORY:
		memcpy(data, (const char *)source->data + call->source_read, most);
		got = (ssize_t)most;
		break;
	case HTTP_SOURCE_FD:
		got = source_fd(call, data, most, &err);
		break;
	case HTTP_SOURCE_CALLBACK:
		got = source_callback(call, data, size, &err);
		break;
	}
	if (got < 0) {
		call_raise_fatal(call, &err);
		return CURL_READFUNC_ABORT;
	}
	http_limit_take(call->engine, (size_t)got);
	if (call_stop_cancelled(call))
		return CURL_READFUNC_ABORT;
	call->source_read += (uint64_t)got;
	call->window_moved += (uint64_t)got;
	call->moved += (uint64_t)got;
	if (got == 0 || call->source_read == source->length)
		call->sent_ms = clock_monotonic_ms();
	return (size_t)got;
}

/* curl sends the body again by itself if a reused connection turns out to be dead. */
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

/* ---- handles ---- */

/* Steps are started while transfers run, so connections must be close-on-exec. A penstock store on
 * this machine is reached over its Unix socket. */
static curl_socket_t on_socket(void *cookie, curlsocktype purpose, struct curl_sockaddr *address)
{
	const struct call *call = cookie;
	struct sockaddr_un name;
	int fd;

	(void)purpose;
	/* A retry uses TCP. */
	if (call->attempt <= 1 && near_find(&address->addr, &name)) {
		/* libcurl lets this callback replace the address, and has room for a
		 * sockaddr_storage. */
		memcpy(&address->addr, &name, sizeof(name));
		address->addrlen = sizeof(name);
		address->family = AF_UNIX;
		address->protocol = 0;
	}
	fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
	near_tune(fd);
	return fd;
}

/* libcurl copies the text of an option. If memory runs out, libcurl keeps the previous value: a
 * DELETE would be sent as a GET. */
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
	/* A name server that does not reply must not delay the end of a request. */
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
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, call_on_write);
	curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, call_on_header);
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

/* Passes the request's header strings to curl without copying them. */
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
	if (call->request->source.kind != HTTP_SOURCE_NONE &&
		!http_has_header(headers, "Content-Type"))
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
		http_limit_take(call->engine, (size_t)source->length);
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

	if (!call_range(call, &offset, &length)) {
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

/* Uploads get short replies, so they need only a small buffer. */
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
	SET_TEXT(handle, CURLOPT_INTERFACE, request->from);
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
	http_reply_reset(call->reply);
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
	call->waits = false;
	call->paused = false;
	call->handle->message[0] = '\0';
}

int attempt_setup(struct http_engine *engine, struct call *call)
{
	struct http_request *request = call->request;
	struct penstock_error *err = &call->error;
	int r = 0;

	call->engine = engine;
	attempt_reset(call);
	if (strncasecmp(request->url, "http://", 7) != 0 &&
		strncasecmp(request->url, "https://", 8) != 0)
		r = error_set(err, PENSTOCK_E_INVALID, "not an http:// or https:// URL");
	else if (request->cancel && atomic_load(request->cancel))
		r = error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
	else if (on_seek(call, 0, SEEK_SET) != CURL_SEEKFUNC_OK)
		r = error_set(
			err, PENSTOCK_E_UNAVAILABLE, "cannot read the data to send a second time");
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
