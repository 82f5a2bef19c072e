/* The xxHashes of S3, without a seed. Internal to src/s3/sum. */
#ifndef S3_SUM_XXH_H
#define S3_SUM_XXH_H

#include "s3/sum/checksum.h"

/* Returns the initial state of a hash; free() it. Returns NULL if out of memory. `kind` is
 * CHECKSUM_XXHASH64, CHECKSUM_XXHASH3 or CHECKSUM_XXHASH128. */
void *xxh_new(enum checksum_kind kind);
void xxh_reset(enum checksum_kind kind, void *state);
void xxh_update(enum checksum_kind kind, void *state, const void *data, size_t len);
/* Writes checksum_size(kind) bytes, big endian. */
void xxh_final(enum checksum_kind kind, const void *state, uint8_t *digest);

#endif
