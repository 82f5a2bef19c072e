/* Parts that the store copies: from another object, or from the object that is replaced. */
#include "transfer/put/send_delta.h"
#include <string.h>
#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "s3/message/messages.h"
#include "s3/range.h"
#include "transfer/put/parts.h"

void put_copy_part(const struct upload *u, struct part_slot *slot)
{
	struct s3_op *op = &slot->put.op;
	uint64_t first = slot->body.offset;
	char text[RANGE_TEXT_SIZE];

	range_format_request(&(struct byte_range){first, first + slot->body.length - 1}, text);
	s3_op_copy_source(op, u->from, u->from_etag);
	s3_op_header(op, "x-amz-copy-source-range", text);
	s3_op_body(op, NULL, 0);
	s3_op_wants_document(op);
	op->request.stall_timeout_ms = PUT_STALL_MS;
}

/*
 * Verifies that the store copied the bytes that the file has: some stores ignore the condition on
 * the source. Uses the part's checksum in the reply, else its ETag; stores known to verify the
 * checksum of the whole object need no check of the part.
 */
static int verify_copy(struct upload *u, const struct part_slot *slot, struct part_result *result,
	const char *checksum, struct penstock_error *err)
{
	enum put_sum sum;
	bool right;

	delta_crc(u->delta->sums, slot->body.offset, slot->body.length, result->digest);
	sum = u->guard == GUARD_MD5 ? PUT_SUM_UNKNOWN
				    : put_compare_sum(u->at.client, checksum, result->digest);
	if (sum != PUT_SUM_UNKNOWN) {
		right = sum == PUT_SUM_SAME;
		if (strlen(checksum) < sizeof(result->checksum))
			memcpy(result->checksum, checksum, strlen(checksum) + 1);
	} else {
		right = (u->guard != GUARD_MD5 &&
				(u->at.client->aws || atomic_load(&u->at.client->own_kind))) ||
			put_body_has_md5(&slot->body, result->etag);
	}
	return right ? 0
		     : error_set(err, PENSTOCK_E_CORRUPT,
			       "%s: the bytes that the store copied differ from the file",
			       slot->put.op.what);
}

int put_copy_collect(struct upload *u, struct part_slot *slot, struct penstock_error *err)
{
	struct part_result *result = &u->results[slot->number - 1];
	const struct s3_op *op = &slot->put.op;
	_cleanup_(s3_reply_release) struct s3_reply reply = {0};
	int r;

	result->length = slot->body.length;
	if (u->delta)
		u->delta->failed |= slot->uncopied;
	if (slot->failed)
		return 0;
	r = s3_reply_parse(op->document.data, op->document.len, &reply, err);
	if (r < 0)
		error_prefix(err, "%s", op->what);
	else if (reply.kind != S3_REPLY_COPY_PART || !reply.etag || !*reply.etag)
		r = error_set(err, PENSTOCK_E_PROTOCOL,
			"%s: the store did not confirm the copied part", op->what);
	else
		object_etag_copy(result->etag, reply.etag);
	if (r == 0 && u->delta)
		r = verify_copy(u, slot, result, reply.checksums[u->at.client->guard_kind], err);
	if (r < 0 && u->delta)
		u->delta->failed = true;
	if (r == 0 && slot->body.progress)
		slot->body.progress(slot->body.cookie, (int64_t)slot->body.length);
	return r;
}
