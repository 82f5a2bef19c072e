#include "server/op/op.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "server/access/grants.h"
#include "server/request/hash.h"
#include "server/request/headers.h"
#include "server/request/lock.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/tags.h"
#include "server/request/workers.h"
#include "server/sse/sse.h"

/* --- storing a body --------------------------------------------------------------------------- */

/* Called on the committer's thread, or by submit() if the put cannot be submitted: only wakes the
 * connection. */
static void put_done(struct store_put *put, void *cookie)
{
	(void)put;
	request_wake(cookie);
}

static void fail(struct request *req, struct penstock_error *err)
{
	req->after = NULL;
	reply_failure(req, err);
	request_wake(req);
}

static void submit(struct request *req)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (sse_etag(req, req->body.etag, &err) < 0)
		fail(req, &err);
	else if (req->upload_id)
		store_part_put_submit(req->server->store, &req->part);
	else
		store_put_submit(req->server->store, &req->put);
}

/* Called on a worker's thread, because store_body_sync() may block on the disk; with relaxed
 * durability, which needs no sync, also on other threads. */
static void sync_and_submit(struct request *req)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (request_refuse_late(req))
		return;
	if (store_body_sync(req->body.object, &err) < 0)
		fail(req, &err);
	else
		submit(req);
}

/* Called on the hasher's thread, or on the event loop if the body is hashed already. */
static void hashed(struct request *req)
{
	if (store_is_relaxed(req->server->store))
		sync_and_submit(req); /* does not block on the disk */
	else
		workers_submit(req->server->workers, sync_and_submit, req);
}

/* Makes the body durable and submits the prepared put; then `after` replies. */
static void commit_body(struct request *req, struct store_put *put, request_fn after)
{
	put->bucket = req->bucket;
	put->bucket_id = req->bucket_id;
	put->key = req->key;
	put->body = req->body.object;
	put->etag = req->body.etag;
	put->done = put_done;
	put->cookie = req;
	if (!request_suspend(req, after))
		return;
	if (store_body_is_inline(put->body))
		submit(req);
	else if (req->body.hash_late) {
		req->body.hash_late = false;
		hasher_submit(req->server->hasher, hashed, req);
	} else
		hashed(req);
}

/* --- PutObject ------------------------------------------------------------------------------- */

static void put_object_after(struct request *req)
{
	struct store_put *put = &req->put;

	if (!reply_unless_stored(req, put->status, &put->error))
		return;
	reply_empty(req, MHD_HTTP_OK);
	reply_etag(req, put->etag);
	reply_checksum(req, &put->checksum);
	reply_made(req, put->version);
	op_reply_put_end(req);
	req->object_size = (int64_t)put->size;
	reply_sse(req, req->encryption.mode);
}

void op_store_object(struct request *req, request_fn after)
{
	const struct request_body *body = &req->body;
	struct store_put *put = &req->put;
	struct store_checksum *sum = &put->checksum;

	if (body->extra_kind) {
		snprintf(sum->algorithm, sizeof(sum->algorithm), "%s",
			checksum_name(body->extra_kind));
		snprintf(sum->type, sizeof(sum->type), "FULL_OBJECT");
		snprintf(sum->value, sizeof(sum->value), "%s", body->extra_value);
	}
	put->headers = req->stored_headers.data;
	put->headers_len = req->stored_headers.len;
	put->origin = op_origin(req, req->form ? "ObjectCreated:Post" : "ObjectCreated:Put");
	request_bind(req, req->key, NULL, &put->condition);
	commit_body(req, put, after);
}

static void op_put_object(struct request *req)
{
	op_store_object(req, put_object_after);
}

/* Checks the bucket before the body is sent. For a small body the check is not worth its cost,
 * unless the client waits for "100 Continue". */
static bool check_bucket(struct request *req)
{
	const char *length = request_header(req, "content-length");
	uint64_t n;

	if (!request_header(req, "expect") && length &&
		str_to_u64(length, 0, LIMIT_SERVER_LATE_BUCKET, &n))
		return true;
	return op_get_bucket(req, NULL);
}

