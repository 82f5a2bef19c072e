/*
 * The store's checksum of each part of a multipart object, so that a damaged part is found and
 * fetched again as soon as it has arrived.
 *
 *	get_parts_learn(&parts, at, size, etag, kind, cancel);
 *	while ((part = get_parts_within(&parts, &i, offset, length)))
 *		... compare part->digest
 *	get_parts_release(&parts);
 */
#ifndef TRANSFER_GET_PARTS_H
#define TRANSFER_GET_PARTS_H

#include "transfer/client/internal.h"

struct get_part_sum {
	uint64_t offset;
	uint64_t length;
	uint8_t digest[8];
};

struct get_parts {
	struct get_part_sum *parts;
	unsigned n; /* 0 if unknown */
};

/* Fetches the parts' checksums (a CRC of `kind`) of the object with this size and ETag. Leaves
 * `parts` empty if the store keeps none or the request fails, because the object can be fetched
 * without them. */
void get_parts_learn(struct get_parts *parts, struct object_ref at, uint64_t size, const char *etag,
	enum checksum_kind kind, const atomic_int *cancel);
/* Compares the bytes of a file, or `data` if not NULL, with the parts' checksums. Returns 1 if all
 * parts match, 0 if the checksums are not known, or a negative code: -PENSTOCK_E_CORRUPT if a part
 * does not match. */
int get_parts_check(struct object_ref at, uint64_t size, const char *etag, enum checksum_kind kind,
	int fd, const char *data, const atomic_int *cancel, struct penstock_error *err);
void get_parts_release(struct get_parts *parts);
/* Raises PENSTOCK_E_CORRUPT: the bytes of part `number` have another checksum. */
int get_part_damaged(const struct get_part_sum *part, unsigned number, enum checksum_kind kind,
	struct penstock_error *err);
/* Returns the next part, from index *i on, that lies completely between `offset` and `offset +
 * length`, and sets *i to the index after it. Returns NULL at the end. */
const struct get_part_sum *get_parts_within(
	const struct get_parts *parts, unsigned *i, uint64_t offset, uint64_t length);

#endif
