/* Sends an object as another store has it, with the same headers, parts and checksums. */
#include "transfer/put/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/message/messages.h"

/* A body up to this size is read at once and sent with its headers. */
#define SMALL_MAX (64 * KIB)

/* The object, or a part of it, while it is sent. */
struct range {
	const struct object_exact *object;
	uint64_t offset, length;
	uint64_t sent;
	char *small; /* owned */
};

static void range_release(struct range *range)
{
	free(range->small);
}

static ssize_t range_read(void *cookie, void *data, size_t size, struct penstock_error *err)
{
	struct range *range = cookie;
	const struct object_exact *o = range->object;
	uint64_t left = range->length - range->sent;
	ssize_t n = o->read(o->cookie, range->offset + range->sent, data,
		size < left ? size : (size_t)left, err);

	if (n > 0)
		range->sent += (uint64_t)n;
	return n;
}

static int range_rewind(void *cookie)
{
	((struct range *)cookie)->sent = 0;
	return 0;
}

static int range_attach(struct s3_op *op, struct range *range, struct penstock_error *err)
{
	if (range->length > SMALL_MAX) {
		op->payload_hash = SIGV4_UNSIGNED_PAYLOAD;
		op->request.bulk = true;
		op->request.source = (struct http_source){.kind = HTTP_SOURCE_CALLBACK,
			.length = range->length,
			.read = range_read,
			.rewind = range_rewind,
			.cookie = range};
		return 0;
	}
	range->small = malloc((size_t)range->length + 1);
	if (!range->small)
		return error_memory(err);
	while (range->sent < range->length) {
		ssize_t n = range_read(range, range->small + range->sent, SMALL_MAX, err);

		if (n < 0)
			return (int)n;
		if (n == 0)
			return error_set(err, PENSTOCK_E_CORRUPT,
				"the object has fewer bytes than its size");
	}
	s3_op_body(op, range->small, (size_t)range->length);
	return 0;
}

/* Adds the checksum, or the MD5 for a store without checksums. */
static void add_sum(struct s3_op *op, enum checksum_kind kind, const char *checksum,
	const char *md5, enum guard guard)
{
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char text[CHECKSUM_TEXT_SIZE];

	if (guard != GUARD_MD5 && kind && checksum && *checksum) {
		s3_op_header(op, checksum_header(kind), checksum);
	} else if (md5 && strlen(md5) == 32 && str_unhex(md5, digest, 16) == 0) {
		checksum_format(CHECKSUM_MD5, digest, text);
		s3_op_header(op, "content-md5", text);
	}
}

/* Sends the bytes of an object or a part; `op` has the rest of the request. */
static int send_range(struct s3_op *op, struct range *range, struct penstock_error *err)
{
	int r = range_attach(op, range, err);

	if (r < 0)
		return r;
	op->request.on_headers = s3_op_check_etag;
	return s3_op_perform(op, err);
}

static int send_whole(struct object_ref at, const struct object_exact *o, enum guard guard,
	bool *refused, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	_cleanup_(range_release) struct range range = {.object = o, .length = o->size};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;

	s3_op_init(&op, "PUT", at);
	put_pairs(&op, "", o->headers);
	add_sum(&op, o->kind, o->checksum, o->etag, guard);
	if (send_range(&op, &range, &own) == 0)
		return 0;
	*refused = put_guard_refused(&op, &own);
	return error_move(err, &own);
}

/* --- in parts -------------------------------------------------------------------------------- */

static int begin(struct object_ref at, const struct object_exact *o, enum guard guard, char **id,
	bool *refused, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;

	s3_op_init(&op, "POST", at);
	s3_op_query(&op, "uploads", NULL);
	put_pairs(&op, "", o->headers);
	if (guard != GUARD_MD5 && o->kind) {
		s3_op_header(&op, "x-amz-checksum-algorithm", checksum_name(o->kind));
		s3_op_header(
			&op, "x-amz-checksum-type", o->composite ? "COMPOSITE" : "FULL_OBJECT");
	}
	s3_op_body(&op, NULL, 0);
	if (s3_op_upload_id(&op, id, &own) == 0)
		return 0;
	*refused = put_guard_refused(&op, &own);
	return error_move(err, &own);
}

static int send_part(struct object_ref at, const char *id, struct range *range, size_t i,
	enum guard guard, char etag[static OBJECT_ETAG_SIZE], struct penstock_error *err)
{
	const struct object_exact *o = range->object;
	_cleanup_(s3_op_release) struct s3_op op = {0};
	char number[16];
	int r;

	s3_op_init(&op, "PUT", at);
	snprintf(number, sizeof(number), "%u", o->parts[i].number);
	s3_op_query(&op, "partNumber", number);
	s3_op_query(&op, "uploadId", id);
	add_sum(&op, o->kind, o->parts[i].checksum, o->parts[i].etag, guard);
	r = send_range(&op, range, err);
	if (r == 0)
		object_etag_copy(etag, http_reply_header(&op.reply, "ETag"));
	return r;
}

