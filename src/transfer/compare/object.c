#include "transfer/compare/object.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "s3/multipart.h"
#include "transfer/get/parts.h"
#include "transfer/client/internal.h"
#include "transfer/get/parts_etag.h"

int compare_with_object(int fd, uint64_t size, struct object_ref at, const char *etag,
	const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op head = {0};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	uint8_t theirs[CHECKSUM_MAX_SIZE], ours[CHECKSUM_MAX_SIZE];
	char there[OBJECT_ETAG_SIZE], made[MULTIPART_ETAG_SIZE];
	uint64_t part;
	enum checksum_kind kind;
	int r = s3_op_head(&head, at, NULL, true, cancel, NULL, &own);

	if (r == -(int)PENSTOCK_E_NOT_FOUND)
		return 0;
	if (r < 0)
		return error_move(err, &own);
	object_etag_copy(there, http_reply_header(&head.reply, "ETag"));
	if (strcmp(there, etag) != 0 || head.reply.total_size != size)
		return 0;
	kind = object_reply_checksum(&head.reply, theirs);
	if (kind == CHECKSUM_NONE && object_reply_md5(&head.reply, theirs))
		kind = CHECKSUM_MD5;
	if (kind != CHECKSUM_NONE) {
		r = checksum_of_file(fd, kind, 0, size, cancel, ours, err);
		return r < 0 ? r : memcmp(ours, theirs, checksum_size(kind)) == 0;
	}
	kind = object_reply_part_checksum(&head.reply, there);
	r = kind == CHECKSUM_NONE ? 0
				  : get_parts_check(at, size, there, kind, fd, NULL, cancel, err);
	if (r == -(int)PENSTOCK_E_CORRUPT) {
		penstock_error_release(err);
		return 0;
	}
	if (r || object_reply_encrypted(&head.reply))
		return r;
	/* The object's ETag may be made of the parts' MD5s. */
	part = parts_etag_part_size(at, there, size, cancel);
	/* Not every store reports the part size. Most objects of a run have the part size that
	 * uploads choose. */
	if (!part && (multipart_part_size(size, 0, &part, NULL) < 0 ||
			     multipart_count(size, part) != parts_etag_count(there)))
		return 0;
	r = parts_etag_of_file(fd, size, part, parts_etag_count(there), cancel, made, err);
	return r < 0 ? r : strcmp(made, there) == 0;
}
