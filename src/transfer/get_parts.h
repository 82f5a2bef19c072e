/*
 * What the store says of each part of an object that was uploaded in parts: so a damaged one is found, and fetched
 * again, as soon as it is there.
 *
 *	get_parts_learn(&parts, client, bucket, key, info, kind, cancel);
 *	while ((part = get_parts_within(&parts, &i, offset, length)))	compare part->digest
 *	get_parts_release(&parts);
 */
#ifndef TRANSFER_GET_PARTS_H
#define TRANSFER_GET_PARTS_H

#include "transfer/objects_internal.h"

struct get_part_sum {
	uint64_t offset;
	uint64_t length;
	uint8_t digest[8];
};

struct get_parts {
	struct get_part_sum *parts;
	unsigned n; /* 0: nothing is known */
};

/*
 * Asks for the parts' checksums (a CRC of `kind`). Stores that keep none, or do not tell, leave it empty: so does
 * whatever goes wrong, since the object can be had without them.
 */
void get_parts_learn(struct get_parts *parts, struct object_client *client, const char *bucket,
	const char *key, const struct object_info *of, enum checksum_kind kind,
	const atomic_int *cancel);
void get_parts_release(struct get_parts *parts);
/* PENSTOCK_E_CORRUPT: the bytes of part `number` have another checksum. */
int get_part_damaged(const struct get_part_sum *part, unsigned number, enum checksum_kind kind,
	struct penstock_error *err);
/* The next part, from index *i on, that lies whole between `offset` and `offset + length`; NULL: none. */
const struct get_part_sum *get_parts_within(
	const struct get_parts *parts, unsigned *i, uint64_t offset, uint64_t length);

#endif
