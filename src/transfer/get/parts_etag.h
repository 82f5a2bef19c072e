/*
 * ETags of objects that were uploaded in parts: "MD5 of the parts' MD5s-count", with most stores.
 */
#ifndef TRANSFER_GET_PARTS_ETAG_H
#define TRANSFER_GET_PARTS_ETAG_H

#include "s3/multipart.h"
#include "transfer/client/internal.h"

/* Returns the count of an ETag "MD5-count"; 0 for any other ETag. */
uint64_t parts_etag_count(const char *etag);
/* Computes the ETag of the first `size` bytes of a file in `count` parts of `part` bytes, of which
 * the last may be empty. */
int parts_etag_of_file(int fd, uint64_t size, uint64_t part, uint64_t count,
	const atomic_int *cancel, char out[static MULTIPART_ETAG_SIZE], struct penstock_error *err);
/* Extracts the MD5 in an ETag of one part, which is the MD5 of the whole object's MD5. Returns
 * false for any other ETag. */
bool parts_etag_of_one(const char *etag, uint8_t md5[static 16]);
/* Requests the size of the first part from the store. Returns 0 if the size is not known, or if
 * parts of this size do not make the object. */
uint64_t parts_etag_part_size(
	struct object_ref at, const char *etag, uint64_t size, const atomic_int *cancel);

/* An object that was uploaded in parts of the size `part`, with its ETag. */
struct parts_etag {
	struct object_ref at;
	const char *etag;
	uint64_t size, part;
	const atomic_int *cancel;
};
/*
 * Compares `own`, computed from the received bytes, with the object's ETag. After a mismatch the
 * sizes of the other parts are requested: if one of them differs, `own` proves nothing. The first
 * mismatch on a store proves nothing either, as the store's ETags may not be made of MD5s: after
 * PENSTOCK_E_CORRUPT the caller fetches the bytes once more, and only a result that differs from
 * the first one (`first`, kept by the caller, initially empty) means damage. Returns 0 if the bytes
 * are accepted.
 */
int parts_etag_judge(const struct parts_etag *of, const char *own,
	char first[static MULTIPART_ETAG_SIZE], struct penstock_error *err);
/* Raises PENSTOCK_E_CORRUPT. */
int parts_etag_mismatch(struct penstock_error *err);

/* Computes the ETag of an object in parts from a stream of bytes. */
struct parts_etag_sum {
	struct checksum md5; /* MD5 of the current part */
	uint64_t part, left; /* size of a part; bytes missing in the current part */
	uint8_t (*digests)[16];
	size_t n, room;
	bool failed; /* out of memory */
};
int parts_etag_sum_init(
	struct parts_etag_sum *sum, uint64_t part, uint64_t count, struct penstock_error *err);
void parts_etag_sum_update(struct parts_etag_sum *sum, const void *data, size_t len);
/* Ends the computation; the next byte starts a new one. */
int parts_etag_sum_final(struct parts_etag_sum *sum, char out[static MULTIPART_ETAG_SIZE],
	struct penstock_error *err);
void parts_etag_sum_release(struct parts_etag_sum *sum);

#endif
