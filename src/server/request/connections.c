#include "server/request/connections.h"

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

#define PATIENCE_MS ((int64_t)LIMIT_SERVER_STRANGER_SECONDS * 1000)

struct connection {
	struct connection *prev, *next;
	int64_t opened_ms;
	int fd;
	bool stranger; /* under lock: in the list of connections without a valid signature */
	bool known; /* used by the connection's thread: later requests take no lock */
};

struct connections {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct connection *oldest, *newest; /* under lock: connections without a valid signature */
	size_t open; /* under lock: number of all connections */
	size_t limit; /* number of connections beyond which the oldest in the list is ended */
	bool stopping; /* under lock */
	pthread_t thread;
};

static void take_out(struct connections *list, struct connection *c)
{
	*(c->prev ? &c->prev->next : &list->oldest) = c->next;
	*(c->next ? &c->next->prev : &list->newest) = c->prev;
	c->prev = c->next = NULL;
	c->stranger = false;
}

static void end_oldest(struct connections *list)
{
	struct connection *c = list->oldest;

	take_out(list, c);
	shutdown(c->fd, SHUT_RDWR);
}

static void *watch(void *arg)
{
	struct connections *list = arg;

	LOCK_SCOPE(&list->lock);
	while (!list->stopping) {
		if (!list->oldest)
			pthread_cond_wait(&list->changed, &list->lock);
		else if (list->oldest->opened_ms + PATIENCE_MS > clock_monotonic_ms())
			clock_cond_wait_until_ms(
				&list->changed, &list->lock, list->oldest->opened_ms + PATIENCE_MS);
		else
			end_oldest(list);
	}
	return NULL;
}

static void connections_free(struct connections *list)
{
	pthread_cond_destroy(&list->changed);
	pthread_mutex_destroy(&list->lock);
	free(list);
}

int connections_start(struct connections **out, size_t limit, struct penstock_error *err)
{
	struct connections *list = calloc(1, sizeof(*list));
	int rc;

	if (!list)
		return error_memory(err);
	pthread_mutex_init(&list->lock, NULL);
	clock_cond_init(&list->changed);
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

struct connection *connections_opened(struct connections *list, int fd)
{
	struct connection *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->fd = fd;
	c->stranger = true;
	LOCK_SCOPE(&list->lock);
	c->opened_ms = clock_monotonic_ms();
	c->prev = list->newest;
	*(c->prev ? &c->prev->next : &list->oldest) = c;
	list->newest = c;
	list->open++;
	if (list->oldest == c)
		pthread_cond_signal(&list->changed);
	else if (list->open > list->limit)
		end_oldest(list);
	return c;
}

void connections_known(struct connections *list, struct connection *c)
{
	if (!c || c->known)
		return;
	c->known = true;
	LOCK_SCOPE(&list->lock);
	if (c->stranger)
		take_out(list, c);
}

void connections_closed(struct connections *list, struct connection *c)
{
	if (!c)
		return;
	connections_known(list, c);
	pthread_mutex_lock(&list->lock);
	list->open--;
	pthread_mutex_unlock(&list->lock);
	free(c);
}
