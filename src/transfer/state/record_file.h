/*
 * The journal of one transfer: a small text file that one process uses, with a checksum for each
 * line.
 *
 *	struct record_file f = RECORD_FILE_INIT;
 *
 *	if (record_file_open(&f, path, err) == 0) {	// locked from now on
 *		while ((n = record_file_next(&f, fields, ARRAY_SIZE(fields))))
 *			... lines of an earlier call, in order
 *		record_file_add(&f, &line);	// survives a kill once it has returned
 *		record_file_remove(&f);	// or leave it for the next call
 *	}
 *	record_file_close(&f);
 *
 * A line that a crash has truncated, or that is damaged otherwise, is skipped: any of the
 * lines may be missing. Files of other programs are never written to or removed.
 */
#ifndef TRANSFER_STATE_RECORD_FILE_H
#define TRANSFER_STATE_RECORD_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct penstock_error;

struct record_file {
	int fd; /* locked */
	char *path;
	struct buf text; /* contents of the file when it was opened */
	size_t at;
};
/* clang-format off */
#define RECORD_FILE_INIT { .fd = -1 }
/* clang-format on */

/* Opens the file, or creates it with mode 0600. Fails with PENSTOCK_E_EXISTS if another process
 * uses the file, or if it is not a journal. */
int record_file_open(struct record_file *f, const char *path, struct penstock_error *err);
/* Returns true if a file that starts with `head` is a journal. */
bool record_file_begins(const char *head);
void record_file_close(struct record_file *f);
/* Removes the file if it is still the one that was opened. */
void record_file_remove(struct record_file *f);
/* Empties the journal. Returns -1 with errno on failure. */
int record_file_clear(struct record_file *f);

/* Splits the next valid line into fields; returns their number, 0 at the end. A line with more than
 * `max` fields is skipped. The fields are valid until the call that returns 0. */
unsigned record_file_next(struct record_file *f, char *fields[], unsigned max);
/* Returns the first character of the next valid line, which is not consumed; '\0' at the end. */
char record_file_peek(struct record_file *f);

/* record_add_text() appends a field, percent-encoded; "-" if `text` is NULL or empty.
 * record_decode() decodes a field in place, "-" to "". Returns false if the field is invalid. */
void record_add_text(struct buf *line, const char *text);
bool record_decode(char *field);

/* Lines of the same form for other files: the CRC-32 of the fields as eight hexadecimal digits, a
 * space, the fields. Text that is added between begin and end becomes a line. */
#define RECORD_LINE_TEXT 9
size_t record_line_begin(struct buf *out);
void record_line_end(struct buf *out, size_t begin);
/* Returns true if the checksum of `line`, which has no newline, is right. */
bool record_line_is_whole(const char *line, size_t len);
/* Splits at single spaces. Returns 0 if there are more than `max` fields. */
unsigned record_line_split(char *text, char *fields[], unsigned max);

/* Writes one line with its checksum. Returns -1 with errno on failure. */
int record_file_add(struct record_file *f, const struct buf *line);

#endif
