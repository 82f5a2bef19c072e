#include "server/request/workers.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/thread.h"
#include "server/directory/identity.h"
#include "server/request/request.h"

/* Jobs in the order of their arrival; bounded by the number of connections. */
struct queue {
	struct request *head, **tail;
};

/* The right to run a long job. */
struct slot {
	bool taken;
	const struct account_info *account; /* NULL for anonymous senders */
};

struct worker_pool {
	pthread_mutex_t lock;
	pthread_cond_t filled;
	struct queue jobs, long_jobs; /* under lock */
	struct slot slots[LIMIT_SERVER_LONG_JOBS]; /* under lock */
	bool stopping; /* under lock */
	size_t n;
	pthread_t threads[LIMIT_SERVER_WORKERS];
};

static void add(struct queue *queue, struct request *req)
{
	req->next_job = NULL;
	*queue->tail = req;
	queue->tail = &req->next_job;
}

/* Removes the job at `at`. */
static struct request *take(struct queue *queue, struct request **at)
{
	struct request *req = *at;

	*at = req->next_job;
	if (!*at)
		queue->tail = at;
	return req;
}

/* Returns NULL if all slots are taken. */
static struct slot *free_slot(struct worker_pool *pool)
{
	for (size_t i = 0; i < LIMIT_SERVER_LONG_JOBS; i++)
		if (!pool->slots[i].taken)
			return &pool->slots[i];
	return NULL;
}

static size_t slots_of(const struct worker_pool *pool, const struct account_info *account)
{
	size_t n = 0;

	for (size_t i = 0; i < LIMIT_SERVER_LONG_JOBS; i++)
		n += pool->slots[i].taken && pool->slots[i].account == account;
	return n;
}

/* Takes a long job, of which there is at least one: that of the account with the fewest slots;
 * several of them in their order. */
static struct request *take_long_job(struct worker_pool *pool, struct slot *slot)
{
	struct request **best = &pool->long_jobs.head;
	size_t fewest = slots_of(pool, (*best)->identity->owner);

	for (struct request **at = &(*best)->next_job; *at && fewest; at = &(*at)->next_job) {
		size_t n = slots_of(pool, (*at)->identity->owner);

		if (n < fewest) {
			best = at;
			fewest = n;
		}
	}
	*slot = (struct slot){.taken = true, .account = (*best)->identity->owner};
	return take(&pool->long_jobs, best);
}

/* Gives back the slot of the last job. The slots leave enough threads for other jobs, so long jobs
 * need not wait for these. */
static struct request *take_job(struct worker_pool *pool, struct slot **slot)
{
	LOCK_SCOPE(&pool->lock);
	if (*slot)
		(*slot)->taken = false;
	for (;;) {
		*slot = pool->long_jobs.head ? free_slot(pool) : NULL;
		if (*slot)
			return take_long_job(pool, *slot);
		if (pool->jobs.head)
			return take(&pool->jobs, &pool->jobs.head);
		if (pool->stopping)
			return NULL;
		pthread_cond_wait(&pool->filled, &pool->lock);
	}
}

static void *worker_main(void *arg)
{
	struct worker_pool *pool = arg;
	struct slot *slot = NULL;
	struct request *req;

	while ((req = take_job(pool, &slot)) != NULL)
		req->job(req); /* may free the request */
	return NULL;
}

int workers_start(struct worker_pool **out, struct penstock_error *err)
{
	struct worker_pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return error_memory(err);
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->filled, NULL);
	pool->jobs.tail = &pool->jobs.head;
	pool->long_jobs.tail = &pool->long_jobs.head;
	for (; pool->n < LIMIT_SERVER_WORKERS; pool->n++) {
		int rc = thread_start(&pool->threads[pool->n], "worker", worker_main, pool, err);

		if (rc < 0) {
			workers_stop(pool);
			return rc;
		}
	}
	*out = pool;
	return 0;
}

void workers_stop(struct worker_pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->stopping = true;
	pthread_cond_broadcast(&pool->filled);
	pthread_mutex_unlock(&pool->lock);
	for (size_t i = 0; i < pool->n; i++)
		pthread_join(pool->threads[i], NULL);
	pthread_mutex_destroy(&pool->lock);
	pthread_cond_destroy(&pool->filled);
	free(pool);
}

void workers_submit(struct worker_pool *pool, request_fn fn, struct request *req)
{
	req->job = fn;
	LOCK_SCOPE(&pool->lock);
	add(req->is_long ? &pool->long_jobs : &pool->jobs, req);
	pthread_cond_signal(&pool->filled);
}
