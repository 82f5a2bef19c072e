#include "run/task/litter.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/banned.h"

/* Bounds the disk space held if steps end faster than their directories are removed. */
#define MAX_WAITING 8

struct job {
	void (*fn)(char *path); /* NULL at the end of the queue */
	char *path; /* owned */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* Under the lock. */
	struct job waiting[MAX_WAITING];
	size_t n;
	bool running;
	bool ending;
	pthread_t thread;
} litter = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void remove_now(char *dir)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (fs_remove_tree(dir, &err) < 0)
		log_debug("%s", err.message);
	free(dir);
}

/* Takes the most recent job first. */
static struct job next(void)
{
	LOCK_SCOPE(&litter.lock);
	while (!litter.n && !litter.ending)
		pthread_cond_wait(&litter.changed, &litter.lock);
	return litter.n ? litter.waiting[--litter.n] : (struct job){0};
}

static void *run(void *arg)
{
	struct job job;

	(void)arg;
	while ((job = next()).fn)
		job.fn(job.path);
	return NULL;
}

bool litter_hand_over(void (*fn)(char *path), char *path)
{
	LOCK_SCOPE(&litter.lock);
	if (!litter.running)
		litter.running = thread_start(&litter.thread, "litter", run, NULL, NULL) == 0;
	if (!litter.running || litter.n == MAX_WAITING)
		return false;
	litter.waiting[litter.n++] = (struct job){fn, path};
	pthread_cond_signal(&litter.changed);
	return true;
}

void litter_remove(char *dir)
{
	if (dir && !litter_hand_over(remove_now, dir))
		remove_now(dir);
}

void litter_finish(void)
{
	bool running;

	pthread_mutex_lock(&litter.lock);
	running = litter.running;
	litter.ending = true;
	pthread_cond_signal(&litter.changed);
	pthread_mutex_unlock(&litter.lock);
	if (running)
		pthread_join(litter.thread, NULL);
	pthread_mutex_lock(&litter.lock);
	litter.running = litter.ending = false;
	pthread_mutex_unlock(&litter.lock);
}
