/* Lists and aborts unfinished uploads in parts. */
#include "transfer/client/internal.h"

#include <string.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "s3/message/messages.h"

enum { ABORT_MS = 5000, ABORT_ATTEMPTS = 3 };

int object_abort_upload(struct object_ref at, const char *id, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r;

	s3_op_init(&op, "DELETE", at);
	s3_op_query(&op, "uploadId", id);
	op.request.deadline_ms = clock_monotonic_ms() + ABORT_MS;
	op.request.max_attempts = ABORT_ATTEMPTS;
	op.request.tidies_up = true;
	op.request.gate = NULL; /* an abort changes no visible object */
	r = s3_op_perform(&op, &own);
	return r == 0 || r == -(int)PENSTOCK_E_NOT_FOUND ? 0 : error_move(err, &own);
}

/* Passes the uploads of one page to `fn`, and moves the markers `key` and `id` to the next page.
 * Returns 1 if there is a next page, 0 if not or if `fn` has stopped the listing. */
static int list_page(struct object_ref at, object_upload_fn fn, void *cookie, struct buf *key,
	struct buf *id, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	_cleanup_(s3_uploads_release) struct s3_uploads page = {0};
	int r;

	s3_op_init(&op, "GET", object_at(at.client, at.bucket, NULL));
	s3_op_query(&op, "uploads", NULL);
	s3_op_query(&op, "encoding-type", "url");
	if (at.key && *at.key)
		s3_op_query(&op, "prefix", at.key);
	if (key->len)
		s3_op_query(&op, "key-marker", key->data);
	if (id->len)
		s3_op_query(&op, "upload-id-marker", id->data);
	r = s3_op_read(&op, s3_uploads_parse, &page, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < page.n_uploads; i++) {
		const struct s3_upload *upload = &page.uploads[i];

		if (upload->key && upload->upload_id &&
			fn(cookie, upload->key, upload->upload_id, upload->initiated_ns))
			return 0;
	}
	if (!page.truncated)
		return 0;
	if (!page.next_key_marker ||
		(strcmp(page.next_key_marker, buf_str(key)) == 0 &&
			strcmp(page.next_upload_id_marker ? page.next_upload_id_marker : "",
				buf_str(id)) == 0))
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"%s: the store's listing makes no progress", op.what);
	buf_clear(key);
	buf_clear(id);
	buf_add_str(key, page.next_key_marker);
	if (page.next_upload_id_marker)
		buf_add_str(id, page.next_upload_id_marker);
	if (buf_failed(key) || buf_failed(id))
		return buf_error(buf_failed(key) ? key : id, "the listing's marker", err);
	return 1;
}

int object_list_uploads(
	struct object_ref at, object_upload_fn fn, void *cookie, struct penstock_error *err)
{
	/* marker of the next page */
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_STRING);
	_cleanup_(buf_release) struct buf id = BUF_INIT(LIMIT_STRING);
	int r;

	do {
		r = list_page(at, fn, cookie, &key, &id, err);
	} while (r > 0);
	return r;
}
