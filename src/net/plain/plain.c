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
#include "net/pace/waits.h"

#define TICK_MS 50 /* interval of the checks of the cancel flag and for silence */
#define EVENTS	64 /* maximum number of events of one epoll_wait() */
/* A run uses up to NEAR connections, and NEAR more for each NEAR_MS of the median wait for a
 * reply. */
#define NEAR	16
#define NEAR_MS 4
/* Failures in a row after which the requests that have not started are skipped. */
#define FAILURES 16
/* A request that takes SLOW times the allowed silence is ended, unless it has received at least a
 * byte per millisecond. */
#define SLOW 5

struct connection {
	int fd; /* -1 if it is closed */
	bool waits_to_send; /* epoll also reports room to send */
	bool kept; /* the connection has carried a complete reply before this request */
	bool keep; /* the server keeps the connection open after this reply */
	struct plain_get *get; /* in progress; NULL if the connection is idle */
	unsigned turn; /* value of `plain->turn` that selected the address of `fd` */
	unsigned tries; /* new connections on which this request got no reply */
	/* resends of this request because its connection was silent for too long */
	unsigned resent;
	size_t sent; /* bytes of the request's head */
	bool in_body;
	uint64_t body_len;
	size_t have; /* bytes in `in` */
	int64_t begun_ms, moved_ms; /* start of the request; last byte in either direction */
	char *in; /* LIMIT_PLAIN_HEAD bytes: the reply's head, and body bytes that came with it */
};

struct plain {
	char *host, *port;
	int epoll;
	const atomic_int *cancel; /* ends every run; may be NULL */
	/* The server's address; `address_len` is 0 if it is not resolved. `turn` modulo
	 * `n_addresses` selects one of several addresses. */
	struct sockaddr_storage address;
	socklen_t address_len;
	unsigned turn, n_addresses;
	struct connection *connections;
	size_t n, most; /* number of connections; maximum for the next run */
	char *chunk; /* LIMIT_PLAIN_CHUNK: a piece of a body on its way to `on_body` */
	struct waits waits;
};

/* One call of plain_run(). */
struct run {
	struct plain *plain;
	struct plain_get *gets;
	size_t n, next, ended;
	unsigned failures; /* in a row */
	bool refused; /* the server asked for fewer requests */
	int64_t now_ms;
	int64_t answered_ms; /* time of the last byte of any reply */
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
	waits_init(&p->waits);
	p->n = connections ? connections : LIMIT_PLAIN_CONNECTIONS;
	p->most = p->n < NEAR ? p->n : NEAR;
	p->host = bracket && len > 2 ? strndup(authority + 1, len - 2) : strndup(authority, len);
	p->port = strdup(colon ? colon + 1 : "80");
	p->connections = calloc(p->n, sizeof(*p->connections));
	p->chunk = malloc(LIMIT_PLAIN_CHUNK);
	if (!p->host || !p->port || !p->connections || !p->chunk) {
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
	free(p->chunk);
	free(p->host);
	free(p->port);
	free(p);
}

void plain_set_cancel(struct plain *p, const atomic_int *cancel)
{
	p->cancel = cancel;
}

static bool resolve(struct plain *p)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *found, *chosen;
	struct sockaddr_un name;

	if (p->address_len)
		return true;
	p->n_addresses = 0;
	if (getaddrinfo(p->host, p->port, &hints, &found) != 0)
		return false;
	chosen = found;
	do
		p->n_addresses++;
	while ((chosen = chosen->ai_next));
	chosen = found;
	for (unsigned i = p->turn % p->n_addresses; i > 0; i--)
		chosen = chosen->ai_next;
	if (near_find(chosen->ai_addr, &name)) {
		memcpy(&p->address, &name, sizeof(name));
		p->address_len = sizeof(name);
	} else {
		memcpy(&p->address, chosen->ai_addr, chosen->ai_addrlen);
		p->address_len = chosen->ai_addrlen;
	}
	freeaddrinfo(found);
	return true;
}

/* Makes the next connection resolve the name again, and use the server's next address if this
 * address did not answer. */
static void forget_address(struct plain *p, const struct connection *c, bool answered)
{
	if (c->turn != p->turn)
		return;
	p->turn += !answered;
	p->address_len = 0;
}

/* ---- a connection ---- */

