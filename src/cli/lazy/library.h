/*
 * Loads a library when its first function is called, not at the start of the program. Few commands
 * need libcurl, libarchive and libmicrohttpd, and loading these and the thirty libraries that they
 * depend on would take half the time of a trivial run. The files in this folder define the
 * functions that penstock uses, under the names that the libraries give them, so callers need not
 * change. The linker finds the functions here, and therefore does not link the libraries.
 *
 * If a function is missing in its file, the linker silently links the library, which is then loaded
 * at the start of the program. The test
 * test_libraries_that_few_need_are_not_loaded_with_the_program detects this mistake.
 */
#ifndef CLI_LAZY_LIBRARY_H
#define CLI_LAZY_LIBRARY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* A function of a library; the linker collects the functions of a file in one section. */
struct lazy_function {
	const char *name;
	void *real; /* NULL until the library is loaded */
} __attribute__((aligned(16)));

struct lazy_library {
	const char *file; /* "libcurl.so.4" */
	struct lazy_function *begin, *end;
	pthread_mutex_t lock;
	bool tried, loaded; /* protected by the lock */
};

/* Thread-safe. Returns false if the library cannot be loaded, which is reported once. */
bool lazy_library_load(struct lazy_library *library);

/* LAZY_LIBRARY(FILE) defines the variable `library`. A file defines LAZY_SECTION before it includes
 * this header. LAZY_FUNCTION(f) adds a function to the section. LOADED loads the library; if
 * LOADED is true, REAL(f) is the library's function. */
#define LAZY_JOIN_(a, b) a##b
#define LAZY_JOIN(a, b)	 LAZY_JOIN_(a, b)
#define LAZY_TEXT_(a)	 #a
#define LAZY_TEXT(a)	 LAZY_TEXT_(a)
#define LAZY_LIBRARY(FILE)                                                                         \
	extern struct lazy_function LAZY_JOIN(__start_, LAZY_SECTION)[];                           \
	extern struct lazy_function LAZY_JOIN(__stop_, LAZY_SECTION)[];                            \
	static struct lazy_library library = {FILE, LAZY_JOIN(__start_, LAZY_SECTION),             \
		LAZY_JOIN(__stop_, LAZY_SECTION), PTHREAD_MUTEX_INITIALIZER, false, false};
#define LAZY_FUNCTION(f)                                                                           \
	static struct lazy_function lazy_##f                                                       \
		__attribute__((section(LAZY_TEXT(LAZY_SECTION)), used)) = {#f, NULL};
#define LOADED	lazy_library_load(&library)
#define REAL(f) ((__typeof__(&(f)))lazy_##f.real)

/* A function that is called only after another function has loaded the library. */
#define LAZY(result, f, parameters, arguments)                                                     \
	LAZY_FUNCTION(f)                                                                           \
	result f parameters                                                                        \
	{                                                                                          \
		return REAL(f) arguments;                                                          \
	}
/* A function that may be the first call; returns `otherwise` if the library cannot be loaded. */
#define LAZY_FIRST(result, f, parameters, arguments, otherwise)                                    \
	LAZY_FUNCTION(f)                                                                           \
	result f parameters                                                                        \
	{                                                                                          \
		return LOADED ? REAL(f) arguments : (otherwise);                                   \
	}
/* A function that releases an object. Does nothing if the argument is NULL. */
#define LAZY_END(f, type)                                                                          \
	LAZY_FUNCTION(f)                                                                           \
	void f(type *a)                                                                            \
	{                                                                                          \
		if (a)                                                                             \
			REAL(f)(a);                                                                \
	}
/* Like LAZY_END(), with a result. */
#define LAZY_CLOSE(result, f, type)                                                                \
	LAZY_FUNCTION(f)                                                                           \
	result f(type *a)                                                                          \
	{                                                                                          \
		return a ? REAL(f)(a) : (result)0;                                                 \
	}

#endif
