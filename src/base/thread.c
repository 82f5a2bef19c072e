#include "base/thread.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"

/* Interval of the check of the caller's cancel flag. */
#define POLL_MS 50

struct start {
	char name[16];
	void *(*fn)(void *);
	void *arg;
};

/* Each thread sets its own name: for another thread glibc opens a file in /proc (0.1 ms). */
static void *named_main(void *arg)
{
	struct start start = *(struct start *)arg;

	free(arg);
	pthread_setname_np(pthread_self(), start.name);
	return start.fn(start.arg);
}

int thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg,
	struct penstock_error *err)
{
	struct start *start = malloc(sizeof(*start));
	sigset_t all, before;
	int e;

	if (!start)
		return error_memory(err);
	*start = (struct start){.fn = fn, .arg = arg};
	snprintf(start->name, sizeof(start->name), "%s", name);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	e = pthread_create(out, NULL, named_main, start);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (e == 0)
		return 0;
	free(start);
	return error_errno(err, e, "cannot start the thread '%s'", name);
}

struct team {
	const struct thread_work *work;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	/* under lock */
	size_t next, working;
	struct penstock_error failure; /* the first */
};

static void *member_main(void *arg)
{
	struct team *team = arg;
	const struct thread_work *work = team->work;

	pthread_mutex_lock(&team->lock);
	while (team->next < work->n && !atomic_load(work->stop)) {
		_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
		size_t i = team->next++;
		bool failed;

		pthread_mutex_unlock(&team->lock);
		failed = work->fn(work->cookie, i, &why) < 0;
		pthread_mutex_lock(&team->lock);
		if (why.code && !team->failure.code)
			error_move(&team->failure, &why);
		/* Set `stop` last: `stop` ends other calls, and their errors must not be recorded
		 * before this error. */
		if (failed)
			atomic_store(work->stop, 1);
	}
	team->working--;
	pthread_cond_signal(&team->ended);
	pthread_mutex_unlock(&team->lock);
	return NULL;
}

int thread_each(const struct thread_work *work, struct penstock_error *err)
{
	size_t n = 0, want = work->n < work->parallel ? work->n : work->parallel;
	_cleanup_free_ pthread_t *threads = calloc(want + 1, sizeof(*threads));
	struct team team = {.work = work, .failure = PENSTOCK_ERROR_INIT};
	int r = threads ? 0 : error_memory(err);

	pthread_mutex_init(&team.lock, NULL);
	clock_cond_init(&team.ended);
	pthread_mutex_lock(&team.lock);
	while (r == 0 && n < want) {
		r = thread_start(&threads[n], work->name, member_main, &team, n ? NULL : err);
		n += r == 0;
	}
	team.working = n;
	while (team.working > 0) {
		if (work->cancel && atomic_load(work->cancel))
			atomic_store(work->stop, 1);
		clock_cond_wait_ms(&team.ended, &team.lock, POLL_MS);
	}
	pthread_mutex_unlock(&team.lock);
	for (size_t i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	pthread_cond_destroy(&team.ended);
	pthread_mutex_destroy(&team.lock);
	if (team.failure.code)
		return error_move(err, &team.failure);
	return n || !want ? 0 : r;
}
