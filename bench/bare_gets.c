/*
 * A minimal server of signed GETs, for bench/store_get.py: one thread verifies the signature of
 * each request, opens the file and sends it. The server has no index, no access rules and no
 * limits.
 *
 *	bench-bare-gets DIRECTORY SECRET
 *
 * Prints the port of 127.0.0.1 on which it listens. Serves DIRECTORY/PATH to requests that are
 * signed for us-east-1 with the secret key SECRET; any other request ends the program.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD = 8192, EVENTS = 64, TEXT = 4096, NAME = 512 };

struct connection {
	int fd;
	int file; /* -1 between replies */
	off_t at, size;
	size_t have;
	char head[HEAD];
};

static const char *directory, *secret;

static void fail(const char *why)
{
	perror(why);
	exit(1);
}

static void hex(const unsigned char *bytes, char *out)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < SHA256_DIGEST_LENGTH; i++) {
		out[2 * i] = digits[bytes[i] >> 4];
		out[2 * i + 1] = digits[bytes[i] & 15];
	}
	out[2 * SHA256_DIGEST_LENGTH] = '\0';
}

static void hmac(const void *key, size_t n, const char *text, unsigned char *out)
{
	HMAC(EVP_sha256(), key, (int)n, (const unsigned char *)text, strlen(text), out, NULL);
}

/* Copies the value of a header. */
static void get(const char *head, const char *name, size_t n, char *out, size_t size)
{
	for (const char *line = strstr(head, "\r\n"); line && line[2] != '\r';
		line = strstr(line + 2, "\r\n")) {
		if (strncasecmp(line + 2, name, n) != 0 || line[2 + n] != ':')
			continue;
		line += 2 + n + 1;
		line += strspn(line, " ");
		snprintf(out, size, "%.*s", (int)strcspn(line, "\r"), line);
		return;
	}
	errno = EINVAL;
	fail(name);
}

/* Returns the signing key of a day, which is derived once. */
static const unsigned char *key_of(const char *day)
{
	static char known[9];
	static unsigned char key[SHA256_DIGEST_LENGTH];
	static const char *const parts[] = {"us-east-1", "s3", "aws4_request"};
	char first[TEXT];

	if (strcmp(known, day) == 0)
		return key;
	snprintf(first, sizeof(first), "AWS4%s", secret);
	hmac(first, strlen(first), day, key);
	for (size_t i = 0; i < 3; i++) {
		unsigned char next[SHA256_DIGEST_LENGTH];

		hmac(key, sizeof(key), parts[i], next);
		memcpy(key, next, sizeof(key));
	}
	snprintf(known, sizeof(known), "%s", day);
	return key;
}

static void verify(const char *head, const char *path, size_t path_len)
{
	char canonical[TEXT], text[TEXT], authorization[TEXT], date[NAME], payload[NAME], day[9];
	char digest[2 * SHA256_DIGEST_LENGTH + 1];
	unsigned char sum[SHA256_DIGEST_LENGTH];
	const char *names, *signature;
	size_t n, len;

	get(head, "authorization", 13, authorization, sizeof(authorization));
	get(head, "x-amz-date", 10, date, sizeof(date));
	get(head, "x-amz-content-sha256", 20, payload, sizeof(payload));
	names = strstr(authorization, "SignedHeaders=");
	signature = strstr(authorization, "Signature=");
	if (!names || !signature)
		fail("Authorization");
	names += strlen("SignedHeaders=");
	signature += strlen("Signature=");
	len = strcspn(names, ",");
	n = (size_t)snprintf(canonical, sizeof(canonical), "GET\n%.*s\n\n", (int)path_len, path);
	for (const char *p = names; p < names + len; p += strcspn(p, ";,") + 1) {
		size_t size = strcspn(p, ";,");
		char value[NAME];

		get(head, p, size, value, sizeof(value));
		n += (size_t)snprintf(
			canonical + n, sizeof(canonical) - n, "%.*s:%s\n", (int)size, p, value);
	}
	n += (size_t)snprintf(
		canonical + n, sizeof(canonical) - n, "\n%.*s\n%s", (int)len, names, payload);
	SHA256((unsigned char *)canonical, n, sum);
	hex(sum, digest);
	snprintf(day, sizeof(day), "%.8s", date);
	snprintf(text, sizeof(text), "AWS4-HMAC-SHA256\n%.200s\n%s/us-east-1/s3/aws4_request\n%s",
		date, day, digest);
	hmac(key_of(day), SHA256_DIGEST_LENGTH, text, sum);
	hex(sum, digest);
	errno = EACCES;
	if (strncmp(signature, digest, strlen(digest)) != 0)
		fail("a signature");
}

