/*
 * An HTTP/1.1 server inside the test, for replies that a correct server never sends.
 *
 *	static bool answer(struct mini_http *m, const struct mini_request *r, int fd)
 *	{
 *		mini_reply(fd, "503 Service Unavailable", "Retry-After: 0\r\n", "", 0);
 *		return true;		keep the connection
 *	}
 *	struct mini_http m;
 *	mini_start(&m, answer, cookie);   ... mini_url(&m, "/x", url) ...   mini_stop(&m);
 *
 * Every connection has a thread; `answer` writes to the socket.
 */
#ifndef SUPPORT_MINI_HTTP_H
#define SUPPORT_MINI_HTTP_H

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define MINI_CONNECTIONS 2048 /* accepted in the life of a server */
#define MINI_URL_SIZE	 256

struct mini_request {
	unsigned number; /* number of the request, from 1 */
	char method[16];
	char target[4096];
	char headers[32768]; /* "Name: value\r\n"… */
	char *body;
	size_t body_len;
};

struct mini_http;
/* Returns false to close the connection. */
typedef bool (*mini_answer_fn)(struct mini_http *m, const struct mini_request *r, int fd);

struct mini_http {
	int listen_fd;
	int port;
	pthread_t acceptor;
	mini_answer_fn answer;
	void *cookie;
	atomic_uint requests;
	atomic_uint connections;
	atomic_bool stopping;
	pthread_mutex_t lock;
	struct {
		pthread_t thread;
		int fd;
		bool started;
	} slots[MINI_CONNECTIONS];
};

struct mini_connection {
	struct mini_http *m;
	int fd;
};

