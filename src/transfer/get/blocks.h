/*
 * The blocks of a file that is fetched in ranges: the checksums of all blocks, which combine to the
 * checksum of the whole file, and the blocks that an earlier call has fetched.
 *
 *	get_blocks_init(&b, size, kind, err);
 *	get_blocks_load(&b, journal, fd, err);	// optional: resume from the journal
 *	while (get_blocks_next(&b, &at, most, &offset, &length))
 *		get_blocks_add(&b, &run, offset, data, len);  // each piece of that range, in order
 *	get_blocks_digest(&b, digest);	// once all blocks are present
 *	get_blocks_release(&b);
 *
 * get_blocks_add() may be called for several ranges at a time, each with a run of its own, from one
 * thread.
 */
#ifndef TRANSFER_GET_BLOCKS_H
#define TRANSFER_GET_BLOCKS_H

#include "base/limits.h"
#include "s3/sum/checksum.h"
#include "transfer/state/record_file.h"

/* The largest block size, which every block size divides. */
#define GET_BLOCK_MAX LIMIT_GET_RANGE

struct get_blocks {
	enum checksum_kind kind; /* CHECKSUM_NONE to compute nothing */
	uint64_t size;
	uint64_t block;
	uint64_t n;
	unsigned char *had; /* a bit per block, set if present at the start; may be NULL */
	uint8_t (*digests)[8]; /* checksum of each block */
	struct record_file *journal; /* borrowed; may be NULL */
	uint64_t kept; /* bytes of the blocks in the journal */
};

/* Progress of a range. */
struct get_run {
	uint64_t at; /* bytes of the current block so far */
	struct checksum sum;
};

/* Divides a file of `size` bytes into blocks. `kind` is a CRC, or CHECKSUM_NONE. */
int get_blocks_init(
	struct get_blocks *b, uint64_t size, enum checksum_kind kind, struct penstock_error *err);
void get_blocks_release(struct get_blocks *b);

/* Takes over the blocks that `journal` lists and whose bytes in `fd` have the listed checksums, and
 * records every further block in `journal`. Returns the number of bytes present, or a negative
 * code. */
int64_t get_blocks_load(
	struct get_blocks *b, struct record_file *journal, int fd, struct penstock_error *err);

/* Finds the next missing bytes from *at on, up to the next multiple of `most` (itself a multiple of
 * GET_BLOCK_MAX), and moves *at to their end. Returns false if no more are missing. */
bool get_blocks_next(const struct get_blocks *b, uint64_t *at, uint64_t most, uint64_t *offset,
	uint64_t *length);

/* Adds bytes that were written to the file at `offset`. Returns -1 if out of memory. */
int get_blocks_add(
	struct get_blocks *b, struct get_run *run, uint64_t offset, const void *data, size_t len);
/* Starts the range again. Returns -1 if out of memory. */
int get_run_restart(struct get_run *run);
void get_run_release(struct get_run *run);

/* Combines the checksum of bytes that are present. Returns false unless the bytes start and end at
 * block boundaries and checksums are computed. */
bool get_blocks_digest_of(const struct get_blocks *b, uint64_t offset, uint64_t length,
	uint8_t digest[static CHECKSUM_MAX_SIZE]);
/* Combines the checksum of the whole file. */
void get_blocks_digest(const struct get_blocks *b, uint8_t digest[static CHECKSUM_MAX_SIZE]);

#endif
