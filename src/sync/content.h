/* The checksum of a file's content, as it is stored in the journal and the manifest. */
#ifndef SYNC_CONTENT_H
#define SYNC_CONTENT_H

#include <stdatomic.h>
#include <stdint.h>

struct penstock_error;

/* Computes the CRC-64 (ECMA, reflected) of the first `size` bytes of `fd`. Returns
 * -PENSTOCK_E_CHANGED if the file is shorter, and -PENSTOCK_E_CANCELLED if `*cancel` becomes
 * non-zero. `cancel` may be NULL. */
int content_crc64(
	const atomic_int *cancel, int fd, uint64_t size, uint64_t *crc, struct penstock_error *err);

#endif
