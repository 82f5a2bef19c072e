/*
 * Makes the n-th allocation of a unit test fail, to check that every failure is reported, and that
 * the code leaks no memory and leaves no work half done. List the test in `alloc_tests` instead of
 * `unit_tests` in its meson.build.
 *
 *	alloc_fail_skip_library("libcrypto");	(once, optional)
 *
 *	for (size_t n = 1;; n++) {
 *		int rc;
 *
 *		alloc_fail_arm(n);
 *		rc = the_code_under_test(&err);
 *		if (!alloc_fail_disarm())
 *			break;			there are fewer than n allocations
 *		assert that rc and state show an error or a complete success
 *	}
 *
 * malloc, calloc, realloc, reallocarray, aligned_alloc, posix_memalign, memalign, strdup and
 * strndup of all threads and libraries count between alloc_fail_arm() and alloc_fail_disarm(), and
 * so do the calls that libc makes for asprintf, opendir and fopen. The memory of pthread_create()
 * does not count, because libc allocates it internally. If assertions or set-up code run in
 * between, call alloc_fail_pause() before them and alloc_fail_resume() after them.
 *
 * ALLOC_FAIL_TRACE=1 prints the stack at every failed allocation.
 */
#ifndef TEST_ALLOC_FAIL_H
#define TEST_ALLOC_FAIL_H

#include <stdbool.h>
#include <stddef.h>

/* Makes the n-th allocation from now on fail, once; 1 is the next one. */
void alloc_fail_arm(size_t n);
/* Makes the n-th allocation from now on and all later ones fail, until alloc_fail_disarm(). */
void alloc_fail_arm_all(size_t n);
/* Stops counting, and returns true if an allocation has failed since alloc_fail_arm(). */
bool alloc_fail_disarm(void);
/* Returns the number of allocations since the last alloc_fail_arm(). */
size_t alloc_fail_count(void);

/* Between these calls allocations of this thread do not count. The calls nest. */
void alloc_fail_pause(void);
void alloc_fail_resume(void);

/*
 * Allocations by code of libraries whose file name begins with `prefix` do not count. This is for
 * libraries that end the process, or leak, when memory runs out. At most 8 calls are possible.
 */
void alloc_fail_skip_library(const char *prefix);

#endif
