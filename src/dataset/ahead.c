#include "dataset/ahead.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/thread.h"
#include "dataset/dataset.h"

/* Bounds of the default number of threads, which is the number of processors. A few threads
 * suffice, because each thread has many requests in flight. */
#define THREADS_MIN 2
#define THREADS_MAX 8

struct ahead_job {
	struct ahead *ahead;
	pid_t pid; /* process that runs the job */
	uint64_t *ids;
	size_t n;
	void *data;
	atomic_int cancel;
	/* Under the lock. */
	bool running, done;
	int r;
	struct penstock_error error;
	struct ahead_job *prev, *next; /* links in the queue, until a thread takes the job */
	/* links in the list of all jobs, until the job is freed */
	struct ahead_job *before, *after;
};

struct ahead {
	struct dataset *set;
	unsigned threads;
	atomic_int pid; /* process that has the threads */
	pthread_mutex_t lock;
	pthread_cond_t wake; /* wakes the threads for a job, or to end */
	pthread_cond_t ended; /* a job has ended */
	/* Under the lock. */
	pthread_t thread[LIMIT_DATASET_THREADS];
	unsigned n_threads;
	bool stop;
	struct ahead_job *queue, *all;
};

/* Held while a child process sets up its state, in its first call after fork(). */
static pthread_mutex_t fork_lock = PTHREAD_MUTEX_INITIALIZER;

static void begin(struct ahead *a)
{
	a->n_threads = 0;
	a->queue = a->all = NULL;
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->wake, NULL);
	clock_cond_init(&a->ended);
	atomic_store(&a->pid, getpid());
}

/* Starts over in a child process, in which the threads and the queued jobs of the parent do not
 * exist. */
static void begin_again(struct ahead *a)
{
	LOCK_SCOPE(&fork_lock);
	if (atomic_load(&a->pid) != getpid())
		begin(a);
}

int ahead_new(struct ahead **out, struct dataset *set, unsigned threads, struct penstock_error *err)
{
	struct ahead *a = calloc(1, sizeof(*a));
	long processors = sysconf(_SC_NPROCESSORS_ONLN);

	if (!a)
		return error_memory(err);
	a->set = set;
	if (threads)
		a->threads = threads;
	else if (processors < THREADS_MIN || processors > THREADS_MAX)
		a->threads = processors < THREADS_MIN ? THREADS_MIN : THREADS_MAX;
	else
		a->threads = (unsigned)processors;
	if (a->threads > LIMIT_DATASET_THREADS)
		a->threads = LIMIT_DATASET_THREADS;
	begin(a);
	*out = a;
	return 0;
}

static struct ahead_job *take(struct ahead *a)
{
	struct ahead_job *job;

	LOCK_SCOPE(&a->lock);
	while (!a->queue && !a->stop)
		pthread_cond_wait(&a->wake, &a->lock);
	if (a->stop)
		return NULL;
	job = a->queue;
	DL_DELETE(a->queue, job);
	job->running = true;
	return job;
}

static void *thread_main(void *cookie)
{
	struct ahead *a = cookie;
	struct ahead_job *job;

	while ((job = take(a))) {
		struct penstock_error err = PENSTOCK_ERROR_INIT;
		int r = dataset_read(a->set, job->ids, job->n, job->data, &job->cancel, &err);

		pthread_mutex_lock(&a->lock);
		job->r = r;
		job->error = err;
		job->done = true;
		pthread_cond_broadcast(&a->ended);
		pthread_mutex_unlock(&a->lock);
	}
	return NULL;
}

static void job_free(struct ahead_job *job)
{
	penstock_error_release(&job->error);
	free(job->ids);
	free(job);
}

/* Under the lock: waits for the end of the job, and removes the job from the list of all jobs. */
static void await(struct ahead *a, struct ahead_job *job)
{
	while (!job->done)
		pthread_cond_wait(&a->ended, &a->lock);
	DL_DELETE2(a->all, job, before, after);
}

void ahead_free(struct ahead *a)
{
	struct ahead_job *job, *next;

	if (!a)
		return;
	if (atomic_load(&a->pid) == getpid()) {
		pthread_mutex_lock(&a->lock);
		a->stop = true;
		DL_FOREACH2(a->all, job, after)
		atomic_store(&job->cancel, 1);
		pthread_cond_broadcast(&a->wake);
		pthread_mutex_unlock(&a->lock);
		for (unsigned i = 0; i < a->n_threads; i++)
			pthread_join(a->thread[i], NULL);
		DL_FOREACH_SAFE2(a->all, job, next, after)
		job_free(job);
		pthread_cond_destroy(&a->wake);
		pthread_cond_destroy(&a->ended);
		pthread_mutex_destroy(&a->lock);
	}
	free(a);
}

int ahead_start(struct ahead *a, const uint64_t *ids, size_t n, void *data, struct ahead_job **out,
	struct penstock_error *err)
{
	struct ahead_job *job = calloc(1, sizeof(*job));
	int r = 0;

	if (!job)
		return error_memory(err);
	job->ids = malloc((n + 1) * sizeof(*ids));
	if (!job->ids) {
		free(job);
		return error_memory(err);
	}
	memcpy(job->ids, ids, n * sizeof(*ids));
	job->ahead = a;
	job->n = n;
	job->data = data;
	if (atomic_load(&a->pid) != getpid())
		begin_again(a);
	job->pid = getpid();
	pthread_mutex_lock(&a->lock);
	if (a->n_threads < a->threads)
		r = thread_start(&a->thread[a->n_threads], "samples", thread_main, a, err);
	if (r == 0 && a->n_threads < a->threads)
		a->n_threads++;
	if (r == 0 || a->n_threads) {
		DL_APPEND(a->queue, job);
		DL_APPEND2(a->all, job, before, after);
		pthread_cond_signal(&a->wake);
	}
	pthread_mutex_unlock(&a->lock);
	if (r < 0 && !a->n_threads) {
		job_free(job);
		return r;
	}
	if (r < 0)
		penstock_error_release(err);
	*out = job;
	return 0;
}

bool ahead_ended(struct ahead_job *job, int ms)
{
	int64_t until = clock_monotonic_ms() + ms;

	/* ahead_wait() reports that the job belongs to the parent. */
	if (job->pid != getpid())
		return true;
	LOCK_SCOPE(&job->ahead->lock);
	while (!job->done && clock_monotonic_ms() < until)
		clock_cond_wait_until_ms(&job->ahead->ended, &job->ahead->lock, until);
	return job->done;
}

int ahead_wait(struct ahead_job *job, struct penstock_error *err)
{
	struct ahead *a = job->ahead;
	int r;

	if (job->pid != getpid())
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot wait for a batch that the parent process reads; read it again");
	pthread_mutex_lock(&a->lock);
	await(a, job);
	pthread_mutex_unlock(&a->lock);
	r = job->r < 0 ? error_move(err, &job->error) : 0;
	job_free(job);
	return r;
}

void ahead_drop(struct ahead_job *job)
{
	struct ahead *a;

	if (!job)
		return;
	a = job->ahead;
	/* In a child, a job of the parent is a copy, on which no thread works. */
	if (job->pid != getpid())
		return;
	atomic_store(&job->cancel, 1);
	pthread_mutex_lock(&a->lock);
	if (!job->running) {
		DL_DELETE(a->queue, job);
		job->done = true;
	}
	await(a, job);
	pthread_mutex_unlock(&a->lock);
	job_free(job);
}
