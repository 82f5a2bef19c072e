/* Replies: XML documents, errors and headers. */
#ifndef SERVER_REQUEST_REPLY_H
#define SERVER_REQUEST_REPLY_H

#include <stdbool.h>

#include "base/buf.h"
#include "s3/message/errors.h"
#include "server/request/request.h"
#include "store/store.h"

struct penstock_error;

static inline bool request_replied(const struct request *req)
{
	return req->response != NULL;
}
void reply_error(struct request *req, enum s3_error error);
void reply_errorf(struct request *req, enum s3_error error, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Replies with an error that is not in the table of s3/message/errors.h. */
void reply_code(struct request *req, unsigned status, const char *code, const char *message);
/* Replies to a failed call of the store; releases err. */
void reply_store_error(struct request *req, enum store_status status, struct penstock_error *err);
/* Replies to an invalid XML document, with details if known; releases err. */
void reply_document_error(struct request *req, enum s3_error problem, struct penstock_error *err);
/* Replies to an internal failure; releases err. */
void reply_failure(struct request *req, struct penstock_error *err);
void reply_empty(struct request *req, unsigned status);
/* Takes over the contents. */
void reply_xml(struct request *req, unsigned status, struct buf *xml);
void reply_response(struct request *req, unsigned status, struct MHD_Response *response);
/* Adds a header to the current reply; name and value are copied. */
void reply_header(struct request *req, const char *name, const char *value);
void reply_headerf(struct request *req, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void reply_etag(struct request *req, const char *etag);

#endif