static inline bool mini_write(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

static inline bool __attribute__((format(printf, 2, 3))) mini_printf(int fd, const char *fmt, ...)
{
	char text[8192];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return mini_write(fd, text, (size_t)n);
}

/* Sends a complete reply; `headers` are lines that end in CRLF. */
static inline bool mini_reply(
	int fd, const char *status, const char *headers, const void *body, size_t len)
{
	return mini_printf(
		       fd, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n%s\r\n", status, len, headers) &&
	       mini_write(fd, body, len);
}

/* Copies the value of a request header to `out`. Returns false if the header is missing. */
static inline bool mini_header(
	const struct mini_request *r, const char *name, char *out, size_t size)
{
	size_t len = strlen(name);

	for (const char *line = r->headers; *line;) {
		const char *end = strstr(line, "\r\n");

		if (strncasecmp(line, name, len) == 0 && line[len] == ':') {
			const char *value = line + len + 1;

			while (*value == ' ')
				value++;
			snprintf(out, size, "%.*s", (int)(end - value), value);
			return true;
		}
		line = end + 2;
	}
	return false;
}

/* Parses the header "Range: bytes=first-[last]" for a resource of `size` bytes. Returns false if
 * the request has no range. */
static inline bool mini_range(
	const struct mini_request *r, uint64_t size, uint64_t *first, uint64_t *last)
{
	char value[128];
	int n;

	if (!mini_header(r, "Range", value, sizeof(value)))
		return false;
	*last = size - 1;
	n = sscanf(value, "bytes=%" SCNu64 "-%" SCNu64, first, last);
	if (*last >= size)
		*last = size - 1;
	return n >= 1;
}

/* Serves all of `data` or the requested range, with an ETag; replies 416 to a range beyond the
 * end. */
static inline bool mini_serve(
	const struct mini_request *r, int fd, const char *etag, const char *data, uint64_t size)
{
	uint64_t first = 0;
	uint64_t last = size - 1;
	char headers[256];

	if (!mini_range(r, size, &first, &last)) {
		snprintf(headers, sizeof(headers), "ETag: %s\r\nAccept-Ranges: bytes\r\n", etag);
		return mini_reply(fd, "200 OK", headers, strcmp(r->method, "HEAD") == 0 ? "" : data,
			strcmp(r->method, "HEAD") == 0 ? 0 : (size_t)size);
	}
	if (first >= size) {
		snprintf(headers, sizeof(headers), "Content-Range: bytes */%" PRIu64 "\r\n", size);
		return mini_reply(fd, "416 Range Not Satisfiable", headers, "", 0);
	}
	snprintf(headers, sizeof(headers),
		"ETag: %s\r\nContent-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64 "\r\n", etag,
		first, last, size);
	return mini_reply(fd, "206 Partial Content", headers, data + first, last - first + 1);
}

static inline bool mini_fill(int fd, char *data, size_t len)
{
	while (len) {
		ssize_t n = recv(fd, data, len, 0);

		if (n <= 0)
			return false;
		data += n;
		len -= (size_t)n;
	}
	return true;
}

/* Reads one line including its line break, and no byte after it. */
static inline bool mini_line(int fd, char *line, size_t size)
{
	size_t n = 0;
	const char *end = NULL;

	while (!end && n + 1 < size) {
		ssize_t there = recv(fd, line + n, size - 1 - n, MSG_PEEK);
		size_t len;

		if (there <= 0)
			return false;
		end = memchr(line + n, '\n', (size_t)there);
		len = end ? (size_t)(end + 1 - (line + n)) : (size_t)there;
		if (!mini_fill(fd, line + n, len))
			return false;
		n += len;
	}
	line[n] = '\0';
	return true;
}

static inline bool mini_read_chunked(int fd, struct mini_request *r)
{
	for (;;) {
		char line[256];
		size_t n;

		if (!mini_line(fd, line, sizeof(line)))
			return false;
		n = strtoul(line, NULL, 16);
		r->body = realloc(r->body, r->body_len + n + 2);
		if (!mini_fill(fd, r->body + r->body_len, n + 2))
			return false;
		r->body_len += n;
		if (n == 0)
			return true;
	}
}

static inline bool mini_read_request(int fd, struct mini_request *r)
{
	char line[8192];
	char length[32];
	size_t n = 0;

	if (!mini_line(fd, line, sizeof(line)) ||
		sscanf(line, "%15s %4095s", r->method, r->target) != 2)
		return false;
	for (;;) {
		size_t len;

		if (!mini_line(fd, line, sizeof(line)))
			return false;
		len = strlen(line);
		if (len <= 2)
			break;
		if (n + len >= sizeof(r->headers))
			return false;
		memcpy(r->headers + n, line, len + 1);
		n += len;
	}
	if (mini_header(r, "Transfer-Encoding", length, sizeof(length)))
		return mini_read_chunked(fd, r);
	if (!mini_header(r, "Content-Length", length, sizeof(length)))
		return true;
	r->body_len = strtoul(length, NULL, 10);
	r->body = malloc(r->body_len + 1);
	return mini_fill(fd, r->body, r->body_len);
}

static inline void *mini_connection_main(void *arg)
{
	struct mini_connection *c = arg;
	bool keep = true;

	while (keep) {
		struct mini_request *r = calloc(1, sizeof(*r));

		keep = mini_read_request(c->fd, r);
		if (keep) {
			r->number = atomic_fetch_add(&c->m->requests, 1) + 1;
			keep = c->m->answer(c->m, r, c->fd);
		}
		free(r->body);
		free(r);
	}
	shutdown(c->fd, SHUT_RDWR);
	free(c);
	return NULL;
}

static inline void *mini_acceptor_main(void *arg)
{
	struct mini_http *m = arg;

	for (unsigned i = 0; i < MINI_CONNECTIONS; i++) {
		struct mini_connection *c;
		int fd = accept4(m->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		int one = 1;

		if (fd < 0)
			return NULL;
		if (atomic_load(&m->stopping)) {
			close(fd);
			return NULL;
		}
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		atomic_fetch_add(&m->connections, 1);
		c = malloc(sizeof(*c));
		*c = (struct mini_connection){m, fd};
		pthread_mutex_lock(&m->lock);
		m->slots[i].fd = fd;
		m->slots[i].started = pthread_create(&m->slots[i].thread, NULL,
					      mini_connection_main, c) == 0;
		pthread_mutex_unlock(&m->lock);
	}
	return NULL;
}

static inline void mini_start(struct mini_http *m, mini_answer_fn answer, void *cookie)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);

	memset(m, 0, sizeof(*m));
	m->answer = answer;
	m->cookie = cookie;
	pthread_mutex_init(&m->lock, NULL);
	m->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(m->listen_fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
		listen(m->listen_fd, 128) < 0 ||
		getsockname(m->listen_fd, (struct sockaddr *)&address, &len) < 0) {
		perror("mini_http");
		abort();
	}
	m->port = ntohs(address.sin_port);
	pthread_create(&m->acceptor, NULL, mini_acceptor_main, m);
}

static inline void mini_stop(struct mini_http *m)
{
	atomic_store(&m->stopping, true);
	shutdown(m->listen_fd, SHUT_RDWR);
	pthread_join(m->acceptor, NULL);
	close(m->listen_fd);
	for (unsigned i = 0; i < MINI_CONNECTIONS; i++) {
		if (!m->slots[i].started)
			continue;
		shutdown(m->slots[i].fd, SHUT_RDWR);
		pthread_join(m->slots[i].thread, NULL);
		close(m->slots[i].fd);
	}
	pthread_mutex_destroy(&m->lock);
}

static inline void mini_url(const struct mini_http *m, const char *path, char out[MINI_URL_SIZE])
{
	snprintf(out, MINI_URL_SIZE, "http://127.0.0.1:%d%s", m->port, path);
}

#endif
