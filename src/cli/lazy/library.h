/*
 * Libraries that few commands need are loaded when the first of their functions is called, and not with the program:
 * libcurl, libarchive and libmicrohttpd bring some thirty others with them, which would be half of the time that a
 * trivial run takes. The files beside this one define those functions that we use, under their own names, so their
 * callers know nothing of it; as the linker finds them here, it leaves the libraries out.
 *
 * A function that is missing in such a file makes the library one of the program again, silently; the test
 * test_libraries_that_few_need_are_not_loaded_with_the_program tells.
 */
#ifndef CLI_LAZY_LIBRARY_H
#define CLI_LAZY_LIBRARY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* File-scope constants but for what the first load sets. */
struct lazy_library {
	const char *file; /* "libcurl.so.4" */
	const char *const *names;
	void **functions; /* as many as names */
	size_t n;
	pthread_mutex_t lock;
	bool tried, loaded; /* under the lock */
};

/* Any thread. False: it cannot be loaded, which was said once. */
bool lazy_library_load(struct lazy_library *library);

/*
 * FUNCTIONS(X) is the list of names; LAZY_LIBRARY(FUNCTIONS, FILE) makes `library`, and REAL(f) is the function of
 * the library, after LOADED.
 */
#define LAZY_INDEX(f) AT_##f,
#define LAZY_NAME(f)  #f,
#define LAZY_LIBRARY(FUNCTIONS, FILE)                                                              \
	enum { FUNCTIONS(LAZY_INDEX) N_FUNCTIONS };                                                \
	static const char *const names[] = {FUNCTIONS(LAZY_NAME)};                                 \
	static void *functions[N_FUNCTIONS];                                                       \
	static struct lazy_library library = {                                                     \
		FILE, names, functions, N_FUNCTIONS, PTHREAD_MUTEX_INITIALIZER, false, false}
#define LOADED	lazy_library_load(&library)
#define REAL(f) ((__typeof__(&(f)))functions[AT_##f])

/* One that only those call who got something from the library before. */
#define LAZY(result, f, parameters, arguments)                                                     \
	result f parameters                                                                        \
	{                                                                                          \
		return REAL(f) arguments;                                                          \
	}
/* One that makes the first thing; `otherwise` where there is no library. */
#define LAZY_FIRST(result, f, parameters, arguments, otherwise)                                    \
	result f parameters                                                                        \
	{                                                                                          \
		return LOADED ? REAL(f) arguments : (otherwise);                                   \
	}
/* One that ends something, or nothing. */
#define LAZY_END(f, type)                                                                          \
	void f(type *a)                                                                            \
	{                                                                                          \
		if (a)                                                                             \
			REAL(f)(a);                                                                \
	}
/* The same of those that tell whether they could. */
#define LAZY_CLOSE(result, f, type)                                                                \
	result f(type *a)                                                                          \
	{                                                                                          \
		return a ? REAL(f)(a) : (result)0;                                                 \
	}

#endif
