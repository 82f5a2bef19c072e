/* The connections, and the loop over them. */
#include "net/plain/plain.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/near_socket.h"
#include "base/str.h"

#define TICK_MS 50 /* between checks of the cancel flag and of silence */
#define EVENTS	64 /* taken from the kernel at a time */

struct connection {
	int fd; /* -1: none */
	bool waits_to_send; /* the kernel reports room to send, too */
	bool kept; /* it has carried a reply before this request */
	bool keep; /* the server keeps it after this reply */
	struct plain_get *get; /* in progress; NULL: idle */
	size_t sent; /* of its head */
	bool in_body;
	uint64_t body_len;
	size_t have; /* bytes in `in` */
	int64_t moved_ms; /* the last byte in either direction */
	char *in; /* LIMIT_PLAIN_HEAD: the reply up to its body, and as much as came with it */
};

struct plain {
	char *host, *port;
	int epoll;
	/* The server's address; 0 bytes: not resolved. */
	struct sockaddr_storage address;
	socklen_t address_len;
	struct connection *connections;
	size_t n;
};

/* One call of plain_run(). */
struct run {
	struct plain *plain;
	struct plain_get *gets;
	size_t n, next, ended;
	int64_t now_ms;
};

/* ---- the server ---- */

int plain_new(
	struct plain **out, const char *authority, unsigned connections, struct penstock_error *err)
{
	struct plain *p = calloc(1, sizeof(*p));
	const char *colon = strrchr(authority, ':');
	bool bracket = authority[0] == '[';
	size_t len;

	if (!p)
		return error_memory(err);
	if (colon && strchr(colon, ']'))
		colon = NULL;
	len = colon ? (size_t)(colon - authority) : strlen(authority);
	p->epoll = -1;
	p->n = connections ? connections : LIMIT_PLAIN_CONNECTIONS;
	p->host = bracket && len > 2 ? strndup(authority + 1, len - 2) : strndup(authority, len);
	p->port = strdup(colon ? colon + 1 : "80");
	p->connections = calloc(p->n, sizeof(*p->connections));
	if (!p->host || !p->port || !p->connections) {
		plain_free(p);
		return error_memory(err);
	}
	for (size_t i = 0; i < p->n; i++)
		p->connections[i].fd = -1;
	p->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (p->epoll < 0) {
		plain_free(p);
		return error_errno(err, errno, "cannot wait for connections");
	}
	*out = p;
	return 0;
}

void plain_free(struct plain *p)
{
	if (!p)
		return;
	for (size_t i = 0; p->connections && i < p->n; i++) {
		if (p->connections[i].fd >= 0)
			close(p->connections[i].fd);
		free(p->connections[i].in);
	}
	if (p->epoll >= 0)
		close(p->epoll);
	free(p->connections);
	free(p->host);
	free(p->port);
	free(p);
}

static bool resolve(struct plain *p)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *found;
	struct sockaddr_un name;

	if (p->address_len)
		return true;
	if (getaddrinfo(p->host, p->port, &hints, &found) != 0)
		return false;
	if (near_find(found->ai_addr, &name)) {
		memcpy(&p->address, &name, sizeof(name));
		p->address_len = sizeof(name);
	} else {
		memcpy(&p->address, found->ai_addr, found->ai_addrlen);
		p->address_len = found->ai_addrlen;
	}
	freeaddrinfo(found);
	return true;
}

/* ---- a connection ---- */

static void drop(struct connection *c)
{
	if (c->fd >= 0)
		close(c->fd); /* leaves the epoll set by that */
	c->fd = -1;
	c->kept = false;
	c->have = 0;
}

static bool watch(const struct plain *p, struct connection *c, int op, bool sends)
{
	struct epoll_event event = {.events = EPOLLIN | (sends ? EPOLLOUT : 0), .data.ptr = c};

	c->waits_to_send = sends;
	return epoll_ctl(p->epoll, op, c->fd, &event) == 0;
}

static bool open_connection(struct plain *p, struct connection *c)
{
	const int on = 1;

	if (!c->in)
		c->in = malloc(LIMIT_PLAIN_HEAD);
	if (!c->in || !resolve(p))
		return false;
	c->fd = socket(p->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->fd < 0)
		return false;
	if (p->address.ss_family != AF_UNIX)
		setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if ((connect(c->fd, (const struct sockaddr *)&p->address, p->address_len) < 0 &&
		    errno != EINPROGRESS) ||
		!watch(p, c, EPOLL_CTL_ADD, true)) {
		/* A name may have another address now, and a socket another server. */
		p->address_len = 0;
		drop(c);
		return false;
	}
	return true;
}

/* ---- a request ---- */

static void end(struct run *run, struct connection *c, bool good)
{
	c->get->good = good;
	c->get = NULL;
	run->ended++;
	if (good && c->keep)
		c->kept = true;
	else
		drop(c);
	c->have = 0;
}

static void send_head(struct run *run, struct connection *c);

