/* The CORS configuration of a bucket. */
#include <string.h>

#include "base/cleanup.h"
#include "s3/bucket/cors.h"
#include "server/op/op.h"
#include "server/request/cors.h"
#include "server/request/reply.h"
#include "server/request/request.h"

void op_bucket_cors(struct request *req)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum store_status status = store_config_get(
		req->server->store, req->bucket, CORS_CONFIG, &xml, &err);

	if (status == STORE_NO_SUCH_KEY)
		reply_code(req, MHD_HTTP_NOT_FOUND, "NoSuchCORSConfiguration",
			"The CORS configuration does not exist");
	else if (reply_unless_stored(req, status, &err))
		reply_xml(req, MHD_HTTP_OK, &xml);
}

static void store_rules(struct request *req, const struct s3_cors *cors)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	s3_cors_write(&xml, cors);
	if (buf_failed(&xml))
		reply_error(req, S3_E_SLOW_DOWN);
	else if (reply_unless_stored(req,
			 store_config_set(req->server->store, req->bucket, req->bucket_id,
				 CORS_CONFIG, xml.data, xml.len, &err),
			 &err))
		reply_empty(req, MHD_HTTP_OK);
}

void op_put_bucket_cors(struct request *req)
{
	const struct buf *document = &req->body.document;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_cors cors = {0};

	if (document->len > LIMIT_S3_CORS)
		reply_error(req, S3_E_MAX_MESSAGE_LENGTH_EXCEEDED);
	else if (s3_cors_parse(buf_str(document), document->len, &cors, &err) == 0)
		store_rules(req, &cors);
	else
		reply_refusal(req, &cors.refusal, &err);
	s3_cors_release(&cors);
}

void op_delete_bucket_cors(struct request *req)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (reply_unless_stored(req,
		    store_config_set(req->server->store, req->bucket, req->bucket_id, CORS_CONFIG,
			    NULL, 0, &err),
		    &err))
		reply_empty(req, MHD_HTTP_NO_CONTENT);
}
