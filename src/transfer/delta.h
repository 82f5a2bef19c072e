/*
 * What of a file differs from the object that it replaces: a tag for each of its blocks, kept from one upload to
 * the next, and the parts in which the object is put together from both.
 *
 *	delta_sums_init(&now, size, earlier, kind, err);
 *	delta_scan(&now, fd, cancel, err);
 *	delta_plan(&plan, &now, earlier, least, part, err);
 *	plan.sent					bytes that are to be sent; the store copies the rest
 *
 * A tag is a GMAC (128 bits) under a key that is drawn anew for each file and never leaves this machine: blocks
 * that differ have the same tag with a probability below 2^-112, whoever made them, as nobody else knows the key. It
 * costs a tenth of what SHA-256 does. That the object is then right as a whole is for its checksum to say.
 */
#ifndef TRANSFER_DELTA_H
#define TRANSFER_DELTA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "s3/checksum.h"
#include "transfer/record_file.h"

struct penstock_error;

#define DELTA_KEY	 16
#define DELTA_TAG	 16
#define DELTA_BLOCKS_MAX 32768 /* a file that has grown has as many; a new one half of them */

struct delta_sums {
	uint64_t size;
	uint64_t block; /* bytes; the last one may be shorter */
	uint64_t n;
	unsigned char key[DELTA_KEY];
	unsigned char (*tags)[DELTA_TAG];
	unsigned char *known; /* one per block: there is a tag. Only of what was read from a file */
	enum checksum_kind kind;
	uint8_t (*crcs)[8]; /* of `kind`, of each block. Only of a scan */
};

/* For a scan: with the blocks and the key of `earlier`, or (NULL) with those that suit the size. */
int delta_sums_init(struct delta_sums *sums, uint64_t size, const struct delta_sums *earlier,
	enum checksum_kind kind, struct penstock_error *err);
void delta_sums_release(struct delta_sums *sums);
uint64_t delta_length(const struct delta_sums *sums, uint64_t i);
/* Reads the first sums->size bytes. PENSTOCK_E_CHANGED: there are fewer. */
int delta_scan(
	struct delta_sums *sums, int fd, const atomic_int *cancel, struct penstock_error *err);
/* The checksum of whole blocks, from those of each. */
void delta_crc(const struct delta_sums *sums, uint64_t offset, uint64_t length,
	uint8_t digest[static CHECKSUM_MAX_SIZE]);

/*
 * What was last sent of one object, on record: its ETag, and the tags. `etag` is owned, NULL: nothing is known.
 * -1: out of memory.
 */
int delta_read(struct record_file *file, struct delta_sums *sums, char **etag);
/* -1: it could not be written; then it says that nothing is known. */
int delta_write(struct record_file *file, const struct delta_sums *sums, const char *etag);

/* A part of the object. */
struct delta_span {
	uint64_t offset;
	uint64_t length;
	bool copy; /* of the object that is replaced, from the same place */
};
struct delta_plan {
	struct delta_span *spans;
	unsigned n;
	uint64_t sent;
};
/*
 * The parts that send the fewest bytes, each but the last of at least `least` bytes, and sent ones of about `part`.
 * Fails only for want of memory.
 */
int delta_plan(struct delta_plan *plan, const struct delta_sums *now,
	const struct delta_sums *earlier, uint64_t least, uint64_t part,
	struct penstock_error *err);
void delta_plan_release(struct delta_plan *plan);

#endif
