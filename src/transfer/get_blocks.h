/*
 * The blocks of a file that is fetched in ranges: the checksum of each, from which the checksum of the whole is
 * put together; and which of them an earlier call has fetched already.
 *
 *	get_blocks_init(&b, size, kind, err);
 *	get_blocks_load(&b, journal, fd, err);		optional: what is there, and go on with the journal
 *	while (get_blocks_next(&b, &at, most, &offset, &length))
 *		for each piece of that range, in order: get_blocks_add(&b, &run, offset, data, len)
 *	get_blocks_digest(&b, digest);			all of it is there
 *	get_blocks_release(&b);
 *
 * get_blocks_add() may be called for several ranges at a time, each with a run of its own, from one thread.
 */
#ifndef TRANSFER_GET_BLOCKS_H
#define TRANSFER_GET_BLOCKS_H

#include "base/limits.h"
#include "s3/checksum.h"
#include "transfer/record_file.h"

/* Ranges begin at multiples of it; every block size divides it. */
#define GET_BLOCK_MAX LIMIT_GET_RANGE

struct get_blocks {
	enum checksum_kind kind; /* NONE: nothing is computed */
	uint64_t size;
	uint64_t block;
	uint64_t n;
	unsigned char *had;	     /* a bit per block that was there at the start; NULL: none */
	uint8_t (*digests)[8];	     /* of each block */
	struct record_file *journal; /* borrowed; NULL: none */
};

/* Where a range stands. */
struct get_run {
	uint64_t at; /* bytes of the current block */
	struct checksum sum;
};

/* `kind`: a CRC, or NONE. */
int get_blocks_init(
	struct get_blocks *b, uint64_t size, enum checksum_kind kind, struct penstock_error *err);
void get_blocks_release(struct get_blocks *b);

/*
 * Takes the blocks that the lines of `journal` tell of and that `fd` has with their checksums, and puts every
 * further one on record there. How many bytes were there, or a negative code.
 */
int64_t get_blocks_load(
	struct get_blocks *b, struct record_file *journal, int fd, struct penstock_error *err);

/* The next bytes that are missing, from *at on: at most `most`, which is a multiple of GET_BLOCK_MAX. */
bool get_blocks_next(const struct get_blocks *b, uint64_t *at, uint64_t most, uint64_t *offset,
	uint64_t *length);

/* Bytes that were written to the file at `offset`; -1: out of memory. */
int get_blocks_add(
	struct get_blocks *b, struct get_run *run, uint64_t offset, const void *data, size_t len);
/* The range begins again. */
int get_run_restart(struct get_run *run);
void get_run_release(struct get_run *run);

/* Of so many bytes that are there, from the beginning of a block to the end of one. False: it is not that. */
bool get_blocks_digest_of(const struct get_blocks *b, uint64_t offset, uint64_t length,
	uint8_t digest[static CHECKSUM_MAX_SIZE]);
/* Of the whole file. */
void get_blocks_digest(const struct get_blocks *b, uint8_t digest[static CHECKSUM_MAX_SIZE]);

#endif
