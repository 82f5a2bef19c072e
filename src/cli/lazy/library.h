/*
 * Loads libraries that few commands need when their first function is called, instead of at the
 * start of the program: libcurl, libarchive and libmicrohttpd depend on some thirty others, which
 * would take half the time of a trivial run. The files in this folder define the functions that
 * penstock uses, under their own names, so callers need not change; as the linker finds the
 * functions here, it does not link the libraries.
 *
 * A function that is missing in such a file makes the program link the library again, silently;
 * test_libraries_that_few_need_are_not_loaded_with_the_program detects that.
 */
#ifndef CLI_LAZY_LIBRARY_H
#define CLI_LAZY_LIBRARY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* Constant, except for the members that the first load sets. */
struct lazy_library {
	const char *file; /* "libcurl.so.4" */
	const char *const *names;
	void **functions; /* as many as names */
	size_t n;
	pthread_mutex_t lock;
	bool tried, loaded; /* protected by the lock */
};

/* Thread-safe. Returns false if the library cannot be loaded, which is reported once. */
bool lazy_library_load(struct lazy_library *library);

/* FUNCTIONS(X) is the list of names; LAZY_LIBRARY(FUNCTIONS, FILE) defines `library`, and REAL(f)
 * is the library's function, valid after LOADED. */
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

/* A function whose arguments come from the library, which is therefore loaded. */
#define LAZY(result, f, parameters, arguments)                                                     \
	result f parameters                                                                        \
	{                                                                                          \
		return REAL(f) arguments;                                                          \
	}
/* A function that may be the first call; returns `otherwise` if the library cannot be loaded. */
#define LAZY_FIRST(result, f, parameters, arguments, otherwise)                                    \
	result f parameters                                                                        \
	{                                                                                          \
		return LOADED ? REAL(f) arguments : (otherwise);                                   \
	}
/* A function that releases an object, or NULL. */
#define LAZY_END(f, type)                                                                          \
	void f(type *a)                                                                            \
	{                                                                                          \
		if (a)                                                                             \
			REAL(f)(a);                                                                \
	}
/* The same with a result. */
#define LAZY_CLOSE(result, f, type)                                                                \
	result f(type *a)                                                                          \
	{                                                                                          \
		return a ? REAL(f)(a) : (result)0;                                                 \
	}

#endif
