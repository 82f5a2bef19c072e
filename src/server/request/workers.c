#include "server/request/workers.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/thread.h"
#include "server/request/request.h"

struct worker_pool {
	pthread_mutex_t lock;
	pthread_cond_t filled;
	struct request *head, **tail; /* under lock; bounded by the number of connections */
	bool stopping; /* under lock */
	size_t n;
	pthread_t threads[LIMIT_SERVER_WORKERS];
};

static struct request *take_job(struct worker_pool *pool)
{
	struct request *req;

	LOCK_SCOPE(&pool->lock);
	while (!pool->head && !pool->stopping)
		pthread_cond_wait(&pool->filled, &pool->lock);
	req = pool->head;
	if (req) {
		pool->head = req->next_job;
		if (!pool->head)
			pool->tail = &pool->head;
	}
	return req;
}

static void *worker_main(void *arg)
{
	struct worker_pool *pool = arg;
	struct request *req;

	while ((req = take_job(pool)) != NULL)
		req->job(req);
	return NULL;
}

int workers_start(struct worker_pool **out, struct penstock_error *err)
{
	struct worker_pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return error_memory(err);
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->filled, NULL);
	pool->tail = &pool->head;
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
	req->next_job = NULL;
	LOCK_SCOPE(&pool->lock);
	*pool->tail = req;
	pool->tail = &req->next_job;
	pthread_cond_signal(&pool->filled);
}
