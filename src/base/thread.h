/* Threads, all of which have a name and leave signals to the main thread. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

struct penstock_error;

/* Starts a thread with all signals blocked. `name` has at most 15 bytes. */
int thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg,
	struct penstock_error *err);

/*
 * Calls fn(cookie, i) for each i below `n`, on at most `parallel` threads. Returns 0 or the first
 * failure. A failure, and the caller's `cancel` flag (may be NULL), set `*stop`: then no further
 * call starts, and calls in progress that check `*stop` end early. `cancel` raises no error for
 * calls that did not start: check `*stop`.
 */
struct thread_work {
	const char *name;
	size_t n;
	size_t parallel;
	int (*fn)(void *cookie, size_t i, struct penstock_error *err);
	void *cookie;
	const atomic_int *cancel;
	atomic_int *stop;
};
int thread_each(const struct thread_work *work, struct penstock_error *err);

#endif