/* The connection is of no use. A request that had no reply on a kept one goes to a new one. */
static void fail(struct run *run, struct connection *c)
{
	if (c->kept && !c->have && !c->in_body) {
		drop(c);
		if (open_connection(run->plain, c)) {
			c->sent = 0;
			send_head(run, c);
			return;
		}
	}
	run->plain->address_len = 0;
	end(run, c, false);
}

static void send_head(struct run *run, struct connection *c)
{
	const struct plain_get *g = c->get;
	ssize_t n = send(c->fd, g->head + c->sent, g->head_len - c->sent, MSG_NOSIGNAL);

	if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ENOTCONN) {
		fail(run, c);
		return;
	}
	if (n > 0) {
		c->sent += (size_t)n;
		c->moved_ms = run->now_ms;
	}
	if (c->waits_to_send != (c->sent < g->head_len) &&
		!watch(run->plain, c, EPOLL_CTL_MOD, c->sent < g->head_len))
		fail(run, c);
}

static void begin(struct run *run, struct connection *c)
{
	c->get = &run->gets[run->next++];
	c->get->good = false;
	c->get->status = 0;
	c->get->len = 0;
	c->sent = 0;
	c->have = 0;
	c->in_body = false;
	c->moved_ms = run->now_ms;
	if (c->fd < 0 && !open_connection(run->plain, c)) {
		end(run, c, false);
		return;
	}
	send_head(run, c);
}

/* Begins the body with what came together with the head. Returns false if the reply is not good. */
static bool begin_body(struct connection *c, size_t head_len)
{
	struct plain_get *g = c->get;
	size_t more = c->have - head_len;
	int status = plain_parse_head(c->in, head_len, &c->body_len, &c->keep);

	g->status = status < 0 ? 0 : status;
	if ((status != 200 && status != 206) || c->body_len > g->room || more > c->body_len ||
		(g->on_head && !g->on_head(g->cookie, g, c->in, head_len)))
		return false;
	memcpy(g->body, c->in + head_len, more);
	g->len = more;
	c->in_body = true;
	return true;
}

static void receive(struct run *run, struct connection *c)
{
	struct plain_get *g = c->get;
	char *to = c->in_body ? (char *)g->body + g->len : c->in + c->have;
	size_t room = c->in_body ? c->body_len - g->len : LIMIT_PLAIN_HEAD - c->have;
	ssize_t n = recv(c->fd, to, room, 0);
	const char *blank;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		fail(run, c);
		return;
	}
	c->moved_ms = run->now_ms;
	if (c->in_body) {
		g->len += (size_t)n;
	} else {
		c->have += (size_t)n;
		blank = memmem(c->in, c->have, "\r\n\r\n", 4);
		if (!blank && c->have == LIMIT_PLAIN_HEAD) {
			end(run, c, false);
			return;
		}
		if (blank && !begin_body(c, (size_t)(blank + 4 - c->in))) {
			end(run, c, false);
			return;
		}
	}
	if (c->in_body && g->len == c->body_len)
		end(run, c, true);
}

static void on_event(struct run *run, struct connection *c, uint32_t events)
{
	/* An idle one that the server closes, or that sends what was not requested. */
	if (!c->get) {
		drop(c);
		return;
	}
	if ((events & EPOLLOUT) && c->sent < c->get->head_len)
		send_head(run, c);
	if (c->get && c->fd >= 0 && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		receive(run, c);
	while (!c->get && run->next < run->n)
		begin(run, c);
}

/* Ends what is silent, or everything. */
static void give_up(struct run *run, int silence_ms, bool all)
{
	struct plain *p = run->plain;

	for (size_t i = 0; i < p->n; i++) {
		struct connection *c = &p->connections[i];

		if (!c->get || (!all && run->now_ms - c->moved_ms < silence_ms))
			continue;
		c->keep = false;
		end(run, c, false);
		while (!all && !c->get && run->next < run->n)
			begin(run, c);
	}
	for (; all && run->next < run->n; run->next++, run->ended++)
		run->gets[run->next].good = false;
}

void plain_run(
	struct plain *p, struct plain_get *gets, size_t n, int silence_ms, const atomic_int *cancel)
{
	struct run run = {.plain = p, .gets = gets, .n = n, .now_ms = clock_monotonic_ms()};
	int64_t checked_ms = run.now_ms;

	for (size_t i = 0; i < p->n && run.next < n; i++) {
		while (!p->connections[i].get && run.next < n)
			begin(&run, &p->connections[i]);
	}
	while (run.ended < n) {
		struct epoll_event events[EVENTS];
		int got = epoll_wait(p->epoll, events, EVENTS, TICK_MS);

		run.now_ms = clock_monotonic_ms();
		for (int i = 0; i < got; i++)
			on_event(&run, events[i].data.ptr, events[i].events);
		if (cancel && atomic_load(cancel))
			give_up(&run, 0, true);
		if (run.now_ms - checked_ms >= TICK_MS) {
			checked_ms = run.now_ms;
			give_up(&run, silence_ms, false);
		}
	}
}
