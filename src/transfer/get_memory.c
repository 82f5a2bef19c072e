/* Objects to memory. */
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "transfer/objects_internal.h"
#include "base/banned.h"

static int get_init(struct s3_op *op, struct object_client *client, const char *bucket,
	const char *key, const struct object_get_options *options, struct penstock_error *err)
{
	int r = s3_op_init(op, client, "GET", bucket, key, err);

	if (r < 0)
		return r;
	s3_op_cancel(op, options->cancel);
	return s3_op_header(op, "if-match", options->if_match, err);
}

static int verify_memory(
	const struct s3_op *op, const char *data, size_t len, struct penstock_error *err)
{
	uint8_t stored[CHECKSUM_MAX_SIZE];
	uint8_t got[CHECKSUM_MAX_SIZE];
	enum checksum_kind kind = object_reply_digest(&op->reply, stored);

	if (kind == CHECKSUM_NONE)
		return 0;
	if (checksum_of(kind, data, len, got, err) < 0)
		return -(int)PENSTOCK_E_MEMORY;
	if (memcmp(stored, got, checksum_size(kind)) == 0)
		return 0;
	return error_set(err, PENSTOCK_E_CORRUPT,
		"%s: the bytes do not have the stored checksum (%s)", op->what,
		kind == CHECKSUM_MD5 ? "MD5" : checksum_name(kind));
}

static int memory_headers(void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	return s3_op_check_etag(cookie, reply, err);
}

static int get_once(struct object_client *client, const char *bucket, const char *key,
	const struct object_get_options *o, struct buf *out, struct object_info *info,
	struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	_cleanup_(object_info_release) struct object_info found = {0};
	bool ranged = o->offset || o->length;
	size_t start = out->len;
	int r = get_init(&op, client, bucket, key, o, err);

	if (r == 0 && !ranged && object_response_checksums())
		r = s3_op_header(&op, "x-amz-checksum-mode", "ENABLED", err);
	if (r < 0)
		return r;
	op.request.sink = (struct http_sink)HTTP_SINK_TO_BUF(out);
	op.request.range = (struct http_range){
		.wanted = ranged, .offset = o->offset, .length = o->length};
	op.request.on_headers = memory_headers;
	r = s3_op_perform(&op, err);
	if (r == 0 && !ranged)
		r = verify_memory(&op, out->data + start, out->len - start, err);
	if (r == 0)
		r = object_info_from_reply(&op.reply, &found, err);
	if (r < 0) {
		if (out->len > start)
			buf_truncate(out, start);
		return r;
	}
	if (o->progress)
		o->progress(o->cookie, (int64_t)(out->len - start));
	if (info) {
		*info = found;
		found = (struct object_info){0};
	}
	return 0;
}

int object_get(struct object_client *client, const char *bucket, const char *key,
	const struct object_get_options *options, struct buf *out, struct object_info *info,
	struct penstock_error *err)
{
	static const struct object_get_options none;
	const struct object_get_options *o = options ? options : &none;
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r = get_once(client, bucket, key, o, out, info, &own);

	/* Once more: what was damaged on its way may come whole the next time. */
	if (r == -(int)PENSTOCK_E_CORRUPT) {
		log_debug("%s; fetched again", own.message);
		penstock_error_release(&own);
		r = get_once(client, bucket, key, o, out, info, &own);
	}
	return r < 0 ? error_move(err, &own) : 0;
}
