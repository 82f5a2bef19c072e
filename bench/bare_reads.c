/*
 * A minimal client of small reads, for bench/samples.py and bench/sample_shards.py: sends requests
 * that were signed in advance, and receives the replies. The program does not compute keys,
 * signatures or checksums.
 *
 *	bench-bare-reads PORT REQUESTS SECONDS [MIB]
 *
 * REQUESTS is a file of requests, each of which ends with an empty line. Two threads with 16 kept
 * connections each send the requests in turn. A thread receives all replies into one buffer. If MIB
 * is given, the thread fills that many MiB of memory before it reuses the memory, like a program
 * that keeps its data. Prints replies per second.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define THREADS	    2
#define CONNECTIONS 16
#define REQUESTS    100000
#define BUFFER	    (256 * 1024)

struct connection {
	int fd;
	size_t left; /* bytes of the reply that are missing; 0 before the reply begins */
};

static char *text;
static struct {
	const char *data;
	size_t len;
} requests[REQUESTS];
static size_t n_requests;
static int port;
static size_t memory = BUFFER; /* bytes of each thread's memory */
static double until;
static atomic_ulong replies;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void send_next(const struct connection *c, size_t *next)
{
	size_t i = *next % n_requests;

	*next += THREADS;
	if (send(c->fd, requests[i].data, requests[i].len, MSG_NOSIGNAL) !=
		(ssize_t)requests[i].len)
		fail("send");
}

/* Returns true at the end of a reply. */
static bool receive(struct connection *c, char *buffer)
{
	ssize_t n = recv(c->fd, buffer, c->left && c->left < BUFFER ? c->left : BUFFER, 0);
	const char *blank, *length;

	if (n <= 0)
		fail("recv");
	if (c->left) {
		c->left -= (size_t)n;
		return c->left == 0;
	}
	blank = memmem(buffer, (size_t)n, "\r\n\r\n", 4);
	length = memmem(buffer, (size_t)n, "Content-Length: ", 16);
	if (!blank || !length || buffer[9] != '2') {
		fprintf(stderr, "bad reply: %.*s\n", (int)n, buffer);
		exit(1);
	}
	c->left = (size_t)(blank + 4 - buffer) + strtoul(length + 16, NULL, 10) - (size_t)n;
	return c->left == 0;
}

static void *run(void *first)
{
	struct connection connections[CONNECTIONS] = {0};
	char *all = calloc(1, memory);
	size_t next = (size_t)first, at = 0;
	int epoll = epoll_create1(0);

	for (size_t i = 0; i < CONNECTIONS; i++) {
		struct sockaddr_in to = {.sin_family = AF_INET,
			.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
			.sin_port = htons((uint16_t)port)};
		struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[i]};

		connections[i].fd = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(connections[i].fd, (struct sockaddr *)&to, sizeof(to)) < 0 ||
			epoll_ctl(epoll, EPOLL_CTL_ADD, connections[i].fd, &event) < 0)
			fail("connect");
		send_next(&connections[i], &next);
	}
	while (now() < until) {
		struct epoll_event events[CONNECTIONS];
		int n = epoll_wait(epoll, events, CONNECTIONS, 100);

		for (int i = 0; i < n; i++) {
			bool whole = receive(events[i].data.ptr, all + at);

			at = at + 2 * BUFFER <= memory ? at + BUFFER : 0;
			if (!whole)
				continue;
			atomic_fetch_add(&replies, 1);
			send_next(events[i].data.ptr, &next);
		}
	}
	free(all);
	return NULL;
}

static void read_requests(const char *path)
{
	FILE *f = fopen(path, "r");
	long size;

	if (!f || fseek(f, 0, SEEK_END) < 0 || (size = ftell(f)) <= 0)
		fail(path);
	rewind(f);
	text = calloc(1, (size_t)size + 1);
	if (!text || fread(text, 1, (size_t)size, f) != (size_t)size)
		fail(path);
	fclose(f);
	for (char *at = text, *end; n_requests < REQUESTS && (end = strstr(at, "\r\n\r\n"));
		at = end + 4) {
		requests[n_requests].data = at;
		requests[n_requests++].len = (size_t)(end + 4 - at);
	}
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	double start;

	if (argc != 4 && argc != 5)
		return 64;
	if (argc == 5)
		memory = (size_t)atoi(argv[4]) << 20;
	port = atoi(argv[1]);
	read_requests(argv[2]);
	start = now();
	until = start + atof(argv[3]);
	for (size_t i = 0; i < THREADS; i++) {
		if (pthread_create(&threads[i], NULL, run, (void *)i) != 0)
			fail("pthread_create");
	}
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("%.0f\n", (double)atomic_load(&replies) / (now() - start));
	return 0;
}
