/*
 * Diagnostics. Lines go to stderr (or the sink that was set) as "penstock: text"; with a level of
 * debug they carry a time and the level. What a verb is asked to print goes to stdout and not here.
 *
 *	log_set_level_name(getenv("PENSTOCK_LOG"));
 *	log_redact(secret_access_key);
 *	log_info("input %s: %zu bytes", url, n);
 *
 * Every text passed to log_redact() is replaced by "***" in all later lines, and so is what signs a presigned URL, by the
 * name of its parameter.
 * Thread-safe.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdio.h>
#include <stdbool.h>

#include "base/buf.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_QUIET };

typedef void (*log_sink_fn)(void *cookie, enum log_level level, const char *line);

void log_set_level(enum log_level level);
/* "debug", "info", "warn", "error" or "quiet"; NULL keeps the level. Returns -1 for anything else.
 */
int log_set_level_name(const char *name);
bool log_enabled(enum log_level level);

/* `sink` gets every line, redacted, without a newline, under the log's lock. NULL: stderr. */
void log_set_sink(log_sink_fn sink, void *cookie);

/*
 * Texts of fewer than 4 bytes are ignored: they would blank out half of every line. Those of 8 and more are
 * also found percent-encoded and in base64, at whatever place of a longer text that was encoded. -1: no
 * memory to remember it. Whoever can ends with that error; until log_redact_clear() every text that would
 * be searched for secrets is withheld whole, and log_redact_failed() says so.
 */
int log_redact(const char *secret);
int log_redact_part(const char *secret, size_t len); /* without a NUL behind it */
/* The password of a URL ("http://user:password@host/"), or its user where there is none. */
int log_redact_user(const char *url);
/* Whether what stands behind "name=" in a query signs or authorises the URL, whichever vendor it is of. */
bool log_secret_parameter(const char *name, size_t len);
/*
 * For a secret that is worth nothing any more, such as a token long after its end: takes back one
 * log_redact() of it. It is looked for until as many were taken back as there were.
 */
void log_redact_forget(const char *secret);
/* How many texts are looked for, all forms counted. */
size_t log_redact_count(void);
bool log_redact_failed(void);
void log_redact_clear(void);
/* Appends `text` to `out` with every secret replaced. */
void log_redact_into(struct buf *out, const char *text);

/*
 * The same for a stream of any bytes: appends data[0..len) to `out` with secrets replaced and returns
 * how much it took. The rest, shorter than the longest secret, may be a secret's beginning: pass it
 * again with what follows, or with `last` when nothing does.
 */
size_t log_redact_stream(struct buf *out, const char *data, size_t len, bool last);

/*
 * A thread that does a work of its own, beside others: from the first call on log_set_level() is about this thread
 * alone, until log_no_own_level().
 */
enum log_level log_own_level(void);
void log_no_own_level(void);
/* Where the calling thread's lines go; stderr, unless it was set. NULL: stderr again. */
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
