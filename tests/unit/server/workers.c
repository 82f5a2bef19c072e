/* The order of the workers' jobs: long jobs leave threads for other jobs, and accounts share
 * threads and slots. */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/limits.h"
#include "server/directory/identity.h"
#include "server/request/request.h"
#include "server/request/workers.h"

#define SLOTS LIMIT_SERVER_LONG_JOBS
#define LONG  ((size_t)2 * LIMIT_SERVER_WORKERS) /* more jobs than threads */

static struct account_info accounts[2];
static struct identity owners[2] = {{.owner = &accounts[0]}, {.owner = &accounts[1]}};

static sem_t started, gate;
static const struct account_info *order[LONG + 1]; /* accounts in the order of their jobs */
static atomic_size_t n_started;

/* Waits until the test opens the gate, as wait_job() does. */
static void long_job(struct request *req)
{
	order[atomic_fetch_add(&n_started, 1)] = req->identity->owner;
	sem_post(&started);
	sem_wait(&gate);
}

static void wait_job(struct request *req)
{
	long_job(req);
}

static void short_job(struct request *req)
{
	(void)req;
	sem_post(&started);
}

static void wait_for(size_t n)
{
	while (n--)
		sem_wait(&started);
}

static struct request *submit(struct worker_pool *pool, size_t account, request_fn job)
{
	struct request *req = calloc(1, sizeof(*req));

	assert_non_null(req);
	req->identity = &owners[account];
	req->is_long = job == long_job;
	workers_submit(pool, job, req);
	return req;
}

static int setup(void **state)
{
	struct worker_pool *pool;

	atomic_store(&n_started, 0);
	sem_init(&started, 0, 0);
	sem_init(&gate, 0, 0);
	if (workers_start(&pool, NULL) < 0)
		return -1;
	*state = pool;
	return 0;
}

/* Lets all jobs end. */
static void finish(struct worker_pool *pool, struct request **jobs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sem_post(&gate);
	workers_stop(pool);
	for (size_t i = 0; i < n; i++)
		free(jobs[i]);
}

static void long_jobs_leave_threads_for_others(void **state)
{
	struct worker_pool *pool = *state;
	struct request *jobs[LONG + 1];

	for (size_t i = 0; i < LONG; i++)
		jobs[i] = submit(pool, 0, long_job);
	wait_for(SLOTS);
	jobs[LONG] = submit(pool, 0, short_job);
	wait_for(1);

	assert_int_equal(atomic_load(&n_started), SLOTS);
	finish(pool, jobs, LONG + 1);
	assert_int_equal(atomic_load(&n_started), LONG);
}

static void accounts_share_the_slots(void **state)
{
	struct worker_pool *pool = *state;
	struct request *jobs[LONG + 1];

	for (size_t i = 0; i < LONG; i++)
		jobs[i] = submit(pool, 0, long_job);
	wait_for(SLOTS);
	jobs[LONG] = submit(pool, 1, long_job);
	sem_post(&gate);
	wait_for(1);

	assert_ptr_equal(order[SLOTS], &accounts[1]);
	finish(pool, jobs, LONG + 1);
	assert_int_equal(atomic_load(&n_started), LONG + 1);
}

static void accounts_share_the_threads(void **state)
{
	struct worker_pool *pool = *state;
	struct request *jobs[LONG + 1];

	for (size_t i = 0; i < LONG; i++)
		jobs[i] = submit(pool, 0, wait_job);
	wait_for(LIMIT_SERVER_WORKERS);
	jobs[LONG] = submit(pool, 1, wait_job);
	sem_post(&gate);
	wait_for(1);

	assert_ptr_equal(order[LIMIT_SERVER_WORKERS], &accounts[1]);
	finish(pool, jobs, LONG + 1);
	assert_int_equal(atomic_load(&n_started), LONG + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(long_jobs_leave_threads_for_others, setup),
		cmocka_unit_test_setup(accounts_share_the_slots, setup),
		cmocka_unit_test_setup(accounts_share_the_threads, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
