/* Whether a file holds what an object has. */
#ifndef TRANSFER_COMPARE_OBJECT_H
#define TRANSFER_COMPARE_OBJECT_H

#include <stdatomic.h>
#include <stdint.h>

struct object_client;
struct penstock_error;

/*
 * Whether the first `size` bytes of `fd` are those of the object with this ETag: by the checksums that its store tells, else by
 * its ETag. A request or two. 1: they are; 0: they are not, nobody can tell, or it is not there any more; negative: an error.
 */
int compare_with_object(int fd, uint64_t size, struct object_client *client, const char *bucket,
	const char *key, const char *etag, const atomic_int *cancel, struct penstock_error *err);

#endif
