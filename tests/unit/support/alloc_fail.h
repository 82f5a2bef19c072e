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
 * strndup of all threads and libraries count while armed, and so do the calls that libc makes for
 * asprintf, opendir and fopen; the memory of pthread_create() is libc's own and does not count. Put
 * assertions and set-up code between alloc_fail_arm() and alloc_fail_disarm() into
 * alloc_fail_pause() and alloc_fail_resume().
 *
 * ALLOC_FAIL_TRACE=1 prints the stack of every allocation that is made to fail.
 */
#ifndef TEST_ALLOC_FAIL_H
#define TEST_ALLOC_FAIL_H

#include <stdbool.h>
#include <stddef.h>

/* Makes the n-th allocation from now fail (1 is the next one), once. */
void alloc_fail_arm(size_t n);
/* Like alloc_fail_arm(), but all later allocations fail, too, until alloc_fail_disarm(). */
void alloc_fail_arm_all(size_t n);
/* Stops, and returns true if an allocation has failed since alloc_fail_arm(). */
bool alloc_fail_disarm(void);
/* Returns the number of allocations since the last alloc_fail_arm(). */
size_t alloc_fail_count(void);

/* Between these calls allocations of this thread do not count. The calls nest. */
void alloc_fail_pause(void);
void alloc_fail_resume(void);

/*
 * Allocations by the code of a library whose file name begins with this text do not count: for
 * libraries that end the process, or leak, when memory runs out. At most 8.
 */
void alloc_fail_skip_library(const char *prefix);

#endif
