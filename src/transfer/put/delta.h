/*
 * The difference between a file and the object that the file replaces: a tag for each block, kept
 * from one upload to the next, and a plan of parts that are sent or copied.
 *
 *	delta_sums_init(&now, size, earlier, kind, err);
 *	delta_scan(&now, fd, cancel, err);
 *	delta_plan(&plan, &now, earlier, least, part, err);
 *	... plan.sent bytes are to be sent; the store copies the rest
 *
 * A tag is a GMAC (128 bits) under a random key for each file. The key never leaves this machine.
 * Different blocks have the same tag with a probability below 2^-112, even if an attacker made
 * them, because the key is secret. A GMAC costs a tenth of a SHA-256. The checksum of the object
 * verifies the result as a whole.
 */
#ifndef TRANSFER_PUT_DELTA_H
#define TRANSFER_PUT_DELTA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "s3/sum/checksum.h"
#include "transfer/state/record_file.h"

struct penstock_error;

#define DELTA_KEY	 16
#define DELTA_TAG	 16
#define DELTA_BLOCKS_MAX 32768 /* limit if a file has grown; half of it for a new file */

struct delta_sums {
	uint64_t size;
	uint64_t block; /* bytes; the last one may be shorter */
	uint64_t n;
	unsigned char key[DELTA_KEY];
	unsigned char (*tags)[DELTA_TAG];
	/* one per block: 1 if its tag is valid. NULL unless the sums were read from a record */
	unsigned char *known;
	enum checksum_kind kind;
	uint8_t (*crcs)[8]; /* checksums of `kind`, one per block, after a scan */
};

/* Prepares a scan with the block size and the key of `earlier`; if `earlier` is NULL, with a block
 * size that suits `size` and a new key. */
int delta_sums_init(struct delta_sums *sums, uint64_t size, const struct delta_sums *earlier,
	enum checksum_kind kind, struct penstock_error *err);
void delta_sums_release(struct delta_sums *sums);
uint64_t delta_length(const struct delta_sums *sums, uint64_t i);
/* Reads the first sums->size bytes. Fails with PENSTOCK_E_CHANGED if the file has fewer. */
int delta_scan(
	struct delta_sums *sums, int fd, const atomic_int *cancel, struct penstock_error *err);
/* Combines the checksum of a range of whole blocks from the blocks' checksums. */
void delta_crc(const struct delta_sums *sums, uint64_t offset, uint64_t length,
	uint8_t digest[static CHECKSUM_MAX_SIZE]);

/* Reads the record of an object: its ETag, and the tags. `etag` is owned, NULL if there is no
 * record. Returns -1 if out of memory. */
int delta_read(struct record_file *file, struct delta_sums *sums, char **etag);
/* Returns -1 if the record cannot be written; the record is empty then. */
int delta_write(struct record_file *file, const struct delta_sums *sums, const char *etag);

/* A part of the object. */
struct delta_span {
	uint64_t offset;
	uint64_t length;
	bool copy; /* copied from the same offset of the object that is replaced */
};
struct delta_plan {
	struct delta_span *spans;
	unsigned n;
	uint64_t sent;
};
/* Plans the parts that send the fewest bytes. All parts but the last have at least `least` bytes;
 * parts that are sent have less than twice `part` bytes, or one block. Fails only if out of
 * memory. */
int delta_plan(struct delta_plan *plan, const struct delta_sums *now,
	const struct delta_sums *earlier, uint64_t least, uint64_t part,
	struct penstock_error *err);
void delta_plan_release(struct delta_plan *plan);

#endif
