/*
 * Diagnostics. Lines go to stderr (or the configured sink) as "penstock: text"; at level debug the
 * lines also have the time and the level. The requested output of a verb goes to stdout, not here.
 *
 *	log_set_level_name(getenv("PENSTOCK_LOG"));
 *	log_redact(secret_access_key);
 *	log_info("input %s: %zu bytes", url, n);
 *
 * Every text passed to log_redact() is replaced by "***" in all later lines, and so are the
 * signatures of presigned URLs, which are recognised by the name of their parameter. Thread-safe.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdio.h>
#include <stdbool.h>

#include "base/buf.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_QUIET };

typedef void (*log_sink_fn)(void *cookie, enum log_level level, const char *line);

void log_set_level(enum log_level level);
/* Accepts "debug", "info", "warn", "error" or "quiet"; NULL keeps the level. Returns -1 for
 * anything else. */
int log_set_level_name(const char *name);
bool log_enabled(enum log_level level);

/* Passes every line to `sink`, redacted, without a newline at its end, under the log's lock. NULL
 * restores stderr. */
void log_set_sink(log_sink_fn sink, void *cookie);

/*
 * Hides a secret in all later lines. Texts of fewer than 4 bytes are ignored, because they would
 * blank out half of every line. Texts of 8 bytes and more are also found percent-encoded and in
 * base64, at any position in a longer encoded text. Returns -1 if out of memory; the caller then
 * fails if it can. From then until log_redact_clear(), every text that would be searched for
 * secrets is withheld, and log_redact_failed() returns true.
 */
int log_redact(const char *secret);
int log_redact_part(const char *secret, size_t len); /* not NUL-terminated */
/* Hides the password of a URL ("http://user:password@host/") and the text "user:password", or the
 * user if the URL has no password. */
int log_redact_user(const char *url);
/* Returns true if a query parameter of that name signs or authorises a URL, for all known
 * vendors. */
bool log_secret_parameter(const char *name, size_t len);
/* Undoes one log_redact() of a secret that is no longer valid, such as an expired token. The secret
 * stays hidden until log_redact_forget() was called as often as log_redact(). */
void log_redact_forget(const char *secret);
/* Returns the number of texts that are searched for, counting all encoded forms. */
size_t log_redact_count(void);
bool log_redact_failed(void);
void log_redact_clear(void);
/* Appends `text` to `out` with every secret replaced. */
void log_redact_into(struct buf *out, const char *text);

/*
 * Like log_redact_into() for a stream of arbitrary bytes, but replaces only the texts of
 * log_redact(): appends data[0..len) to `out` and returns the number of bytes consumed. The bytes
 * that are left, fewer than the longest secret has, may begin a secret: pass them again together
 * with the following data, or with `last` at the end.
 */
size_t log_redact_stream(struct buf *out, const char *data, size_t len, bool last);

/* Returns the level of the calling thread and makes it the thread's own: from the first call until
 * log_no_own_level(), log_set_level() applies to this thread alone. */
enum log_level log_own_level(void);
void log_no_own_level(void);
/* Colours the prefix of lines on stderr: bold, warnings yellow, errors red. */
void log_set_colour(bool on);
/* Return the escape sequences that begin and end the prefix of a line of that level on
 * log_stream(), or "" if lines have no colour. */
const char *log_colour(enum log_level level);
const char *log_colour_end(void);
/* Reports the last byte of the text that another writer has put on stderr. If `last` is not a
 * newline, the log writes a newline before its next line. */
void log_text_ended(char last);
/* Ends a line of another writer on stderr that has no newline yet. */
void log_begin_line(void);
/* Return and set the stream for the lines of the calling thread: stderr by default. NULL restores
 * stderr. */
FILE *log_stream(void);
void log_set_stream(FILE *stream);

void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_debug(...)                                                                             \
	do {                                                                                       \
		if (log_enabled(LOG_DEBUG))                                                        \
			log_at(LOG_DEBUG, __VA_ARGS__);                                            \
	} while (0)
#define log_info(...)  log_at(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_at(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)

#endif
