#include "server/request/connections.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/thread.h"

struct connection {
	struct connection *prev, *next;
	int64_t since_ms; /* under lock: start of the time window */
	uint64_t moved; /* under lock: bytes moved until the last call of has_moved() */
	int fd;
	unsigned *account; /* under lock: counts connections of the account; NULL if unknown */
	const atomic_bool *leaving; /* constant; may be NULL */
	bool stranger; /* under lock: in the list of connections that make room for others */
	bool paused; /* under lock: the client waits for a reply */
	bool has_key; /* under lock: a header had a valid signature */
	bool known; /* exempt; used without a lock, by the connection's thread alone */
};

struct connections {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* Under lock: connections that make room for others, in the order of their windows. */
	struct connection *oldest, *newest;
	/* Under lock: numbers of the connections in this list, of exempt connections, and of all
	 * connections. */
	size_t strangers, known, open;
	/* Limits of `strangers` and `open`; beyond a limit the oldest connection in the list is
	 * ended. */
	size_t strangers_limit, limit;
	int64_t window_ms;
	bool stopping; /* under lock */
	pthread_t thread;
};

static void add(struct connections *list, struct connection *c)
{
	c->stranger = true;
	c->since_ms = clock_monotonic_ms();
	c->prev = list->newest;
	*(c->prev ? &c->prev->next : &list->oldest) = c;
	list->newest = c;
	list->strangers++;
}

static void take_out(struct connections *list, struct connection *c)
{
	*(c->prev ? &c->prev->next : &list->oldest) = c->next;
	*(c->next ? &c->next->prev : &list->newest) = c->prev;
	c->prev = c->next = NULL;
	c->stranger = false;
	list->strangers--;
}

static void renew(struct connections *list, struct connection *c)
{
	take_out(list, c);
	add(list, c);
}

/* Returns true if LIMIT_SERVER_STRANGER_BYTES or more were received and sent, together, since the
 * last call for this connection. Bytes in the buffers of this machine do not count as sent. */
static bool has_moved(struct connection *c)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);
	uint64_t before = c->moved;

	if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
		return false;
	c->moved = info.tcpi_bytes_received + info.tcpi_bytes_acked;
	return c->moved - before >= LIMIT_SERVER_STRANGER_BYTES;
}

static void end(struct connections *list, struct connection *c)
{
	take_out(list, c);
	shutdown(c->fd, SHUT_RDWR);
}

/* Ends the oldest connection, or a newer connection if the client of the oldest connection waits
 * for its reply. The newer half of the list is spared, because it contains a client that has just
 * connected. */
static void make_room(struct connections *list)
{
	struct connection *c = list->oldest;

	for (size_t i = 1; i < list->strangers / 2 && c->paused; i++)
		c = c->next;
	end(list, c->paused ? list->oldest : c);
}

static void *watch(void *arg)
{
	struct connections *list = arg;

	LOCK_SCOPE(&list->lock);
	while (!list->stopping) {
		struct connection *c = list->oldest;
		int64_t end_ms = c ? c->since_ms + list->window_ms : 0;

		if (!c)
			pthread_cond_wait(&list->changed, &list->lock);
		else if (end_ms > clock_monotonic_ms())
			clock_cond_wait_until_ms(&list->changed, &list->lock, end_ms);
		else if (c->has_key || c->paused || has_moved(c))
			renew(list, c);
		else
			end(list, c);
	}
	return NULL;
}

static void connections_free(struct connections *list)
{
	pthread_cond_destroy(&list->changed);
	pthread_mutex_destroy(&list->lock);
	free(list);
}

int connections_start(
	struct connections **out, size_t limit, int64_t window_ms, struct penstock_error *err)
{
	struct connections *list = calloc(1, sizeof(*list));
	int rc;

	if (!list)
		return error_memory(err);
	pthread_mutex_init(&list->lock, NULL);
	clock_cond_init(&list->changed);
	list->window_ms = window_ms;
	list->strangers_limit = limit / 2;
	list->limit = limit - (limit / 4 < LIMIT_SERVER_ROOM ? limit / 4 : LIMIT_SERVER_ROOM);
	rc = thread_start(&list->thread, "connections", watch, list, err);
	if (rc == 0)
		*out = list;
	else
		connections_free(list);
	return rc;
}

void connections_stop(struct connections *list)
{
	if (!list)
		return;
	pthread_mutex_lock(&list->lock);
	list->stopping = true;
	pthread_cond_signal(&list->changed);
	pthread_mutex_unlock(&list->lock);
	pthread_join(list->thread, NULL);
	connections_free(list);
}

struct connection *connections_opened(struct connections *list, int fd, const atomic_bool *leaving)
{
	struct connection *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->fd = fd;
	c->leaving = leaving;
	LOCK_SCOPE(&list->lock);
	add(list, c);
	list->open++;
	if (list->oldest == c)
		pthread_cond_signal(&list->changed);
	else if (list->strangers > list->strangers_limit || list->open > list->limit)
		make_room(list);
	return c;
}

void connections_renew(struct connections *list, struct connection *c)
{
	if (!c || c->known)
		return;
	LOCK_SCOPE(&list->lock);
	c->paused = false;
	if (c->stranger)
		renew(list, c);
}

void connections_pause(struct connections *list, struct connection *c)
{
	if (!c || c->known)
		return;
	LOCK_SCOPE(&list->lock);
	c->paused = true;
}

void connections_known(struct connections *list, struct connection *c, unsigned *account)
{
	if (!c || c->known)
		return;
	LOCK_SCOPE(&list->lock);
	c->has_key = true;
	if (list->known + 1 + *account + 1 > list->limit)
		return;
	list->known++;
	++*account;
	c->account = account;
	c->known = true;
	if (c->stranger)
		take_out(list, c);
}

bool connections_is_leaving(const struct connection *c)
{
	return c && c->leaving && atomic_load(c->leaving);
}

void connections_closed(struct connections *list, struct connection *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&list->lock);
	if (c->stranger)
		take_out(list, c);
	if (c->account) {
		--*c->account;
		list->known--;
	}
	list->open--;
	pthread_mutex_unlock(&list->lock);
	free(c);
}
