/*
 * What the files behind object_get_file() share: a download, and the ways its bytes come (get_ranges.c). What is fetched,
 * and what becomes of it, is get.c's.
 */
#ifndef TRANSFER_GET_INTERNAL_H
#define TRANSFER_GET_INTERNAL_H

#include "s3/multipart.h"
#include "transfer/get_journal.h"
#include "transfer/get_parts.h"
#include "transfer/get_writer.h"
#include "transfer/objects_internal.h"

struct range_slot;

struct download {
	struct object_client *client;
	const char *bucket;
	const char *key;
	const struct object_get_options *options;
	uint64_t from; /* the object's byte that is the file's first */
	uint64_t size; /* of the file */
	char etag[OBJECT_ETAG_SIZE];
	enum checksum_kind kind; /* of the whole object; NONE: nothing to compare with */
	uint8_t wanted[CHECKSUM_MAX_SIZE];
	struct get_part part;
	struct get_blocks blocks; /* of what comes in ranges */
	enum checksum_kind
		part_kind; /* of the parts; NONE: it is not in parts, or they have none to be combined */
	struct get_parts parts; /* filled by the calling thread, then read by the engine's, too */
	atomic_bool parts_known;
	bool parts_checked; /* the file has their checksums */
	bool encrypted;	    /* under a key: the ETag is not made of the bytes */
	struct range_slot *slots;
	unsigned n_slots;
	struct get_writer *writer; /* of what comes in ranges; NULL: the engine's thread writes */
	bool refetching;	   /* changes while nothing is on its way */
	struct fan fan;
	struct object_info info;
	char own_etag[MULTIPART_ETAG_SIZE]; /* what the bytes of the first try would have */
};

/* In one GET. The size may be unknown (HTTP_LENGTH_UNKNOWN). */
int download_whole(struct download *d, bool ranged, struct penstock_error *err);
/* In parallel ranges; the size is known. PENSTOCK_E_UNSUPPORTED: the store has none. */
int download_ranges(struct download *d, struct penstock_error *err);
/* If-Match that fails on an object whose ETag we were told: it was replaced meanwhile. Returns the error's code. */
int download_replaced(const struct download *d, struct penstock_error *err);

#endif