/* Returns true if the send failed because the client has closed the connection. The next recv()
 * reports the close, too. */
static bool is_gone(ssize_t sent)
{
	return sent < 0 && (errno == EPIPE || errno == ECONNRESET);
}

/* Sends as much as the socket takes. Returns true at the end of the reply. */
static bool send_file(struct connection *c)
{
	while (c->at < c->size) {
		ssize_t n = sendfile(c->fd, c->file, &c->at, (size_t)(c->size - c->at));

		if (n < 0 && errno == EAGAIN)
			return false;
		if (is_gone(n))
			break;
		if (n <= 0)
			fail("sendfile");
	}
	close(c->file);
	c->file = -1;
	return true;
}

static void begin_reply(struct connection *c)
{
	const char *path = strchr(c->head, ' ') + 1;
	size_t n = strcspn(path, " ");
	char text[TEXT];
	struct stat st;
	ssize_t sent;
	int len;

	verify(c->head, path, n);
	snprintf(text, sizeof(text), "%s%.*s", directory, (int)n, path);
	c->file = open(text, O_RDONLY | O_CLOEXEC);
	if (c->file < 0 || fstat(c->file, &st) < 0)
		fail(text);
	c->at = 0;
	c->size = st.st_size;
	len = snprintf(text, sizeof(text),
		"HTTP/1.1 200 OK\r\nContent-Length: %lld\r\nContent-Type: "
		"binary/octet-stream\r\n\r\n",
		(long long)st.st_size);
	sent = send(c->fd, text, (size_t)len, MSG_MORE);
	if (sent != len && !is_gone(sent))
		fail("send");
}

static void end(struct connection *c)
{
	close(c->fd);
	if (c->file >= 0)
		close(c->file);
	free(c);
}

/* Serves all requests that have arrived. */
static void serve(struct connection *c)
{
	for (;;) {
		char *whole;
		ssize_t n;

		if (c->file >= 0 && !send_file(c))
			return;
		c->head[c->have] = '\0';
		whole = strstr(c->head, "\r\n\r\n");
		if (whole) {
			size_t size = (size_t)(whole + 4 - c->head);

			begin_reply(c);
			c->have -= size;
			memmove(c->head, whole + 4, c->have);
			continue;
		}
		n = recv(c->fd, c->head + c->have, HEAD - 1 - c->have, 0);
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			end(c);
			return;
		}
		c->have += (size_t)n;
	}
}

static void take(int listener, int epoll)
{
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), on = 1;
	struct connection *c = fd < 0 ? NULL : calloc(1, sizeof(*c));
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};

	if (!c)
		fail("accept");
	c->fd = fd;
	c->file = -1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0)
		fail("epoll_ctl");
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = {.events = EPOLLIN}, events[EVENTS];

	if (argc != 3)
		return 64;
	signal(SIGPIPE, SIG_IGN);
	directory = argv[1];
	secret = argv[2];
	if (bind(listener, (struct sockaddr *)&address, len) < 0 || listen(listener, 128) < 0 ||
		getsockname(listener, (struct sockaddr *)&address, &len) < 0 ||
		epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) < 0)
		fail("listen");
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);
	for (;;) {
		int n = epoll_wait(epoll, events, EVENTS, -1);

		for (int i = 0; i < n; i++) {
			if (events[i].data.ptr)
				serve(events[i].data.ptr);
			else
				take(listener, epoll);
		}
	}
}
