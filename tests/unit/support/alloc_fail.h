/*
 * Lets the n-th allocation of a unit test fail, to show that every failure is reported and nothing
 * leaks or is half done. Name the test in `alloc_tests` instead of `unit_tests` in its meson.build.
 *
 *	alloc_fail_skip_library("libcrypto");	(once, optional)
 *
 *	for (size_t n = 1;; n++) {
 *		int rc;
 *
 *		alloc_fail_arm(n);
 *		rc = the_code_under_test(&err);
 *		if (!alloc_fail_disarm())
 *			break;			the scenario makes fewer than n allocations: the end
 *		assert rc and state: an error that says so, or a success that is whole
 *	}
 *
 * malloc, calloc, realloc, reallocarray, aligned_alloc, posix_memalign, memalign, strdup and
 * strndup of all threads and libraries count while armed, and so does what libc calls them for
 * (asprintf, opendir, fopen, pthread_create's bookkeeping is libc's own and does not). Assertions
 * and set-up inside an armed stretch stand between alloc_fail_pause() and alloc_fail_resume().
 *
 * ALLOC_FAIL_TRACE=1 prints the stack of every allocation that is made to fail.
 */
#ifndef TEST_ALLOC_FAIL_H
#define TEST_ALLOC_FAIL_H

#include <stdbool.h>
#include <stddef.h>

/* The n-th allocation from now fails (1 is the next one), once. */
void alloc_fail_arm(size_t n);
/* The same, and all after it fail too, until disarmed. */
void alloc_fail_arm_all(size_t n);
/* Whether an allocation was made to fail since it was armed. */
bool alloc_fail_disarm(void);
/* Allocations counted since it was last armed. */
size_t alloc_fail_count(void);

/* This thread's allocations do not count; nests. */
void alloc_fail_pause(void);
void alloc_fail_resume(void);

/*
 * Allocations asked for by code of a library whose file name begins so do not count: for libraries
 * that end the process, or leak, when memory runs out. At most 8.
 */
void alloc_fail_skip_library(const char *prefix);

#endif
