/* Requests that send or receive an XML document, and the source of a copy. */
#include "transfer/client/internal.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "s3/message/messages.h"
#include "s3/uri.h"

void s3_op_xml(struct s3_op *op, const struct buf *body, const char *what)
{
	if (buf_failed(body))
		buf_error(body, what, &op->failed);
	s3_op_header(op, "content-type", "application/xml");
	s3_op_body(op, body->data, body->len);
}

int s3_op_ask(struct s3_op *op, struct penstock_error *err)
{
	s3_op_wants_document(op);
	return s3_op_perform(op, err);
}

int s3_op_upload_id(struct s3_op *op, char **id, struct penstock_error *err)
{
	_cleanup_(s3_reply_release) struct s3_reply reply = {0};
	int r = s3_op_read(op, s3_reply_parse, &reply, err);

	if (r < 0)
		return r;
	if (reply.kind != S3_REPLY_INITIATE || !reply.upload_id || !*reply.upload_id)
		return error_set(err, PENSTOCK_E_PROTOCOL, "%s: the store's reply has no upload id",
			op->what);
	*id = strdup(reply.upload_id);
	return *id ? 0 : error_memory(err);
}

void s3_op_copy_source(struct s3_op *op, struct object_ref from, const char *etag)
{
	_cleanup_(buf_release) struct buf source = BUF_INIT(LIMIT_STRING);

	buf_printf(&source, "/%s/", from.bucket);
	uri_encode(&source, from.key, strlen(from.key), true);
	if (from.version) {
		buf_add_str(&source, "?versionId=");
		uri_encode(&source, from.version, strlen(from.version), false);
	}
	if (buf_failed(&source))
		buf_error(&source, "the source name", &op->failed);
	else
		s3_op_header(op, "x-amz-copy-source", buf_str(&source));
	s3_op_header(op, "x-amz-copy-source-if-match", etag);
}
