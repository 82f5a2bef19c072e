/* Replies: XML documents, errors and headers. */
#ifndef SERVER_REQUEST_REPLY_H
#define SERVER_REQUEST_REPLY_H

#include <stdbool.h>

#include "base/buf.h"
#include "s3/bucket/refusal.h"
#include "s3/message/errors.h"
#include "s3/message/messages.h"
#include "server/request/request.h"
#include "store/store.h"

struct penstock_error;

static inline bool request_replied(const struct request *req)
{
	return req->response != NULL;
}
/* Both functions return false, so that a caller can reply in its return statement. */
bool reply_error(struct request *req, enum s3_error error);
bool reply_errorf(struct request *req, enum s3_error error, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Returns the object, or a version of it if `version` is not NULL; release the reference. Sets the
 * reply and returns NULL if there is no such object, or only a delete marker. */
struct store_object *reply_unless_found(
	struct request *req, const char *bucket, const char *key, const char *version);
/* Adds x-amz-version-id if the bucket has versioning. */
void reply_version(struct request *req, const struct store_object *object);
/* Adds x-amz-version-id of a version that the request made, unless it is "null", as AWS does. */
void reply_made(struct request *req, const char *version);
/* Replies with an error that is not in the table of s3/message/errors.h. */
void reply_code(struct request *req, unsigned status, const char *code, const char *message);
/* Returns true if `status` is STORE_OK, else replies to the failed call of the store and releases
 * err. */
bool reply_unless_stored(struct request *req, enum store_status status, struct penstock_error *err);
/* Like reply_unless_stored(), after a read of an object: a missing object is AccessDenied if the
 * sender may not learn that the object is missing. */
bool reply_unless_read(struct request *req, enum store_status status, struct penstock_error *err);
/* Replies to an invalid XML document, with details if known; releases err. */
bool reply_document_error(struct request *req, enum s3_error problem, struct penstock_error *err);
/* Replies to a document that breaks a rule, or is invalid; releases err. */
bool reply_refusal(
	struct request *req, const struct s3_refusal *refusal, struct penstock_error *err);
/* Replies to an internal failure, or to the end of an abandoned request; releases err. */
bool reply_failure(struct request *req, struct penstock_error *err);
void reply_empty(struct request *req, unsigned status);
/* Replies to a browser, which cannot sign, with a page about the use of the store. Returns
 * false. */
bool reply_page(struct request *req);
/* All three functions take over the contents of the buffer. reply_held() is for bytes that the
 * request holds in memory already (request_hold()). */
void reply_held(struct request *req, unsigned status, struct buf *body, const char *type);
void reply_body(struct request *req, unsigned status, struct buf *body, const char *type);
void reply_xml(struct request *req, unsigned status, struct buf *xml);
/* Returns the result of a callback that cannot read the rest of a body. The head was sent, so only
 * the end of the connection can report an error. Logs and releases err. */
ssize_t reply_cut(struct MHD_Connection *connection, struct penstock_error *err);
void reply_response(struct request *req, unsigned status, struct MHD_Response *response);
/* Adds a header to the current reply; name and value are copied. */
void reply_header(struct request *req, const char *name, const char *value);
void reply_headerf(struct request *req, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void reply_etag(struct request *req, const char *etag);
void reply_modified(struct request *req, const struct store_object *object);
/* Replies with the result of an operation that made an object or a part. */
void reply_result(struct request *req, enum s3_reply_kind kind, const char *etag,
	const struct store_checksum *checksum, int64_t modified_ns);

#endif
