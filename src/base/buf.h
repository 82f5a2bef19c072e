/*
 * A growable byte buffer with a fixed maximum size.
 *
 *	_cleanup_(buf_release) struct buf b = BUF_INIT(LIMIT_XML_BODY);
 *
 *	buf_add_str(&b, "<Key>");
 *	buf_printf(&b, "%d", n);
 *	if (buf_failed(&b))
 *		return buf_error(&b, "the list reply", err);
 *
 * Failure is sticky: after the first append that exceeds the limit or runs out of memory, every
 * further append does nothing, so a series of appends needs one check at its end. `data` is
 * NUL-terminated once anything was added; the NUL does not count towards `len` or `limit`.
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct penstock_error;

struct buf {
	char *data; /* NULL until something is added */
	size_t len;
	size_t cap;
	size_t limit; /* bytes; `len` never exceeds it */
	unsigned failure; /* 0, or one of enum buf_failure */
};

enum buf_failure { BUF_OVER_LIMIT = 1, BUF_NO_MEMORY = 2 };

/* clang-format off */
#define BUF_INIT(max) { NULL, 0, 0, (max), 0 }
/* clang-format on */

void buf_init(struct buf *b, size_t limit);
void buf_release(struct buf *b);
/* Overwrites the contents, then releases the buffer. For secrets. */
void buf_wipe(struct buf *b);
/* Empties the buffer and clears a failure, but keeps the memory. */
void buf_clear(struct buf *b);

/* The functions that add return 0, or -1 if the buffer has failed. */
int buf_add(struct buf *b, const void *data, size_t len);
int buf_add_str(struct buf *b, const char *s);
int buf_add_char(struct buf *b, char c);
/* Adds the text in single quotes for a shell. */
int buf_add_quoted(struct buf *b, const char *s);
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int buf_vprintf(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
/* Reserves room for `len` more bytes, which the caller fills and reports with buf_grown(). Returns
 * NULL if the limit is exceeded or memory runs out. */
char *buf_reserve(struct buf *b, size_t len);
void buf_grown(struct buf *b, size_t len);
/* Removes the first `len` bytes. */
void buf_consume(struct buf *b, size_t len);
void buf_truncate(struct buf *b, size_t len);

static inline bool buf_failed(const struct buf *b)
{
	return b->failure != 0;
}

/* Returns the contents as a string, never NULL; owned by the buffer. */
const char *buf_str(const struct buf *b);
/* Returns the NUL-terminated contents, to be freed by the caller, and empties the buffer. Returns
 * NULL if the buffer has failed. */
char *buf_take(struct buf *b);

/* Raises the error that made the buffer fail; `what` names the contents. */
int buf_error(const struct buf *b, const char *what, struct penstock_error *err);

#endif
