/*
 * Shared by the files that implement object_get_file(): a download, and the two ways to fetch its
 * bytes (ranges.c). get.c decides what to fetch, and verifies and publishes the file.
 */
#ifndef TRANSFER_GET_INTERNAL_H
#define TRANSFER_GET_INTERNAL_H

#include "s3/multipart.h"
#include "transfer/get/journal.h"
#include "transfer/get/parts.h"
#include "transfer/get/writer.h"
#include "transfer/client/internal.h"

struct range_slot;

struct download {
	struct object_ref at;
	const struct object_get_options *options;
	uint64_t from; /* the object's byte at the file's offset 0 */
	uint64_t size; /* size of the file */
	char etag[OBJECT_ETAG_SIZE];
	enum checksum_kind kind; /* checksum of the whole object; CHECKSUM_NONE if there is none */
	uint8_t wanted[CHECKSUM_MAX_SIZE];
	struct get_part part;
	struct get_blocks blocks; /* blocks of a download in ranges */
	/* checksum of each part; CHECKSUM_NONE if the object is in one piece, or if the checksums
	 * of its parts cannot be combined */
	enum checksum_kind part_kind;
	/* filled by the calling thread, then also read by the engine's thread */
	struct get_parts parts;
	atomic_bool parts_known;
	bool parts_checked; /* the file was verified against the parts' checksums */
	bool encrypted; /* encrypted under a key, so the ETag is not made of the bytes */
	struct range_slot *slots;
	unsigned n_slots;
	/* writes a download in ranges; NULL if the engine's thread writes */
	struct get_writer *writer;
	/* damaged parts are fetched again; changes only while nothing is in flight */
	bool refetching;
	struct fan fan;
	struct object_info info;
	/* the ETag computed from the bytes of the first attempt, if that ETag did not match */
	char own_etag[MULTIPART_ETAG_SIZE];
};

/* Fetches in one GET. The size may be unknown (HTTP_LENGTH_UNKNOWN). */
int download_whole(struct download *d, bool ranged, struct penstock_error *err);
/* Fetches in parallel ranges; the size is known. Fails with PENSTOCK_E_UNSUPPORTED if the store
 * does not support ranges. */
int download_ranges(struct download *d, struct penstock_error *err);
/* Handles an If-Match that failed on a known ETag: the object was replaced meanwhile. Returns the
 * error's code. */
int download_replaced(const struct download *d, struct penstock_error *err);

#endif