bool op_check_condition_early(struct request *req)
{
	const struct store_condition *c = &req->put.condition;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_object *object = NULL;
	enum store_status status;
	bool refuse;

	if (!c->if_match && !c->if_none_match)
		return true;
	status = store_object_get(req->server->store, req->bucket, req->key, &object, &err);
	penstock_error_release(&err);
	refuse = status == STORE_OK && c->if_none_match && strcmp(c->if_none_match, "*") == 0;
	store_object_unref(object);
	if (refuse)
		reply_error(req, S3_E_PRECONDITION_FAILED);
	return !refuse; /* other conditions are checked when the change takes effect */
}

void op_put_object_begin(struct request *req)
{
	req->put.condition = headers_condition(req);
	if (request_header(req, "x-amz-copy-source")) {
		request_finish_by_worker(req, op_copy_object);
		body_begin(req, BODY_DOCUMENT, LIMIT_SERVER_IGNORED_BODY);
		return;
	}
	req->finish = op_put_object;
	if (!headers_collect(req, &req->stored_headers) || !tags_add(req, &req->stored_headers) ||
		!grants_add(req, &req->stored_headers) || !lock_add(req, &req->stored_headers) ||
		!op_replica_add(req, &req->stored_headers) || !lock_has_checksum(req) ||
		!sse_add(req, &req->stored_headers) || !check_bucket(req) ||
		!op_check_condition_early(req))
		return;
	body_begin(req, BODY_OBJECT, LIMIT_S3_PUT_MAX);
}

/* --- UploadPart ------------------------------------------------------------------------------ */

static void upload_part_after(struct request *req)
{
	struct store_put *put = &req->part.put;

	if (!reply_unless_stored(req, put->status, &put->error))
		return;
	req->object_size = (int64_t)put->size;
	reply_empty(req, MHD_HTTP_OK);
	reply_etag(req, put->etag);
	if (put->checksum.algorithm[0])
		reply_header(req, checksum_header(op_part_checksum(req)), put->checksum.value);
	else if (req->body.extra_kind)
		reply_header(req, checksum_header(req->body.extra_kind), req->body.extra_value);
	reply_sse(req, req->encryption.mode);
}

static void op_upload_part(struct request *req)
{
	struct store_put *put = &req->part.put;
	const struct request_body *body = &req->body;
	bool named = body->extra_kind && body->extra_kind == op_part_checksum(req);

	snprintf(put->checksum.value, sizeof(put->checksum.value), "%s",
		named ? body->extra_value : body->own_value);
	commit_body(req, put, upload_part_after);
}

void op_upload_part_begin(struct request *req)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_upload upload = {0};
	enum checksum_kind wanted;
	enum store_status status;
	uint64_t number = 0;

	req->upload_id = request_query(req, "uploadId");
	if (!request_has_query(req, "partNumber")) {
		reply_errorf(req, S3_E_INVALID_ARGUMENT, "uploadId needs a partNumber");
		return;
	}
	if (!request_query_number(req, "partNumber", 1, LIMIT_S3_PARTS, &number))
		return;
	if (!req->upload_id) {
		reply_error(req, S3_E_SLOW_DOWN);
		return;
	}
	status = store_upload_get(
		req->server->store, req->bucket, req->key, req->upload_id, &upload, &err);
	if (!reply_unless_stored(req, status, &err))
		return;
	req->part.upload = req->upload_id;
	req->part.number = (uint32_t)number;
	req->part.put.checksum = upload.checksum;
	sse_of_part(req, &upload);
	store_upload_release(&upload);
	if (request_replied(req))
		return;
	if (request_header(req, "x-amz-copy-source")) {
		request_finish_by_worker(req, op_upload_part_copy);
		body_begin(req, BODY_DOCUMENT, LIMIT_SERVER_IGNORED_BODY);
		return;
	}
	req->finish = op_upload_part;
	if (!body_begin(req, BODY_OBJECT, LIMIT_S3_PART_MAX))
		return;
	wanted = op_part_checksum(req);
	if (!wanted || req->body.extra_kind == wanted)
		return;
	if (req->body.extra_kind && req->part.put.checksum.algorithm[0]) {
		reply_errorf(req, S3_E_INVALID_REQUEST,
			"Checksum Type mismatch occurred, expected checksum Type: %s, actual "
			"checksum Type: %s",
			req->part.put.checksum.algorithm, checksum_name(req->body.extra_kind));
	} else {
		body_add_checksum(req, wanted);
	}
}