static int complete(struct object_ref at, const struct object_exact *o, const char *id,
	const struct s3_complete *parts, enum guard guard, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	_cleanup_(s3_reply_release) struct s3_reply reply = {0};
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	char size[24];
	int r;

	s3_complete_write(&xml, parts);
	s3_op_init(&op, "POST", at);
	s3_op_query(&op, "uploadId", id);
	s3_op_xml(&op, &xml, "the list of parts");
	if (guard != GUARD_MD5 && o->kind) {
		snprintf(size, sizeof(size), "%" PRIu64, o->size);
		s3_op_header(&op, checksum_header(o->kind), o->checksum);
		s3_op_header(
			&op, "x-amz-checksum-type", o->composite ? "COMPOSITE" : "FULL_OBJECT");
		s3_op_header(&op, "x-amz-mp-object-size", size);
	}
	op.request.stall_timeout_ms = PUT_STALL_MS;
	r = s3_op_read(&op, s3_reply_parse, &reply, err);
	if (r == 0 && reply.kind != S3_REPLY_COMPLETE)
		r = error_set(err, PENSTOCK_E_PROTOCOL,
			"%s: the store did not confirm the complete upload", op.what);
	return r;
}

static int send_parts(struct object_ref at, const struct object_exact *o, const char *id,
	enum guard guard, struct penstock_error *err)
{
	_cleanup_free_ struct s3_part *parts = calloc(o->n_parts, sizeof(*parts));
	_cleanup_free_ char(*etags)[OBJECT_ETAG_SIZE] = calloc(o->n_parts, sizeof(*etags));
	uint64_t offset = 0;
	int r = parts && etags ? 0 : error_memory(err);

	for (size_t i = 0; r == 0 && i < o->n_parts; i++) {
		_cleanup_(range_release) struct range range = {
			.object = o, .offset = offset, .length = o->parts[i].size};

		r = send_part(at, id, &range, i, guard, etags[i], err);
		parts[i] = (struct s3_part){.number = o->parts[i].number, .etag = etags[i]};
		if (guard != GUARD_MD5 && o->kind)
			parts[i].checksums[o->kind] = o->parts[i].checksum;
		offset += o->parts[i].size;
	}
	return r < 0 ? r
		     : complete(at, o, id, &(struct s3_complete){.parts = parts, .n = o->n_parts},
			       guard, err);
}

static int send_in_parts(struct object_ref at, const struct object_exact *o, enum guard guard,
	bool *refused, struct penstock_error *err)
{
	_cleanup_free_ char *id = NULL;
	int r = begin(at, o, guard, &id, refused, err);

	if (r < 0)
		return r;
	r = send_parts(at, o, id, guard, err);
	if (r < 0)
		object_abort_upload(at, id, NULL);
	return r;
}

/* --- the whole object ------------------------------------------------------------------------ */

int object_put_exact(
	struct object_ref at, const struct object_exact *object, struct penstock_error *err)
{
	int (*send)(struct object_ref at, const struct object_exact *o, enum guard guard,
		bool *refused, struct penstock_error *err) = object->n_parts ? send_in_parts
									     : send_whole;
	enum guard guard = (enum guard)atomic_load(&at.client->guard);
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	bool refused = false;
	int r = send(at, object, guard, &refused, &own);

	if (r == 0 || !refused || guard == GUARD_MD5 || !object->kind)
		return r < 0 ? error_move(err, &own) : 0;
	penstock_error_release(&own);
	r = send(at, object, GUARD_MD5, &refused, &own);
	if (r == 0) /* only this success shows that the store refused the checksum */
		atomic_store(&at.client->guard, GUARD_MD5);
	return r < 0 ? error_move(err, &own) : 0;
}

int object_delete_exact(
	struct object_ref at, const struct strlist *headers, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};

	s3_op_init(&op, "DELETE", at);
	put_pairs(&op, "", headers);
	return s3_op_perform(&op, err);
}

int object_put_document(
	struct object_ref at, const char *sub, const struct buf *xml, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	uint8_t md5[CHECKSUM_MAX_SIZE];
	char text[CHECKSUM_TEXT_SIZE];

	s3_op_init(&op, xml ? "PUT" : "DELETE", at);
	s3_op_query(&op, sub, NULL);
	if (xml && checksum_of(CHECKSUM_MD5, xml->data, xml->len, md5, &op.failed) == 0) {
		s3_op_xml(&op, xml, sub);
		checksum_format(CHECKSUM_MD5, md5, text);
		s3_op_header(&op, "content-md5", text);
	}
	return s3_op_perform(&op, err);
}
