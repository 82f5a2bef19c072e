/*
 * Raising errors inside penstock, as <penstock/error.h> specifies. The functions return the
 * negative code, so that one statement raises an error and returns:
 *
 *	#include "base/fs.h"
 *
 *	if (fd < 0)
 *		return error_errno(err, errno, "cannot open '%s'", path);
 *	...
 *	if (fs_read(path, &text, err) < 0)
 *		return error_prefix(err, "cannot start run '%s'", id);
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdbool.h>

#include <penstock/error.h>

/* Replaces the content of `err`. Returns -code. */
int error_set(struct penstock_error *err, enum penstock_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Like error_set() with ": strerror(errnum)" appended. If `fmt` contains a "; ", which begins a
 * hint, the text is inserted before the last "; ". The code is derived from errnum. */
int error_errno(struct penstock_error *err, int errnum, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the existing message. Returns the existing -code; if `err` is NULL, the
 * -code of the last error for which this thread passed NULL as `err`. */
int error_prefix(struct penstock_error *err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Appends to the existing message. */
void error_suffix(struct penstock_error *err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Reports that memory ran out; allocates nothing itself. */
int error_memory(struct penstock_error *err);

/* Moves `src` into `dst`. If `dst` is NULL the message is dropped. Returns -code. */
int error_move(struct penstock_error *dst, struct penstock_error *src);

/* Returns true, and releases `err`, if the result `r` is -code: a failure that the caller
 * expects. */
bool error_expected(int r, enum penstock_code code, struct penstock_error *err);

/* Maps an errno value to a code. */
enum penstock_code error_code_of_errno(int errnum);

/* Returns true if the same request may succeed later without any change. */
bool error_is_retryable(const struct penstock_error *err);

#if defined(__clang_analyzer__) && !defined(ERROR_IMPLEMENTATION)
/* The analyzer sees one file at a time; without this function it follows paths where an error
 * function returns 0. */
static inline int error_raised(int r)
{
	if (r >= 0)
		__builtin_unreachable();
	return r;
}
#define error_set(...)	  error_raised(error_set(__VA_ARGS__))
#define error_errno(...)  error_raised(error_errno(__VA_ARGS__))
#define error_prefix(...) error_raised(error_prefix(__VA_ARGS__))
#define error_memory(err) error_raised(error_memory(err))
#define error_move(...)	  error_raised(error_move(__VA_ARGS__))
#endif

#define _cleanup_error_ __attribute__((cleanup(penstock_error_release)))

#endif