static void drop(const struct plain *p, struct connection *c)
{
	if (c->fd >= 0) {
		/* After fork(), a socket that the child still has stays in the epoll set after
		 * close(). */
		epoll_ctl(p->epoll, EPOLL_CTL_DEL, c->fd, NULL);
		close(c->fd);
	}
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

/* Ends the requests that have not started. */
static void skip_rest(struct run *run)
{
	for (; run->next < run->n; run->next++, run->ended++) {
		run->gets[run->next].good = false;
		run->gets[run->next].status = 0;
		run->gets[run->next].len = 0;
	}
}

static bool open_connection(struct run *run, struct connection *c)
{
	struct plain *p = run->plain;
	const int on = 1;

	c->turn = p->turn;
	if (!c->in)
		c->in = malloc(LIMIT_PLAIN_HEAD);
	/* A failed lookup may take long, so it is not repeated for the other requests. */
	if (!c->in || !resolve(p)) {
		skip_rest(run);
		return false;
	}
	c->fd = socket(p->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->fd < 0)
		return false;
	if (p->address.ss_family != AF_UNIX)
		setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return (connect(c->fd, (const struct sockaddr *)&p->address, p->address_len) == 0 ||
		       errno == EINPROGRESS) &&
	       watch(p, c, EPOLL_CTL_ADD, true);
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
		drop(run->plain, c);
	c->have = 0;
	run->failures = good ? 0 : run->failures + 1;
	if (run->failures == FAILURES)
		skip_rest(run);
}

static void send_head(struct run *run, struct connection *c);

/* Sends the request again on a new connection. Returns false if the connection cannot be opened. */
static bool send_again(struct run *run, struct connection *c)
{
	drop(run->plain, c);
	if (!open_connection(run, c))
		return false;
	c->sent = 0;
	c->begun_ms = c->moved_ms = run->now_ms;
	send_head(run, c);
	return true;
}

/*
 * Gives up a connection. A request without a reply is sent again: on a new connection if this
 * connection has served an earlier request, else to the server's next address, because "localhost"
 * has two addresses and many servers listen on one of them.
 */
static void fail(struct run *run, struct connection *c)
{
	struct plain *p = run->plain;

	while (!c->have && !c->in_body) {
		forget_address(p, c, c->kept);
		if (!c->kept && ++c->tries >= p->n_addresses)
			break;
		if (send_again(run, c))
			return;
	}
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
	c->tries = c->resent = 0;
	c->sent = 0;
	c->have = 0;
	c->in_body = false;
	c->begun_ms = c->moved_ms = run->now_ms;
	if (c->fd < 0 && !open_connection(run, c))
		fail(run, c);
	else
		send_head(run, c);
}

static void add_body(struct plain_get *g, const void *data, size_t len)
{
	if (g->body)
		memcpy((char *)g->body + g->len, data, len);
	else
		g->on_body(g->cookie, data, len);
	g->len += len;
}

/* Starts the body with the bytes after the head in `in`. Returns false if the reply ends the
 * request without `good`. */
static bool begin_body(struct run *run, struct connection *c, size_t head_len)
{
	struct plain_get *g = c->get;
	size_t more = c->have - head_len;
	int status = plain_parse_head(c->in, head_len, &c->body_len, &c->keep);

	g->status = status < 0 ? 0 : status;
	run->refused |= status == 429 || status == 503;
	if ((status != 200 && status != 206) || c->body_len > g->room || more > c->body_len ||
		(g->on_head && !g->on_head(g->cookie, g, c->in, head_len)))
		return false;
	waits_add(&run->plain->waits, run->now_ms - c->begun_ms);
	add_body(g, c->in + head_len, more);
	c->in_body = true;
	return true;
}

static void receive_body(struct run *run, struct connection *c)
{
	struct plain_get *g = c->get;
	char *to = g->body ? (char *)g->body + g->len : run->plain->chunk;
	size_t left = c->body_len - g->len;
	ssize_t n = recv(
		c->fd, to, g->body || left < LIMIT_PLAIN_CHUNK ? left : LIMIT_PLAIN_CHUNK, 0);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		fail(run, c);
		return;
	}
	c->moved_ms = run->answered_ms = run->now_ms;
	if (g->body)
		g->len += (size_t)n;
	else
		add_body(g, to, (size_t)n);
	if (g->len == c->body_len)
		end(run, c, true);
}

