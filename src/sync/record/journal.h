/*
 * The local record of closed and published files. After a kill, the record shows the next attempt
 * which files are complete.
 *
 *	journal_replay(path, fn, cookie, NULL, err);	// reads earlier attempts
 *	journal_open(&j, path, err);			// for appending
 *	journal_add(j, &record);
 *	journal_write(j);	// to the kernel: survives a kill of penstock
 *	journal_sync(j);	// to the disk: survives a power loss
 *
 * One record is one line: a CRC of the rest, a letter, fields separated by spaces, names
 * percent-encoded. A line with a wrong CRC, which a crash or a full disk has cut, is skipped, so a
 * torn line loses one record. A journal that cannot be written does not stop the sync: lost records
 * are written again once there is space (journal_damaged(), then journal_rewrite()).
 */
#ifndef SYNC_RECORD_JOURNAL_H
#define SYNC_RECORD_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "sync/plan/table.h"

struct penstock_error;
struct journal;

enum journal_type {
	/* path: the run's id; etag: the nonce of a sync that writes to this journal; key: the id of
	 * the boot in which the files were found to match the records, "" in old journals */
	JOURNAL_RUN = 'H',
	/* path, ident, mode: the file was closed, not by a kill, or moved into place; key:
	 * JOURNAL_SYNCED or none */
	JOURNAL_CLOSED = 'C',
	/* path, ident, mode, etag, crc: the version that the object holds */
	JOURNAL_PUBLISHED = 'P',
	/* the same for an open file: the object holds its first ident.size bytes */
	JOURNAL_APPENDED = 'A',
	JOURNAL_SUSPECT = 'S', /* path, ident, mode */
	JOURNAL_GONE = 'D', /* path, etag: the file is gone, the object still exists */
	JOURNAL_FORGET = 'X', /* path: the file is gone, and no object of it is recorded */
	/* path, etag, size in ident.size; key: where an object of another program was kept */
	JOURNAL_KEPT = 'K',
	JOURNAL_UNKEPT = 'L', /* path, key: the copy was removed */
	JOURNAL_MANIFEST = 'M', /* generation in ident.size, etag */
	JOURNAL_RESTORED = 'R', /* generation in ident.size, whose restore was verified */
	/* key; etag: the id of an upload in parts, "" before it has one; ident.mtime_ns: when the
	 * upload was requested, wall clock */
	JOURNAL_PARTS = 'U',
	JOURNAL_PARTS_OVER = 'V', /* the same members: the store has no part of the upload */
};

#define JOURNAL_SYNCED "synced" /* the file is on the disk */

struct journal_record {
	enum journal_type type;
	const char *path; /* raw bytes */
	/* used by JOURNAL_KEPT, _UNKEPT, _PARTS, _PARTS_OVER, _RUN and _CLOSED; else NULL or "" */
	const char *key;
	const char *etag; /* NULL or "" if unknown */
	struct ident ident;
	uint32_t mode;
	uint64_t crc;
	bool has_crc;
};

/* Returns non-zero to stop. */
typedef int (*journal_fn)(void *cookie, const struct journal_record *record);

/* A missing journal counts as empty. `skipped` (may be NULL) gets the number of torn lines. */
int journal_replay(const char *path, journal_fn fn, void *cookie, unsigned *skipped,
	struct penstock_error *err);
/* Decodes one line, without its newline, in place. Returns false if the line is torn, or is not a
 * line of a journal. */
bool journal_parse(char *line, struct journal_record *record);
/* Appends one line with its newline. */
void journal_format(struct buf *out, const struct journal_record *record);

/* Opens the journal for appending; creates it with mode 0600 if it is missing. If `path` is NULL
 * the journal keeps nothing. */
int journal_open(struct journal **out, const char *path, struct penstock_error *err);
void journal_free(struct journal *j);

/* Adds a record in memory. Calls journal_write() if much is pending. */
void journal_add(struct journal *j, const struct journal_record *record);
/* Notes that a record could not be added: the journal counts as damaged until it is rewritten. */
void journal_lost(struct journal *j);
/* Passes the added records to the kernel. Returns -1 with errno if no record could be written.
 * After a signal or a short write returns 0; the other records stay pending, and a torn record is
 * lost (journal_damaged()). */
int journal_write(struct journal *j);
/* Calls fdatasync(), which may block for a long time. Returns -1 with errno on error. */
int journal_sync(struct journal *j);
/* Returns true if a record was lost since the last rewrite. */
bool journal_damaged(const struct journal *j);
/* Returns the size of the file in bytes. */
uint64_t journal_size(const struct journal *j);

/* Replaces the journal with the records that `fill` adds to a new journal with journal_add(). The
 * old journal stays until the new journal is durable. */
int journal_rewrite(struct journal *j, void (*fill)(void *cookie, struct journal *j), void *cookie,
	struct penstock_error *err);

#endif
