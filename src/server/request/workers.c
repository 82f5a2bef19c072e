#include "server/request/workers.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/thread.h"
#include "server/directory/identity.h"
#include "server/request/request.h"

/* Jobs of one kind; bounded by the number of connections. */
struct queue {
	struct account_jobs *head, **tail; /* accounts with waiting jobs */
	struct account_jobs anonymous;
	size_t place; /* index in account_info.jobs */
	size_t running, limit;
};

struct worker_pool {
	pthread_mutex_t lock;
	pthread_cond_t filled;
	struct queue jobs, long_jobs; /* under lock, like the jobs of accounts */
	bool stopping; /* under lock */
	size_t n;
	pthread_t threads[LIMIT_SERVER_WORKERS];
};

/* The job that a thread runs. */
struct turn {
	struct queue *queue; /* NULL if the thread is idle */
	struct account_jobs *jobs;
};

static void join(struct queue *queue, struct account_jobs *jobs)
{
	jobs->next = NULL;
	*queue->tail = jobs;
	queue->tail = &jobs->next;
}

static void leave(struct queue *queue, struct account_jobs **at)
{
	*at = (*at)->next;
	if (!*at)
		queue->tail = at;
}

static void add(struct queue *queue, struct request *req)
{
	/* The account is constant except for its counters and jobs. */
	struct account_info *account = (void *)(uintptr_t)req->identity->owner;
	struct account_jobs *jobs = account ? &account->jobs[queue->place] : &queue->anonymous;

	req->next_job = NULL;
	if (jobs->first) {
		jobs->last->next_job = req;
	} else {
		jobs->first = req;
		join(queue, jobs);
	}
	jobs->last = req;
}

/* Takes a job of the account with the fewest running jobs; several such accounts take turns.
 * Returns NULL if no job is waiting, or if the limit of running jobs is reached. */
static struct request *take(struct queue *queue, struct turn *turn)
{
	struct account_jobs **best = &queue->head, *jobs;
	struct request *req;

	if (!*best || queue->running == queue->limit)
		return NULL;
	for (struct account_jobs **at = &(*best)->next; *at; at = &(*at)->next)
		if ((*at)->running < (*best)->running)
			best = at;
	jobs = *best;
	leave(queue, best);
	req = jobs->first;
	jobs->first = req->next_job;
	if (jobs->first)
		join(queue, jobs);
	jobs->running++;
	queue->running++;
	*turn = (struct turn){queue, jobs};
	return req;
}

static void end(struct turn *turn)
{
	if (!turn->queue)
		return;
	turn->jobs->running--;
	turn->queue->running--;
	turn->queue = NULL;
}

/* Ends the last job of the thread, and takes the next job, a long job if possible: the limit of
 * long jobs leaves enough threads for other jobs. */
static struct request *take_job(struct worker_pool *pool, struct turn *turn)
{
	struct request *req;

	LOCK_SCOPE(&pool->lock);
	end(turn);
	for (;;) {
		req = take(&pool->long_jobs, turn);
		if (!req)
			req = take(&pool->jobs, turn);
		if (req || pool->stopping)
			return req;
		pthread_cond_wait(&pool->filled, &pool->lock);
	}
}

static void *worker_main(void *arg)
{
	struct worker_pool *pool = arg;
	struct turn turn = {NULL};
	struct request *req;

	while ((req = take_job(pool, &turn)) != NULL)
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
	pool->jobs = (struct queue){
		.tail = &pool->jobs.head, .place = 0, .limit = LIMIT_SERVER_WORKERS};
	pool->long_jobs = (struct queue){
		.tail = &pool->long_jobs.head, .place = 1, .limit = LIMIT_SERVER_LONG_JOBS};
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
