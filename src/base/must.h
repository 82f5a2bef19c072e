/*
 * Conditions that always hold, stated by the code that relies on them. A failure is a defect of the
 * program: every build prints its place and aborts.
 *
 *	MUST(n <= pool->taken);
 *	MUST_HOLD(&s->lock);	// "under lock"
 */
#ifndef BASE_MUST_H
#define BASE_MUST_H

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(condition) ((condition) ? (void)0 : must_fail(#condition, __FILE__, __LINE__))
/* Checks that the mutex is locked. Does not detect that a thread other than the caller holds it. */
#define MUST_HOLD(mutex) MUST(pthread_mutex_trylock(mutex) == EBUSY)

static inline _Noreturn void must_fail(const char *condition, const char *file, int line)
{
	fprintf(stderr, "penstock: defect at %s:%d: '%s' does not hold; please report it\n", file,
		line, condition);
	abort();
}

#endif
