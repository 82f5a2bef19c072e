/* Checksums of the content of a file. */
#ifndef SYNC_CONTENT_H
#define SYNC_CONTENT_H

#include <stdatomic.h>
#include <stdint.h>

struct penstock_error;

/* CRC-64 (ECMA, reflected), and MD5, of the first `size` bytes. Returns -PENSTOCK_E_CHANGED if the
 * file is shorter. `cancel` (may be NULL) ends it. */
int content_crc64(
	const atomic_int *cancel, int fd, uint64_t size, uint64_t *crc, struct penstock_error *err);
int content_md5(const atomic_int *cancel, int fd, uint64_t size, unsigned char md5[static 16],
	struct penstock_error *err);

#endif
