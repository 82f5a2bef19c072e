/* ETags of objects that were uploaded in parts: "MD5 of the parts' MD5s-count", with most stores. */
#ifndef TRANSFER_PARTS_ETAG_H
#define TRANSFER_PARTS_ETAG_H

#include "s3/multipart.h"
#include "transfer/objects_internal.h"

/* The number behind the "-" of such an ETag; 0: it is another one. */
uint64_t parts_etag_count(const char *etag);
/* The checksum of some bytes of a file. PENSTOCK_E_CHANGED: it is shorter. */
int file_digest(int fd, enum checksum_kind kind, uint64_t offset, uint64_t length,
	const atomic_int *cancel, uint8_t digest[static CHECKSUM_MAX_SIZE],
	struct penstock_error *err);
/* The ETag of the first `size` bytes of a file in `count` parts of `part` bytes, of which the last may be empty. */
int parts_etag_of_file(int fd, uint64_t size, uint64_t part, uint64_t count,
	const atomic_int *cancel, char out[static MULTIPART_ETAG_SIZE], struct penstock_error *err);
/* The MD5 of the MD5 of the whole, where that is what it is made of: one part. */
bool parts_etag_of_one(const char *etag, uint8_t md5[static 16]);
/* The size that all parts but the last have, as the store tells it; 0: it does not, or they have several. */
uint64_t parts_etag_part_size(struct object_client *client, const char *bucket, const char *key,
	const char *etag, uint64_t size, const atomic_int *cancel);

/*
 * What to make of `own`, which the bytes that came would have, beside the object's `etag`. The first one of a store that
 * does not fit is no proof, as it may be made of something else: PENSTOCK_E_CORRUPT asks for the bytes once more, and only
 * others than before (`first`, which the caller keeps, empty to begin with) were damaged. 0: they count as the object's.
 */
int parts_etag_judge(struct object_client *client, const char *etag, const char *own,
	char first[static MULTIPART_ETAG_SIZE], struct penstock_error *err);

/* That of bytes that come one after the other. */
struct parts_etag_sum {
	struct checksum md5; /* of the part under way */
	uint64_t part, left; /* sizes: of a part, of what is missing of this one */
	uint8_t (*digests)[16];
	size_t n, room;
	bool failed; /* no memory */
};
int parts_etag_sum_init(
	struct parts_etag_sum *sum, uint64_t part, uint64_t count, struct penstock_error *err);
void parts_etag_sum_update(struct parts_etag_sum *sum, const void *data, size_t len);
/* Ends it; it begins anew with the next byte. */
int parts_etag_sum_final(struct parts_etag_sum *sum, char out[static MULTIPART_ETAG_SIZE],
	struct penstock_error *err);
void parts_etag_sum_release(struct parts_etag_sum *sum);

#endif
