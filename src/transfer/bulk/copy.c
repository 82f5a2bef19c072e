/* Copies a small object within its store, in one request. */
#include "transfer/bulk/flight.h"

#include <string.h>

#include "base/cleanup.h"
#include "net/http/http.h"
#include "s3/message/messages.h"

/* Limit of the time without a byte: the store copies the object before it replies. */
#define COPY_STALL_MS (2 * 60 * 1000)

int bulk_copy_prepare(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err)
{
	struct bulk_task *task = f->task;
	const struct bulk_item *item = &task->item;
	struct s3_op *op = &f->put.op;

	(void)err;
	if (item->from.client != item->to.client || !item->known || !task->known.etag[0] ||
		task->known.size > LIMIT_PUT_SINGLE || task->bulk->put.storage_class ||
		task->bulk->put.content_type || task->bulk->put.metadata) {
		*way = BULK_TO_WORKER;
		return 0;
	}
	s3_op_init(op, "PUT", item->to);
	s3_op_copy_source(op, item->from, task->known.etag);
	s3_op_body(op, NULL, 0);
	s3_op_wants_document(op);
	op->request.stall_timeout_ms = COPY_STALL_MS;
	return 0;
}

int bulk_copy_complete(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err)
{
	struct bulk_task *task = f->task;
	struct s3_op *op = &f->put.op;
	struct object_client *client = task->item.from.client;
	_cleanup_(s3_reply_release) struct s3_reply reply = {0};
	uint8_t md5[16];
	int r = s3_reply_parse(op->document.data, op->document.len, &reply, NULL);

	/* The reply is unclear: a worker makes the copy again. */
	if (r < 0 || reply.kind != S3_REPLY_COPY_OBJECT || !reply.etag) {
		*way = BULK_TO_WORKER;
		return 0;
	}
	r = object_info_from_reply(&op->reply, &task->info, err);
	if (r < 0)
		return r;
	object_etag_copy(task->info.etag, reply.etag);
	/* A store may ignore the condition on the source. An equal ETag proves that the right
	 * object was copied; without an equal ETag, on an unknown store, a worker copies again and
	 * checks the source. */
	if (strcmp(task->info.etag, task->known.etag) != 0 && !client->aws &&
		!atomic_load(&client->own_kind)) {
		*way = BULK_TO_WORKER;
		return 0;
	}
	if (object_etag_md5(task->known.etag, md5) && object_etag_md5(task->info.etag, md5) &&
		strcmp(task->info.etag, task->known.etag) != 0 && !client->aws)
		return object_error(err, PENSTOCK_E_CHANGED, "COPY", task->item.from,
			"the object was replaced while it was copied");
	task->info.modified_ns = reply.modified_ns;
	task->info.size = task->known.size;
	task->bytes = task->known.size;
	task->has_info = true;
	return 0;
}
