/* Changes of stored headers of an object, which change neither its bytes nor its time. */
#include "server/op/op.h"

#include "server/access/access.h"
#include "server/request/reply.h"
#include "server/request/request.h"

/* Maximum attempts to change an object that other requests change at the same time. */
#define ANNOTATE_TRIES 8

/* Makes the change and replies, or returns false if the object has changed in the meantime. */
static bool try_annotate(struct request *req, const struct op_note *note)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_object *object = reply_unless_found(req, req->bucket, req->key, req->version);
	enum store_status status = STORE_OK;

	if (object && (!note->allowed || note->allowed(req, object, note->arg))) {
		status = store_annotate(req->server->store,
			&(struct store_annotation){.bucket = req->bucket,
				.bucket_id = req->bucket_id,
				.key = req->key,
				.version = object->version,
				.name = note->name,
				.value = note->value,
				.expected = store_object_header(object, note->name),
				.any = !note->allowed,
				.modified_ns = object->modified_ns},
			&err);
		/* Another version has become the current version. */
		if (status == STORE_NO_SUCH_VERSION && !req->version)
			status = STORE_CHANGED;
		if (status != STORE_CHANGED && reply_unless_stored(req, status, &err)) {
			reply_empty(req, note->status);
			reply_version(req, object);
		}
	}
	store_object_unref(object);
	return status != STORE_CHANGED;
}

void op_annotate(struct request *req, const struct op_note *note)
{
	for (int i = 0; i < ANNOTATE_TRIES; i++) {
		/* The sender may have no right to change the new object. */
		if (i && !(note->may ? note->may(req, note) : access_check_request(req)))
			return;
		if (try_annotate(req, note))
			return;
	}
	reply_error(req, S3_E_OPERATION_ABORTED);
}
