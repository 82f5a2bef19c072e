/* Compares a file with an object. */
#ifndef TRANSFER_COMPARE_OBJECT_H
#define TRANSFER_COMPARE_OBJECT_H

#include <stdatomic.h>
#include <stdint.h>

struct object_ref;
struct penstock_error;

/*
 * Compares the first `size` bytes of `fd` with the object with this ETag: by the store's checksums,
 * else by the ETag. Sends a few requests. Returns 1 if the bytes are the same; 0 if they differ or
 * cannot be compared, or if the object does not exist or has another ETag; or a negative error.
 */
int compare_with_object(int fd, uint64_t size, struct object_ref at, const char *etag,
	const atomic_int *cancel, struct penstock_error *err);

#endif
