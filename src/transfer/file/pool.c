/* Threads that read for the files of a pool. */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/thread.h"
#include "transfer/file/internal.h"

/* Idle connections to a bucket, or to the web. */
struct kept {
	struct object_client *client; /* NULL for the web */
	char bucket[sizeof(((struct file_source *)NULL)->bucket)];
	struct object_reads *reads;
};

struct file_pool {
	struct http_engine *engine;
	pthread_mutex_t lock;
	pthread_cond_t wake; /* wakes the threads: a job was queued, or `stop` was set */
	pthread_cond_t ended; /* a job has ended */
	/* Under the lock. */
	pthread_t threads[LIMIT_FILE_THREADS];
	unsigned n_threads;
	unsigned n_free; /* threads without a job */
	unsigned n_ahead; /* running jobs that read ahead */
	bool stop;
	struct file_job *queues[2]; /* the second is for jobs that read ahead */
	unsigned n_queued;
	struct kept kept[LIMIT_FILE_READERS]; /* in the order of their last use */
	size_t n_kept;
};

int file_pool_new(struct file_pool **out, struct http_engine *engine, struct penstock_error *err)
{
	struct file_pool *p = calloc(1, sizeof(*p));

	if (!p)
		return error_memory(err);
	p->engine = engine;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->wake, NULL);
	clock_cond_init(&p->ended);
	*out = p;
	return 0;
}

/* ---- connections ---- */

static int take_reads(struct file_pool *p, const struct file_source *s, struct object_reads **out,
	struct penstock_error *err)
{
	pthread_mutex_lock(&p->lock);
	for (size_t i = p->n_kept; i-- > 0;) {
		struct kept *k = &p->kept[i];

		if (k->client != s->client || strcmp(k->bucket, s->bucket) != 0)
			continue;
		*out = k->reads;
		memmove(k, k + 1, (--p->n_kept - i) * sizeof(*k));
		pthread_mutex_unlock(&p->lock);
		return 0;
	}
	pthread_mutex_unlock(&p->lock);
	return s->client ? reads_new(out, s->client, s->bucket, err)
			 : reads_new_web(out, p->engine, err);
}

static void give_reads(struct file_pool *p, const struct file_source *s, struct object_reads *reads)
{
	struct object_reads *oldest = NULL;
	struct kept k = {.client = s->client, .reads = reads};

	memcpy(k.bucket, s->bucket, sizeof(k.bucket));
	pthread_mutex_lock(&p->lock);
	if (p->n_kept == LIMIT_FILE_READERS) {
		oldest = p->kept[0].reads;
		memmove(p->kept, p->kept + 1, --p->n_kept * sizeof(k));
	}
	p->kept[p->n_kept++] = k;
	pthread_mutex_unlock(&p->lock);
	reads_free(oldest);
}

/* ---- jobs ---- */

/* Moves the error of the first read that failed to `err`, and releases the other errors. */
static int first_error(struct file_job *job, struct penstock_error *err)
{
	int r = 0;

	for (size_t i = 0; i < job->n; i++) {
		struct penstock_error *error = &job->items[i].error;

		if (error->code && r == 0)
			r = error_move(err, error);
		penstock_error_release(error);
	}
	return r;
}

static int run(struct file_pool *p, struct file_job *job, struct penstock_error *err)
{
	struct object_reads *reads = NULL;
	int r;

	if (atomic_load(&job->cancel))
		return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
	if (!job->items)
		return file_source_find(job->source, p->engine, &job->cancel, err);
	r = take_reads(p, job->source, &reads, err);
	if (r < 0)
		return r;
	r = reads_run(reads, job->items, job->n, &job->cancel, err);
	give_reads(p, job->source, reads);
	return r > 0 ? first_error(job, err) : r;
}

/* Under the lock: takes a job out of its queue. */
static void dequeue(struct file_pool *p, struct file_job *job)
{
	DL_DELETE(p->queues[job->ahead], job);
	p->n_queued--;
}

/* Under the lock: returns the job that a thread should run next, or NULL if there is none. */
static struct file_job *next_job(const struct file_pool *p)
{
	if (p->queues[0])
		return p->queues[0];
	return p->n_ahead < LIMIT_FILE_THREADS_AHEAD || p->stop ? p->queues[1] : NULL;
}

