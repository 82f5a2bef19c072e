/*
 * The first byte: what was asked for; the rest is what a server answers, headers and body, before
 * it closes the connection. The engine must end the request, and hand on no byte that it may not.
 */
#include "fuzz.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/http.h"

#define BODY_LIMIT (64 * KIB)

static struct {
	int fd;
	char url[64];
	pthread_mutex_t lock;
	const uint8_t *data; /* of the next reply */
	size_t size;
} server = {.fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

static struct http_engine *engine;

/* Reads a request's head and answers with what the lock guards. */
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
	for (size_t at = 0; at < server.size;) {
		ssize_t sent = send(fd, server.data + at, server.size - at, MSG_NOSIGNAL);

		if (sent <= 0)
			break;
		at += (size_t)sent;
	}
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
	require(http_engine_new(&engine, &(struct http_engine_options){.stall_timeout_ms = 2000},
			NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf body = BUF_INIT(BODY_LIMIT);
	struct http_reply reply = HTTP_REPLY_INIT;
	struct http_request request = {.method = "GET",
		.url = server.url,
		.sink = HTTP_SINK_TO_BUF(&body),
		.max_attempts = 1};

	if (size < 1)
		return 0;
	if (!engine)
		start();
	if (data[0] & 1)
		request.method = "HEAD";
	if (data[0] & 2)
		request.range = (struct http_range){
			.wanted = true, .offset = data[0] >> 4, .length = data[0] & 8 ? 5 : 0};
	request.range.full_is_fine = data[0] & 4;
	pthread_mutex_lock(&server.lock);
	server.data = data + 1;
	server.size = size - 1;
	pthread_mutex_unlock(&server.lock);
	int rc = http_perform(engine, &request, &reply, &err);

	/* The server may still be sending. */
	pthread_mutex_lock(&server.lock);
	server.size = 0;
	pthread_mutex_unlock(&server.lock);
	require_error(rc, &err);
	if (rc == 0) {
		require(reply.status >= 200 && reply.status < 300);
		require(body.len == reply.body_bytes);
		if (request.range.wanted && reply.status == 206 && request.range.length)
			require(body.len <= request.range.length);
	}
	http_reply_release(&reply);
	return 0;
}
