/* The checksum of the content of a file that the journal and the manifest hold. */
#ifndef SYNC_CONTENT_H
#define SYNC_CONTENT_H

#include <stdatomic.h>
#include <stdint.h>

struct penstock_error;

/* CRC-64 (ECMA, reflected) of the first `size` bytes. Returns -PENSTOCK_E_CHANGED if the file is
 * shorter. `cancel` (may be NULL) ends it. */
int content_crc64(
	const atomic_int *cancel, int fd, uint64_t size, uint64_t *crc, struct penstock_error *err);

#endif
