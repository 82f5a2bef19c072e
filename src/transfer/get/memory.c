/* Downloads objects to memory. */
#include <inttypes.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "transfer/get/parts.h"
#include "transfer/client/internal.h"
#include "transfer/get/parts_etag.h"

struct memory_get {
	struct object_ref at;
	const struct object_get_options *options;
	bool ranged;
	/* The ETag computed from the bytes of the first attempt, if that ETag did not match. */
	char own_etag[MULTIPART_ETAG_SIZE];
};

/* Verifies a multipart object without checksums by its ETag, which is usually made of the parts'
 * MD5s. */
static int verify_etag(struct memory_get *g, const struct object_info *of, const char *data,
	struct penstock_error *err)
{
	_cleanup_(parts_etag_sum_release) struct parts_etag_sum sum = {0};
	char own[MULTIPART_ETAG_SIZE];
	uint64_t count = parts_etag_count(of->etag), part = of->size;
	int r;

	if (!count || !of->size || g->at.client->google || atomic_load(&g->at.client->odd_etags))
		return 0;
	if (count > 1)
		part = parts_etag_part_size(g->at, of->etag, of->size, g->options->cancel);
	if (!part)
		return 0;
	r = parts_etag_sum_init(&sum, part, count, err);
	if (r == 0) {
		parts_etag_sum_update(&sum, data, of->size);
		r = parts_etag_sum_final(&sum, own, err);
	}
	if (r < 0)
		return r;
	return parts_etag_judge(
		&(struct parts_etag){g->at, of->etag, of->size, part, g->options->cancel}, own,
		g->own_etag, err);
}

static int verify_memory(struct memory_get *g, const struct s3_op *op, const char *data, size_t len,
	struct penstock_error *err)
{
	struct object_info of = {.size = len};
	uint8_t stored[CHECKSUM_MAX_SIZE];
	uint8_t got[CHECKSUM_MAX_SIZE];
	enum checksum_kind kind = object_reply_digest(&op->reply, stored);
	int r = 0;

	if (kind != CHECKSUM_NONE) {
		if (checksum_of(kind, data, len, got, err) < 0)
			return -(int)PENSTOCK_E_MEMORY;
		if (memcmp(stored, got, checksum_size(kind)) == 0)
			return 0;
		return object_corrupt(op->at, kind, err);
	}
	if (!object_response_checksums())
		return 0;
	object_etag_copy(of.etag, http_reply_header(&op->reply, "ETag"));
	kind = object_reply_part_checksum(&op->reply, of.etag);
	if (kind != CHECKSUM_NONE)
		r = get_parts_check(op->at, len, of.etag, kind, -1, data, g->options->cancel, err);
	if (r == 0 && !object_reply_encrypted(&op->reply))
		r = verify_etag(g, &of, data, err);
	return r < 0 ? error_prefix(err, "%s", op->what) : 0;
}

static int get_once(
	struct memory_get *g, struct buf *out, struct object_info *info, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	struct object_info found = {0};
	const struct object_get_options *o = g->options;
	size_t start = out->len;
	int r;

	s3_op_init(&op, "GET", g->at);
	s3_op_cancel(&op, o->cancel);
	s3_op_header(&op, "if-match", o->if_match);
	if (!g->ranged && object_response_checksums())
		s3_op_header(&op, "x-amz-checksum-mode", "ENABLED");
	op.request.sink = (struct http_sink)HTTP_SINK_TO_BUF(out);
	op.request.range = (struct http_range){
		.wanted = g->ranged, .offset = o->offset, .length = o->length};
	op.request.on_headers = s3_op_check_etag;
	r = s3_op_perform(&op, err);
	if (r == 0 && o->length && out->len - start > o->length)
		r = error_set(err, PENSTOCK_E_PROTOCOL, "%s: received %zu bytes of %" PRIu64,
			op.what, out->len - start, o->length);
	if (r == 0 && !g->ranged)
		r = verify_memory(g, &op, buf_str(out) + start, out->len - start, err);
	if (r == 0)
		r = object_info_from_reply(&op.reply, &found, err);
	if (r < 0) {
		if (out->len > start)
			buf_truncate(out, start);
		return object_info_pass(r, &found, NULL);
	}
	if (o->progress)
		o->progress(o->cookie, (int64_t)(out->len - start));
	return object_info_pass(0, &found, info);
}

int object_get(struct object_ref at, const struct object_get_options *options, struct buf *out,
	struct object_info *info, struct penstock_error *err)
{
	const struct object_get_options *o = options ? options : &(struct object_get_options){0};
	struct memory_get g = {.at = at, .options = o, .ranged = o->offset || o->length};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r = get_once(&g, out, info, &own);

	/* Try again: bytes damaged in flight may arrive intact the next time. */
	if (r == -(int)PENSTOCK_E_CORRUPT) {
		log_debug("%s; fetching it again", own.message);
		penstock_error_release(&own);
		r = get_once(&g, out, info, &own);
	}
	return r < 0 ? error_move(err, &own) : 0;
}
