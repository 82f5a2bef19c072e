/*
 * The file that a download writes to before it has its name, and the journal beside it from which the next call
 * goes on after a kill:
 *
 *	PATH.penstock-part		the bytes; where somebody else has a file of that name,
 *					PATH.RANDOM.penstock-part
 *	PATH.journal.penstock-part	where they come from, and which blocks are there
 *
 *	get_part_open(&part, path, source, err);
 *	get_part_begin(&part, etag, &blocks, err);	the object is known
 *	rename(part.path, path), get_part_finish(&part);	or get_part_abandon(&part, keep);
 *	get_part_release(&part);
 *
 * A part file is only gone on with where the journal names it (name and inode), the object is the same (source, size,
 * ETag) and its blocks have the checksums on record. Otherwise it is not touched: it may be somebody else's.
 */
#ifndef TRANSFER_GET_JOURNAL_H
#define TRANSFER_GET_JOURNAL_H

#include "transfer/get_blocks.h"

struct get_part {
	int fd;
	char *path;
	bool journaled;
	struct record_file journal;
	char source[65]; /* digest */
	/* What the journal says of an earlier call; size 0: nothing. */
	uint64_t size;
	char *etag;
	enum checksum_kind kind;
};
/* clang-format off */
#define GET_PART_INIT { .fd = -1, .journal = RECORD_FILE_INIT }
/* clang-format on */

/*
 * Opens the part file of `path`. `source` says where the bytes come from, in a way that tells all objects apart; with
 * NULL there is no journal. Where a journal cannot be had there is none, either.
 */
int get_part_open(
	struct get_part *part, const char *path, const char *source, struct penstock_error *err);
/*
 * The object is known now: loads the blocks that are there already into `blocks` (which has its size and kind), or
 * empties the file. How many bytes are there, or a negative code.
 */
int64_t get_part_begin(struct get_part *part, const char *etag, struct get_blocks *blocks,
	struct penstock_error *err);
/* Nothing of what is there is of any use. */
int get_part_restart(struct get_part *part, struct penstock_error *err);
/* After the part file got its final name. */
void get_part_finish(struct get_part *part);
/* After a failure; `keep`: the next call may go on from here. */
void get_part_abandon(struct get_part *part, bool keep);
void get_part_release(struct get_part *part);

#endif