static void end(struct file_pool *p, struct file_job *job, int r, struct penstock_error *err)
{
	struct file_source *source = take_pointer(job->source);
	bool abandoned;

	pthread_mutex_lock(&p->lock);
	job->r = r;
	job->error = *err;
	job->state = JOB_ENDED;
	abandoned = job->abandoned;
	p->n_ahead -= job->ahead;
	p->n_free++;
	pthread_cond_broadcast(&p->ended);
	pthread_mutex_unlock(&p->lock);
	/* The owner of a job that is not abandoned may already have freed it. */
	if (abandoned)
		job->release(job);
	file_source_unref(source);
}

static void *thread_main(void *cookie)
{
	struct file_pool *p = cookie;

	for (;;) {
		struct penstock_error err = PENSTOCK_ERROR_INIT;
		struct file_job *job;
		int r;

		pthread_mutex_lock(&p->lock);
		while (!(job = next_job(p)) && !p->stop)
			pthread_cond_wait(&p->wake, &p->lock);
		if (job) {
			dequeue(p, job);
			job->state = JOB_RUNNING;
			p->n_ahead += job->ahead;
			p->n_free--;
		}
		pthread_mutex_unlock(&p->lock);
		if (!job)
			return NULL;
		r = run(p, job, &err);
		end(p, job, r, &err);
	}
}

int file_pool_add(struct file_pool *p, struct file_job *job, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;

	LOCK_SCOPE(&p->lock);
	if (p->n_queued >= p->n_free && p->n_threads < LIMIT_FILE_THREADS &&
		thread_start(&p->threads[p->n_threads], "files", thread_main, p, &own) == 0) {
		p->n_threads++;
		p->n_free++;
	}
	if (!p->n_threads)
		return error_move(err, &own);
	job->state = JOB_WAITING;
	DL_APPEND(p->queues[job->ahead], job);
	p->n_queued++;
	pthread_cond_signal(&p->wake);
	return 0;
}

bool file_pool_wait(struct file_pool *p, struct file_job *job, int ms)
{
	int64_t until = clock_monotonic_ms() + ms;

	LOCK_SCOPE(&p->lock);
	while (job->state != JOB_ENDED && clock_monotonic_ms() < until)
		clock_cond_wait_until_ms(&p->ended, &p->lock, until);
	return job->state == JOB_ENDED;
}

/* Cancels a job, and removes it from the queue if no thread has started it. Returns false if the
 * job is still running. */
static bool withdraw(struct file_pool *p, struct file_job *job)
{
	LOCK_SCOPE(&p->lock);
	atomic_store(&job->cancel, 1);
	job->abandoned = job->release != NULL;
	if (job->state == JOB_WAITING)
		dequeue(p, job);
	if (job->state != JOB_RUNNING)
		job->state = JOB_ENDED;
	return job->state == JOB_ENDED;
}

void file_pool_cancel(struct file_pool *p, struct file_job *job)
{
	withdraw(p, job);
	while (!file_pool_wait(p, job, 1000))
		;
	file_source_unref(take_pointer(job->source));
	penstock_error_release(&job->error);
}

void file_pool_abandon(struct file_pool *p, struct file_job *job)
{
	struct file_source *source;

	if (!withdraw(p, job))
		return;
	source = take_pointer(job->source);
	job->release(job);
	file_source_unref(source);
}

void file_pool_free(struct file_pool *p)
{
	struct file_job *job;

	if (!p)
		return;
	/* Only abandoned jobs are left. */
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->wake);
	pthread_mutex_unlock(&p->lock);
	for (unsigned i = 0; i < p->n_threads; i++)
		pthread_join(p->threads[i], NULL);
	while ((job = next_job(p))) {
		dequeue(p, job);
		file_source_unref(take_pointer(job->source));
		job->release(job);
	}
	for (size_t i = 0; i < p->n_kept; i++)
		reads_free(p->kept[i].reads);
	pthread_cond_destroy(&p->wake);
	pthread_cond_destroy(&p->ended);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
