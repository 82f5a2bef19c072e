/*
 * A proxy that adds latency between clients and a server, for benchmarks on machines without netem.
 *
 *	bench-delay-proxy UPSTREAM_PORT DELAY_MS WINDOW_KIB STALL_FIRST STALL_EVERY STALL_MS
 *
 * Prints its port. Each direction of a connection forwards bytes DELAY_MS after it received them,
 * and holds at most WINDOW_KIB, like the window of TCP on a path with this latency. So one
 * connection carries at most a window in DELAY_MS, and many connections carry as much as the
 * machine can. The first bytes of a new connection wait for one more round trip, that of TCP's
 * handshake.
 *
 * The proxy counts the requests of all connections. The proxy delays the request number STALL_FIRST
 * (never if 0), and every STALL_EVERY-th request after it, by STALL_MS, and prints a line
 * "stalled". The connection of the request stalls, too. A request begins with the first bytes that
 * a client sends after the server has sent bytes.
 *
 * The proxy has one thread with epoll. Each byte is copied twice: when it is received, and when it
 * is sent.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BLOCK	 (64 * 1024)
#define EVENTS	 256
#define NS_OF_MS INT64_C(1000000)

/* Bytes that arrived together and are not forwarded yet. */
struct block {
	struct block *next;
	int64_t due_ns;
	size_t len, at;
	char data[BLOCK];
};

struct way {
	struct block *first, *last;
	size_t held;
	bool ended; /* the sender has closed the connection */
	bool shut; /* the other side was shut down, too */
	bool blocked; /* the other side accepts no bytes now */
};

struct pair {
	struct pair *next, *prev;
	struct end {
		struct pair *pair;
		int fd;
		uint32_t wanted;
	} ends[2]; /* client, server */
	struct way ways[2]; /* from the client, from the server */
	bool server_spoke;
	int64_t not_before_ns; /* bytes of the client are not forwarded before this time */
	bool dead;
};

static int epoll_fd, upstream_port;
static int64_t delay_ns, stall_ns;
static size_t window;
static unsigned stall_first, stall_every, requests;
static struct pair *pairs;
static struct block *spare;

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 * NS_OF_MS + t.tv_nsec;
}

static void *must(void *memory)
{
	if (!memory) {
		fputs("out of memory\n", stderr);
		exit(70);
	}
	return memory;
}

static struct block *block_take(void)
{
	struct block *block = spare;

	if (block)
		spare = block->next;
	else
		block = must(malloc(sizeof(*block)));
	block->next = NULL;
	block->at = 0;
	return block;
}

static void want(struct end *end)
{
	struct pair *pair = end->pair;
	int side = end == &pair->ends[1];
	const struct way *in = &pair->ways[side], *out = &pair->ways[!side];
	uint32_t wanted = (!in->ended && in->held < window ? EPOLLIN : 0u) |
			  (out->blocked ? EPOLLOUT : 0u);
	struct epoll_event event = {.events = wanted, .data.ptr = end};

	if (wanted != end->wanted)
		epoll_ctl(epoll_fd, EPOLL_CTL_MOD, end->fd, &event);
	end->wanted = wanted;
}

static void end_open(struct pair *pair, int side, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &pair->ends[side]};
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	pair->ends[side] = (struct end){pair, fd, EPOLLIN};
	epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static void pair_open(int client)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)upstream_port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct pair *pair;

	if (server < 0 || connect(server, (struct sockaddr *)&to, sizeof(to)) < 0) {
		close(client);
		if (server >= 0)
			close(server);
		return;
	}
	pair = must(calloc(1, sizeof(*pair)));
	pair->server_spoke = true;
	/* One round trip for the handshake, and the delay of the first bytes. */
	pair->not_before_ns = now_ns() + 3 * delay_ns;
	pair->next = pairs;
	if (pairs)
		pairs->prev = pair;
	pairs = pair;
	end_open(pair, 0, client);
	end_open(pair, 1, server);
}

static void pair_free(struct pair *pair)
{
	for (int side = 0; side < 2; side++) {
		struct block *block;

		close(pair->ends[side].fd);
		while ((block = pair->ways[side].first)) {
			pair->ways[side].first = block->next;
			free(block);
		}
	}
	if (pair->prev)
		pair->prev->next = pair->next;
	else
		pairs = pair->next;
	if (pair->next)
		pair->next->prev = pair->prev;
	free(pair);
}

static bool stalls(unsigned request)
{
	return stall_first && request >= stall_first && (request - stall_first) % stall_every == 0;
}

