/* Uploads a file: the difference from the object that it replaces, or all of it. */
#include "transfer/put/internal.h"
#include "transfer/put/send_delta.h"

#include "base/limits.h"

int object_put_file(struct object_ref at, int fd, uint64_t size,
	const struct object_put_options *options, struct object_info *info,
	struct penstock_error *err)
{
	const struct object_put_options *o = options ? options : &(struct object_put_options){0};

	if (o->delta_dir && size > LIMIT_DELTA_MIN && !put_needs_one_request(at.client, o))
		return put_with_delta(at, fd, size, o, info, err);
	return put_file(at, fd, size, o, info, err);
}
