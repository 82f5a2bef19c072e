/*
 * The first byte selects the request. The rest is the reply of a server, headers and body, after
 * which the server closes the connection. A line "---" ends a reply and begins the reply to the
 * next attempt. The engine must end the request, and pass on no bytes that the request did not ask
 * for.
 */
#include "fuzz.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/http/http.h"

#define BODY_LIMIT   (64 * KIB)
#define FILE_LIMIT   20 /* bytes */
#define ATTEMPTS_MAX 4
#define PATIENCE_MS  400 /* for all attempts, because a server may send Retry-After */

static const char next_answer[] = "\n---\n";

static struct {
	int fd;
	char url[64];
	pthread_mutex_t lock;
	const uint8_t *data; /* the replies that are not sent yet */
	size_t size;
} server = {.fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

static struct http_engine *engine;

/* Reads the head of a request and sends the next reply. */
static void answer(int fd)
{
	char head[4096];
	size_t n = 0;

	while (n < sizeof(head) - 1) {
		ssize_t got = read(fd, head + n, sizeof(head) - 1 - n);

		if (got <= 0)
			break;
		n += (size_t)got;
		head[n] = '\0';
		if (strstr(head, "\r\n\r\n"))
			break;
	}
	pthread_mutex_lock(&server.lock);
	const uint8_t *end = NULL;

	if (server.data && server.size)
		end = memmem(server.data, server.size, next_answer, strlen(next_answer));

	size_t size = end ? (size_t)(end - server.data) : server.size;

	for (size_t at = 0; at < size;) {
		ssize_t sent = send(fd, server.data + at, size - at, MSG_NOSIGNAL);

		if (sent <= 0)
			break;
		at += (size_t)sent;
	}
	size += end ? strlen(next_answer) : 0;
	server.data += size;
	server.size -= size;
	pthread_mutex_unlock(&server.lock);
	shutdown(fd, SHUT_WR);
	while (read(fd, head, sizeof(head)) > 0)
		;
	close(fd);
}

static void *serve(void *unused)
{
	(void)unused;
	for (;;) {
		int fd = accept(server.fd, NULL, NULL);

		if (fd >= 0)
			answer(fd);
	}
	return NULL;
}

static void start(void)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	pthread_t thread;

	server.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	require(server.fd >= 0);
	require(bind(server.fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	require(listen(server.fd, 64) == 0);
	require(getsockname(server.fd, (struct sockaddr *)&address, &len) == 0);
	snprintf(server.url, sizeof(server.url), "http://127.0.0.1:%u/object",
		ntohs(address.sin_port));
	require(pthread_create(&thread, NULL, serve, NULL) == 0);
	pthread_detach(thread);
	require(http_engine_new(&engine,
			&(struct http_engine_options){
				.stall_timeout_ms = 2000, .retry_base_ms = 1, .retry_cap_ms = 1},
			NULL) == 0);
}

static unsigned count_answers(const uint8_t *data, size_t size)
{
	unsigned n = 1;

	for (const uint8_t *at; size && (at = memmem(data, size, next_answer, strlen(next_answer)));
		n++) {
		at += strlen(next_answer);
		size -= (size_t)(at - data);
		data = at;
	}
	return n < ATTEMPTS_MAX ? n : ATTEMPTS_MAX;
}

/* A sink that is notified when the body starts again. */
static enum http_take take(void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct buf *body = cookie;

	(void)err;
	require(len > 0);
	return buf_add(body, data, len) < 0 ? HTTP_REFUSE : HTTP_TAKEN;
}

static int take_again(void *cookie)
{
	struct buf *body = cookie;

	buf_clear(body);
	return 0;
}

static void perform(struct http_request *request, const uint8_t *data, size_t size,
	struct http_reply *reply, struct penstock_error *err)
{
	pthread_mutex_lock(&server.lock);
	server.data = data;
	server.size = size;
	pthread_mutex_unlock(&server.lock);
	request->max_attempts = count_answers(data, size);
	request->deadline_ms = clock_monotonic_ms() + PATIENCE_MS;
	require_error(http_perform(engine, request, reply, err), err);

	/* The server may still be sending. */
	pthread_mutex_lock(&server.lock);
	server.size = 0;
	pthread_mutex_unlock(&server.lock);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf body = BUF_INIT(BODY_LIMIT);
	_cleanup_fclose_ FILE *file = NULL;
	struct http_reply reply = HTTP_REPLY_INIT;
	struct http_request request = {.method = "GET", .url = server.url};

	if (size < 1)
		return 0;
	if (!engine)
		start();
	if (data[0] & 1)
		request.method = "HEAD";
	if (data[0] & 2)
		request.range = (struct http_range){
			.wanted = true, .offset = data[0] >> 4 & 7, .length = data[0] & 8 ? 5 : 0};
	request.range.full_is_fine = data[0] & 4;
	if (data[0] & 0x80) {
		file = tmpfile();
		require(file);
		request.sink = (struct http_sink)HTTP_SINK_TO_FD(fileno(file), 0);
		request.sink.limit = FILE_LIMIT;
	} else if (size & 1) {
		request.sink = (struct http_sink){.kind = HTTP_SINK_CALLBACK,
			.write = take,
			.restart = take_again,
			.cookie = &body};
	} else {
		request.sink = (struct http_sink)HTTP_SINK_TO_BUF(&body);
	}
	perform(&request, data + 1, size - 1, &reply, &err);

	if (err.code == PENSTOCK_OK) {
		require(reply.status >= 200 && reply.status < 300);
		if (file) {
			require(fseek(file, 0, SEEK_END) == 0);
			require(reply.body_bytes <= FILE_LIMIT && ftell(file) <= FILE_LIMIT);
		} else {
			require(body.len == reply.body_bytes);
		}
		if (request.range.wanted && reply.status == 206 && request.range.length)
			require(reply.body_bytes <= request.range.length);
		if (strcmp(request.method, "GET") == 0 && !reply.resumed &&
			reply.content_length != HTTP_LENGTH_UNKNOWN)
			require(reply.body_bytes == reply.content_length);
	}
	http_reply_release(&reply);
	return 0;
}