/* Returns the time at which bytes that arrive now are forwarded. */
static int64_t due(struct pair *pair, int side, int64_t now)
{
	int64_t at = now + delay_ns;

	if (side == 1) {
		pair->server_spoke = true;
		return at;
	}
	if (pair->server_spoke && stalls(++requests)) {
		pair->not_before_ns = now + stall_ns;
		puts("stalled");
		fflush(stdout);
	}
	pair->server_spoke = false;
	return at < pair->not_before_ns ? pair->not_before_ns : at;
}

static void take_in(struct pair *pair, int side, int64_t now)
{
	struct way *way = &pair->ways[side];

	while (!way->ended && way->held < window) {
		struct block *block = block_take();
		ssize_t n = recv(pair->ends[side].fd, block->data, BLOCK, MSG_DONTWAIT);

		if (n <= 0) {
			block->next = spare;
			spare = block;
			if (n < 0 && (errno == EAGAIN || errno == EINTR))
				return;
			way->ended = true;
			pair->dead = pair->dead || n < 0;
			return;
		}
		block->len = (size_t)n;
		block->due_ns = due(pair, side, now);
		way->held += (size_t)n;
		if (way->last)
			way->last->next = block;
		else
			way->first = block;
		way->last = block;
		if ((size_t)n < BLOCK)
			return;
	}
}

static void hand_on(struct pair *pair, int side, int64_t now)
{
	struct way *way = &pair->ways[side];
	int fd = pair->ends[!side].fd;

	while (way->first && way->first->due_ns <= now && !way->blocked) {
		struct block *block = way->first;
		ssize_t n = send(fd, block->data + block->at, block->len - block->at,
			MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN) {
			way->blocked = true;
			return;
		}
		if (n < 0) {
			pair->dead = true;
			return;
		}
		block->at += (size_t)n;
		way->held -= (size_t)n;
		if (block->at < block->len)
			continue;
		way->first = block->next;
		if (!way->first)
			way->last = NULL;
		block->next = spare;
		spare = block;
	}
	if (way->ended && !way->first && !way->shut) {
		way->shut = true;
		shutdown(fd, SHUT_WR);
	}
}

/* Forwards all bytes that are due. Returns the milliseconds until the next bytes are due. */
static int serve_all(void)
{
	int64_t now = now_ns(), next = now + 1000 * NS_OF_MS;

	for (struct pair *pair = pairs, *after; pair; pair = after) {
		after = pair->next;
		for (int side = 0; side < 2; side++) {
			hand_on(pair, side, now);
			if (pair->ways[side].first && !pair->ways[side].blocked &&
				pair->ways[side].first->due_ns < next)
				next = pair->ways[side].first->due_ns;
		}
		if (pair->dead || (pair->ways[0].shut && pair->ways[1].shut)) {
			pair_free(pair);
			continue;
		}
		want(&pair->ends[0]);
		want(&pair->ends[1]);
	}
	return next <= now ? 0 : (int)((next - now) / NS_OF_MS + 1);
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	struct epoll_event events[EVENTS];
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (argc != 7 || atoi(argv[5]) < 1 || listener < 0) {
		fputs("usage: bench-delay-proxy UPSTREAM_PORT DELAY_MS WINDOW_KIB STALL_FIRST "
		      "STALL_EVERY STALL_MS\n",
			stderr);
		return 64;
	}
	upstream_port = atoi(argv[1]);
	delay_ns = atoi(argv[2]) * NS_OF_MS;
	window = (size_t)atoi(argv[3]) * 1024;
	stall_first = (unsigned)atoi(argv[4]);
	stall_every = (unsigned)atoi(argv[5]);
	stall_ns = atoi(argv[6]) * NS_OF_MS;
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
		listen(listener, 512) < 0 ||
		getsockname(listener, (struct sockaddr *)&address, &len) < 0 ||
		epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener,
			&(struct epoll_event){.events = EPOLLIN}) < 0)
		return perror("bench-delay-proxy"), 70;
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);
	for (int timeout = -1;;) {
		int n = epoll_wait(epoll_fd, events, EVENTS, timeout);
		int64_t now = now_ns();

		for (int i = 0; i < n; i++) {
			struct end *end = events[i].data.ptr;

			if (!end) {
				int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

				if (client >= 0)
					pair_open(client);
				continue;
			}
			if (events[i].events & EPOLLOUT)
				end->pair->ways[end == &end->pair->ends[0]].blocked = false;
			if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
				take_in(end->pair, end == &end->pair->ends[1], now);
		}
		timeout = serve_all();
	}
}
