/* Uploads that send only what differs from the object that they replace; put_delta.c has how. */
#ifndef TRANSFER_PUT_DELTA_H
#define TRANSFER_PUT_DELTA_H

#include "transfer/delta.h"

struct object_client;
struct object_info;
struct object_put_options;
struct part_slot;
struct penstock_error;
struct upload;

/* What the parts of one upload are. */
struct put_delta {
	const struct delta_plan *plan;
	const struct delta_sums *sums; /* of the file */
	const char *etag;	       /* of the object that is copied from */
	bool failed;		       /* whole, it may still be sent */
};

/* object_put_file() of a file that is worth it. */
int put_with_delta(struct object_client *client, const char *bucket, const char *key, int fd,
	uint64_t size, const struct object_put_options *options, struct object_info *info,
	struct penstock_error *err);

/* Of put_parts.c: a part that the store copies, and what came of it. */
int put_delta_copy_start(
	struct upload *u, struct part_slot *slot, unsigned number, struct penstock_error *err);
int put_delta_copy_collect(struct upload *u, struct part_slot *slot, struct penstock_error *err);

#endif
