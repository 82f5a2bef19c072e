/*
 * The file that a download writes before it has its final name, and the journal next to it from
 * which the next call resumes after a kill:
 *
 *	PATH.penstock-part		the bytes; PATH.RANDOM.penstock-part if another program
 *					has a file of that name
 *	PATH.journal.penstock-part	their source, and the blocks that are present
 *
 *	get_part_open(&part, path, source, err);
 *	get_part_begin(&part, etag, &blocks, err);	// the object is known
 *	rename(part.path, path), get_part_finish(&part);	// or get_part_abandon(&part, keep);
 *	get_part_release(&part);
 *
 * A part file is resumed only if the journal names it (name and inode) and the object is the same
 * (source, size, ETag). Blocks without their recorded checksum are fetched again. The part file of
 * another object is removed or emptied. A file that the journal does not name is left untouched: it
 * may belong to another program.
 */
#ifndef TRANSFER_GET_JOURNAL_H
#define TRANSFER_GET_JOURNAL_H

#include "transfer/get/blocks.h"

struct get_part {
	int fd;
	char *path;
	bool journaled;
	struct record_file journal;
	char source[65]; /* digest */
	/* The journal's record of an earlier call; size 0 if there is none. */
	uint64_t size;
	char *etag;
	enum checksum_kind kind;
};
/* clang-format off */
#define GET_PART_INIT { .fd = -1, .journal = RECORD_FILE_INIT }
/* clang-format on */

/* Opens the part file of `path`. `source` identifies the object among all others; if NULL, there is
 * no journal, and part_file_open() chooses the name. If the journal cannot be created, the download
 * cannot be resumed. */
int get_part_open(
	struct get_part *part, const char *path, const char *source, struct penstock_error *err);
/* Called when the object is known: loads the blocks that are present into `blocks` (which has the
 * object's size and kind), or empties the file. Returns the number of bytes present, or a negative
 * code. */
int64_t get_part_begin(struct get_part *part, const char *etag, struct get_blocks *blocks,
	struct penstock_error *err);
/* Drops everything that was fetched. */
int get_part_restart(struct get_part *part, struct penstock_error *err);
/* Called after the part file got its final name; removes the journal. */
void get_part_finish(struct get_part *part);
/* Called after a failure. Removes the part file and the journal, unless `keep` is set and there is
 * a journal, from which the next call can resume. */
void get_part_abandon(struct get_part *part, bool keep);
void get_part_release(struct get_part *part);

#endif
