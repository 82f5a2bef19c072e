/*
 * Runs a verb of this program for a request.
 *
 *	struct verb_result result = VERB_RESULT_INIT;
 *
 *	r = verb_run(&words, 60000, &ui->stopping, &result, err);
 *	if (r == 0 && result.code == 0)
 *		... result.out is what it printed
 *	verb_result_release(&result);
 *
 * verb_open() passes the output on while the verb runs, for contents of any size.
 */
#ifndef UI_VERB_H
#define UI_VERB_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/str.h"

struct penstock_error;

struct verb_result {
	struct buf out;
	struct buf message; /* the last line on stderr, without "penstock VERB: " */
	int code; /* exit code, or 128 + the number of a signal */
};
/* clang-format off */
#define VERB_RESULT_INIT { BUF_INIT(LIMIT_UI_REPLY), BUF_INIT(LIMIT_STRING), 0 }
/* clang-format on */
void verb_result_release(struct verb_result *result);

/* Returns true for s3://BUCKET… and gs://BUCKET…: no verb treats such an operand as a file. */
bool verb_is_object(const char *url);
/* Adds the options of a store: "embedded", the name of a profile, or "" or "default" for the store
 * of the environment. Returns -1 if out of memory. */
int verb_add_store(struct strlist *words, const char *store);
/* Returns the URL in a place of runs, or NULL if the place is invalid. A place is s3://… or
 * gs://…, or STORE:s3://… in a store other than the store of the environment. */
const char *verb_place_url(const char *place);
/* Adds the options of the store of a valid place. Returns -1 if out of memory. */
int verb_add_place_store(struct strlist *words, const char *place);
/* Like verb_add_place_store(), and adds the URL of the place as the only operand. */
int verb_add_place(struct strlist *words, const char *place);

/* Adds the words up to NULL. Returns -1 if out of memory. */
int verb_add(struct strlist *words, ...) __attribute__((sentinel));
/* Runs "penstock WORDS" to its end. `timeout_ms` is 0 for no limit. */
int verb_run(const struct strlist *words, int timeout_ms, const atomic_int *cancel,
	struct verb_result *result, struct penstock_error *err);

struct verb;
int verb_open(struct verb **out, const struct strlist *words, const atomic_int *cancel,
	struct penstock_error *err);
/* Returns the number of bytes, 0 at the end, or -1 on error or if `cancel` is set. Blocks. */
ssize_t verb_read(struct verb *verb, char *data, size_t len);
/* Waits for the verb, whose output must have ended. Returns the exit code, with the message of a
 * failure. */
int verb_wait(struct verb *verb, struct buf *message);
/* Ends the verb if it is still running, by SIGTERM and then SIGKILL, and frees `verb`, which may be
 * NULL. */
void verb_close(struct verb *verb);

#endif
