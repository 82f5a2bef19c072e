/* A small object is copied by its store, in one request. */
#include "transfer/bulk_flight.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "net/http.h"
#include "s3/messages.h"
#include "base/banned.h"

/* The store moves the bytes before it answers. */
#define COPY_STALL_MS (2 * 60 * 1000)

int bulk_copy_prepare(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err)
{
	struct bulk_task *task = f->task;
	const struct bulk_item *item = &task->item;
	struct s3_op *op = &f->put.op;
	int r;

	if (item->from_client != item->to_client || !item->known || !task->known.etag[0] ||
		task->known.size > LIMIT_PUT_SINGLE || task->bulk->put.storage_class ||
		task->bulk->put.content_type || task->bulk->put.metadata) {
		*way = BULK_ASIDE;
		return 0;
	}
	r = s3_op_init(op, item->to_client, "PUT", item->to_bucket, item->to_key, err);
	if (r == 0)
		r = s3_op_copy_source(op, item->from_bucket, item->from_key, err);
	if (r == 0)
		r = s3_op_header(op, "x-amz-copy-source-if-match", task->known.etag, err);
	if (r == 0)
		r = s3_op_body(op, NULL, 0, err);
	if (r < 0)
		return r;
	s3_op_wants_document(op);
	op->request.stall_timeout_ms = COPY_STALL_MS;
	return 0;
}

int bulk_copy_land(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err)
{
	struct bulk_task *task = f->task;
	struct s3_op *op = &f->put.op;
	struct object_client *client = task->item.from_client;
	_cleanup_(s3_reply_release) struct s3_reply reply = {0};
	uint8_t md5[16];
	int r = s3_reply_parse(op->document.data, op->document.len, &reply, NULL);

	/* A worker looks at what is there. */
	if (r < 0 || reply.kind != S3_REPLY_COPY_OBJECT || !reply.etag) {
		*way = BULK_ASIDE;
		return 0;
	}
	r = object_info_from_reply(&op->reply, &task->info, err);
	if (r < 0)
		return r;
	object_etag_copy(task->info.etag, reply.etag);
	/*
	 * A store may ignore the condition on the source. The same MD5 says that the right one was copied; where
	 * there is none, and nothing vouches for the store, a worker looks at the source once more.
	 */
	if (strcmp(task->info.etag, task->known.etag) != 0 && !client->aws &&
		!atomic_load(&client->own_kind)) {
		*way = BULK_ASIDE;
		return 0;
	}
	if (object_etag_md5(task->known.etag, md5) && object_etag_md5(task->info.etag, md5) &&
		strcmp(task->info.etag, task->known.etag) != 0 && !client->aws)
		return error_set(err, PENSTOCK_E_CHANGED,
			"COPY s3://%s/%s: the object was replaced while it was copied",
			task->item.from_bucket, task->item.from_key);
	task->info.modified_ns = reply.modified_ns;
	task->info.size = task->known.size;
	task->bytes = task->known.size;
	task->has_info = true;
	return 0;
}
