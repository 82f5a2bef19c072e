/*
 * The journal of one transfer: a small text file of one process, in which each line has a checksum of its own.
 *
 *	struct record_file f = RECORD_FILE_INIT;
 *
 *	if (record_file_open(&f, path, err) == 0) {	it is ours alone from now on
 *		while ((n = record_file_next(&f, fields, ARRAY_SIZE(fields))))
 *			...				what an earlier call wrote, in its order
 *		record_file_add(&f, &line);		survives a kill from when it returns
 *		record_file_remove(&f);			or leave it for the next call
 *	}
 *	record_file_close(&f);
 *
 * A line that a crash has cut, or that anything else has damaged, is skipped: whoever reads it must be able to do
 * without each of them. Nobody else's file is ever written to or removed.
 */
#ifndef TRANSFER_RECORD_FILE_H
#define TRANSFER_RECORD_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct penstock_error;

struct record_file {
	int fd; /* locked */
	char *path;
	struct buf text; /* what was there */
	size_t at;
};
/* clang-format off */
#define RECORD_FILE_INIT { .fd = -1 }
/* clang-format on */

/*
 * Opens it, or makes it with mode 0600. PENSTOCK_E_EXISTS: another process has it, or it is not one of these
 * files.
 */
int record_file_open(struct record_file *f, const char *path, struct penstock_error *err);
/* Whether a file that begins so is one of these. */
bool record_file_begins(const char *head);
void record_file_close(struct record_file *f);
/* Takes it away, if it is still the one that was opened. */
void record_file_remove(struct record_file *f);
/* Forgets what was there. -1: errno. */
int record_file_clear(struct record_file *f);

/* The fields of the next line that is whole; how many, 0: there are no more. A line with more than `max` is
 * skipped. They are gone once this returned 0. */
unsigned record_file_next(struct record_file *f, char *fields[], unsigned max);
/* The first character of that line, which stays where it is; '\0': there is none. */
char record_file_peek(struct record_file *f);

/* Fields for a line: text is percent-encoded, and decoded in place; "-" is none. */
void record_add_text(struct buf *line, const char *text);
bool record_decode(char *field);
/* Hands one line to the kernel, with its checksum and end. -1: errno. */
int record_file_add(struct record_file *f, const struct buf *line);

#endif
