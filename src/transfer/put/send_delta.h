/* Uploads that send only the difference from the object that they replace; see delta.h. */
#ifndef TRANSFER_PUT_SEND_DELTA_H
#define TRANSFER_PUT_SEND_DELTA_H

#include "transfer/put/delta.h"

struct object_ref;
struct object_info;
struct object_put_options;
struct part_slot;
struct penstock_error;
struct upload;

/* The parts of one upload. */
struct put_delta {
	const struct delta_plan *plan;
	const struct delta_sums *sums; /* block sums of the file */
	const char *etag; /* ETag of the object that parts are copied from */
	bool failed; /* sending the whole file may still succeed */
};

/* Does the work of object_put_file() for a large file with `delta_dir`. */
int put_with_delta(struct object_ref at, int fd, uint64_t size,
	const struct object_put_options *options, struct object_info *info,
	struct penstock_error *err);

/* Called by parts.c: put_copy_part() makes the request of a part a copy by the store,
 * put_copy_collect() takes the result. */
void put_copy_part(const struct upload *u, struct part_slot *slot);
int put_copy_collect(struct upload *u, struct part_slot *slot, struct penstock_error *err);

#endif
