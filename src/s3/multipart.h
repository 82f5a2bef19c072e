/*
 * The arithmetic of multipart uploads. Sizes are in bytes; part numbers are 1 to LIMIT_S3_PARTS.
 */
#ifndef S3_MULTIPART_H
#define S3_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct penstock_error;

/*
 * Computes the part size for an object of `total` bytes: `wanted` (LIMIT_S3_PART_DEFAULT if 0) if
 * this size gives at most LIMIT_S3_PARTS parts, else the smallest multiple of 1 MiB that does. The
 * result is never below LIMIT_S3_PART_MIN or above LIMIT_S3_PART_MAX. Fails with PENSTOCK_E_LIMIT
 * if `total` exceeds the maximum size of an object.
 */
int multipart_part_size(
	uint64_t total, uint64_t wanted, uint64_t *part_size, struct penstock_error *err);

/* Returns the number of parts for `total` bytes; an empty object has one empty part. */
uint64_t multipart_count(uint64_t total, uint64_t part_size);
/* Part `number` covers [*offset, *offset + *length). Returns false if there is no such part. */
bool multipart_range(
	uint64_t total, uint64_t part_size, unsigned number, uint64_t *offset, uint64_t *length);

/*
 * Returns the size of part `number` for an upload of unknown length. The size starts at the default
 * and grows in steps, so that 10,000 parts reach LIMIT_S3_OBJECT_MAX, with little memory at the
 * beginning.
 */
uint64_t multipart_growing_size(unsigned number);

/* Formats the ETag "MD5-N", with quotes, where MD5 is the digest of the binary MD5 digests of all N
 * parts, in order. */
#define MULTIPART_ETAG_SIZE 48
int multipart_etag(const uint8_t (*part_md5)[16], size_t n, char out[static MULTIPART_ETAG_SIZE],
	struct penstock_error *err);

#endif