static void receive_head(struct run *run, struct connection *c)
{
	ssize_t n = recv(c->fd, c->in + c->have, LIMIT_PLAIN_HEAD - c->have, 0);
	const char *blank;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		fail(run, c);
		return;
	}
	c->moved_ms = run->answered_ms = run->now_ms;
	c->have += (size_t)n;
	blank = memmem(c->in, c->have, "\r\n\r\n", 4);
	if (blank ? !begin_body(run, c, (size_t)(blank + 4 - c->in)) : c->have == LIMIT_PLAIN_HEAD)
		end(run, c, false);
	else if (c->in_body && c->get->len == c->body_len)
		end(run, c, true);
}

static void receive(struct run *run, struct connection *c)
{
	if (c->in_body)
		receive_body(run, c);
	else
		receive_head(run, c);
}

static void on_event(struct run *run, struct connection *c, uint32_t events)
{
	/* The server closed an idle connection, or sent a reply without a request. */
	if (!c->get) {
		drop(run->plain, c);
		return;
	}
	if ((events & EPOLLOUT) && c->sent < c->get->head_len)
		send_head(run, c);
	if (c->get && c->fd >= 0 && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		receive(run, c);
	while (!c->get && run->next < run->n)
		begin(run, c);
}

static bool is_stuck(const struct run *run, const struct connection *c, int silence_ms)
{
	int64_t age = run->now_ms - c->begun_ms;

	return run->now_ms - c->moved_ms >= silence_ms ||
	       (age >= (int64_t)SLOW * silence_ms && (int64_t)(c->have + c->get->len) < age);
}

/* Only a request that has received no byte of its reply can be sent again. */
static bool is_slow(const struct run *run, const struct connection *c)
{
	bool alone = run->next - run->ended == 1;

	return !c->have && !c->in_body && c->resent < WAITS_RESENDS &&
	       waits_is_slow(&run->plain->waits, LIMIT_READS_RESEND_MS, run->now_ms - c->moved_ms,
		       alone ? 0 : run->now_ms - run->answered_ms);
}

/* Ends stuck requests, and sends slow ones again. */
static void check_silence(struct run *run, int silence_ms)
{
	struct plain *p = run->plain;

	for (size_t i = 0; i < p->n; i++) {
		struct connection *c = &p->connections[i];

		if (!c->get)
			continue;
		if (is_stuck(run, c, silence_ms)) {
			forget_address(p, c, c->have || c->in_body);
			end(run, c, false);
		} else if (is_slow(run, c) && waits_spend(&p->waits)) {
			c->resent++;
			if (!send_again(run, c))
				fail(run, c);
		}
		while (!c->get && run->next < run->n)
			begin(run, c);
	}
}

static void end_all(struct run *run)
{
	skip_rest(run);
	for (size_t i = 0; i < run->plain->n; i++) {
		if (run->plain->connections[i].get)
			end(run, &run->plain->connections[i], false);
	}
}

static bool is_set(const atomic_int *cancel)
{
	return cancel && atomic_load(cancel);
}

/* Returns the number of connections for the next run. More connections hide the delay of a distant
 * server. */
static size_t next_most(const struct run *run)
{
	const struct plain *p = run->plain;
	int64_t wait = waits_quantile(&p->waits, 5);
	size_t wanted = wait > 0 ? NEAR * (1 + (size_t)wait / NEAR_MS) : NEAR;
	size_t more = p->most + 1 + p->most / 4;

	if (run->refused)
		return p->most > 1 ? p->most / 2 : 1;
	wanted = wanted < p->n ? wanted : p->n;
	return wanted < more ? wanted : more;
}

void plain_run(
	struct plain *p, struct plain_get *gets, size_t n, int silence_ms, const atomic_int *cancel)
{
	struct run run = {.plain = p, .gets = gets, .n = n, .now_ms = clock_monotonic_ms()};
	int64_t checked_ms = run.now_ms;

	for (size_t i = 0; i < p->most && run.next < n; i++) {
		while (!p->connections[i].get && run.next < n)
			begin(&run, &p->connections[i]);
	}
	while (run.ended < n) {
		struct epoll_event events[EVENTS];
		int got = epoll_wait(p->epoll, events, EVENTS, TICK_MS);

		if (is_set(cancel) || is_set(p->cancel) || (got < 0 && errno != EINTR))
			end_all(&run);
		run.now_ms = clock_monotonic_ms();
		for (int i = 0; i < got; i++)
			on_event(&run, events[i].data.ptr, events[i].events);
		if (run.now_ms - checked_ms >= TICK_MS) {
			checked_ms = run.now_ms;
			check_silence(&run, silence_ms);
		}
	}
	p->most = next_most(&run);
}
