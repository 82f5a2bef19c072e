/* ETags of objects that were uploaded in parts: "MD5 of the parts' MD5s-count", with most stores. */
#ifndef TRANSFER_PARTS_ETAG_H
#define TRANSFER_PARTS_ETAG_H

#include "s3/multipart.h"
#include "transfer/objects_internal.h"

/* The number behind the "-" of such an ETag; 0: it is another one. */
uint64_t parts_etag_count(const char *etag);
/* That of the first `size` bytes of a file in parts of `part` bytes. PENSTOCK_E_CHANGED: it is shorter. */
int parts_etag_of_file(int fd, uint64_t size, uint64_t part, const atomic_int *cancel,
	char out[static MULTIPART_ETAG_SIZE], struct penstock_error *err);
/* The size that all parts but the last have, as the store tells it; 0: it does not, or they have several. */
uint64_t parts_etag_part_size(struct object_client *client, const char *bucket, const char *key,
	const char *etag, uint64_t size, const atomic_int *cancel);

#endif
