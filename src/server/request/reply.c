#include "server/request/reply.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <penstock/version.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "s3/date.h"

void reply_response(struct request *req, unsigned status, struct MHD_Response *response)
{
	if (req->response)
		MHD_destroy_response(req->response);
	req->response = response;
	req->status = status;
	req->error_code = NULL;
	req->sent = 0;
	if (!response)
		return;
	/* From this header penstock's own client knows that it may use extensions of S3, and may
	 * send a checksum after the body, so that it reads a file only once. */
	MHD_add_response_header(response, "Server", "penstock/" PENSTOCK_VERSION);
	MHD_add_response_header(response, "x-amz-request-id", req->id);
}

ssize_t reply_cut(struct MHD_Connection *connection, struct penstock_error *err)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		connection, MHD_CONNECTION_INFO_CONNECTION_FD);

	log_error("store: %s", err->message ? err->message : "an object ended early");
	penstock_error_release(err);
	/* libmicrohttpd closes the connection only after the next event on its socket. */
	if (info)
		shutdown(info->connect_fd, SHUT_RDWR);
	return MHD_CONTENT_READER_END_WITH_ERROR;
}

void reply_empty(struct request *req, unsigned status)
{
	reply_response(
		req, status, MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT));
}

void reply_header(struct request *req, const char *name, const char *value)
{
	if (!req->response || !value)
		return;
	/* libmicrohttpd rejects an empty value, and clients strip blanks around a value. Values
	 * that are invalid in a header are left out; any other failure means out of memory. */
	if (MHD_add_response_header(req->response, name, *value ? value : " ") != MHD_YES &&
		!strpbrk(value, "\r\n"))
		req->no_memory = true;
}

void reply_headerf(struct request *req, const char *name, const char *fmt, ...)
{
	char value[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(value, sizeof(value), fmt, ap);
	va_end(ap);
	reply_header(req, name, value);
}

void reply_etag(struct request *req, const char *etag)
{
	reply_headerf(req, "ETag", "\"%s\"", etag);
}

void reply_modified(struct request *req, const struct store_object *object)
{
	char date[DATE_HTTP_SIZE];

	date_format_http(object->modified_ns / NS_PER_S, date);
	reply_header(req, "Last-Modified", date);
}

void reply_held(struct request *req, unsigned status, struct buf *body, const char *type)
{
	size_t len = body->len;
	char *data;

	if (buf_failed(body)) {
		reply_error(
			req, body->failure == BUF_NO_MEMORY ? S3_E_SLOW_DOWN : S3_E_INTERNAL_ERROR);
		return;
	}
	data = buf_take(body);
	reply_response(
		req, status, MHD_create_response_from_buffer(len, data, MHD_RESPMEM_MUST_FREE));
	if (!req->response)
		free(data);
	req->sent = len;
	reply_header(req, "Content-Type", type);
}

void reply_body(struct request *req, unsigned status, struct buf *body, const char *type)
{
	/* Only long replies are counted; an error is short. */
	if (body->len > LIMIT_SERVER_CONNECTION && !buf_failed(body) &&
		!request_hold(req, body->len))
		reply_error(req, S3_E_SLOW_DOWN);
	else
		reply_held(req, status, body, type);
}

void reply_xml(struct request *req, unsigned status, struct buf *xml)
{
	reply_body(req, status, xml, "application/xml");
}

void reply_result(struct request *req, enum s3_reply_kind kind, const char *etag,
	const struct store_checksum *checksum, int64_t modified_ns)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	_cleanup_free_ char *location = str_printf("%s%s", req->server->url, req->resource);
	enum checksum_kind ck = checksum_find(checksum->algorithm);
	char quoted[STORE_ETAG_SIZE + 2];
	struct s3_reply reply = {.kind = kind,
		.bucket = req->bucket,
		.key = req->key,
		.location = location,
		.etag = quoted,
		.modified_ns = modified_ns};

	snprintf(quoted, sizeof(quoted), "\"%s\"", etag);
	if (ck && checksum->value[0]) {
		reply.checksums[ck] = checksum->value;
		reply.checksum_type = checksum->type[0] ? checksum->type : NULL;
	}
	s3_reply_write(&xml, &reply);
	reply_xml(req, MHD_HTTP_OK, &xml);
}

void reply_code(struct request *req, unsigned status, const char *code, const char *message)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_HTTP_ERROR_BODY);
	struct s3_reply reply = {.kind = S3_REPLY_ERROR,
		.code = code,
		.message = message,
		.resource = req->path,
		.request_id = req->id};

	if (status != MHD_HTTP_NOT_MODIFIED && !req->head)
		s3_reply_write(&xml, &reply);
	if (!xml.len || buf_failed(&xml)) /* no body is allowed, or the path is very long */
		reply_empty(req, status);
	else
		reply_xml(req, status, &xml);
	req->error_code = code;
}

bool reply_error(struct request *req, enum s3_error error)
{
	const struct s3_error_info *info = s3_error_info(error);

	reply_code(req, (unsigned)info->status, info->code, info->message);
	return false;
}

bool reply_page(struct request *req)
{
	static const char page[] =
		"<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
		"<title>penstock</title></head><body>\n"
		"<h1>A penstock object store</h1>\n"
		"<p>This server speaks S3. Requests have to be signed, which a browser does not do. "
		"Give the address and the keys of this store to a client:</p>\n"
		"<pre>export AWS_ENDPOINT_URL=%s\n"
		"export AWS_SHARED_CREDENTIALS_FILE=STORE/credentials\n"
		"penstock ls</pre>\n"
		"<p><code>penstock presign s3://BUCKET/KEY</code> makes a link for a browser.</p>\n"
		"</body></html>\n";
	char *text = str_printf(page, req->server->url);

	if (!text)
		return reply_error(req, S3_E_SLOW_DOWN);
	reply_response(req, MHD_HTTP_FORBIDDEN,
		MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE));
	if (!req->response)
		free(text);
	reply_header(req, "Content-Type", "text/html; charset=utf-8");
	return false;
}

bool reply_errorf(struct request *req, enum s3_error error, const char *fmt, ...)
{
	const struct s3_error_info *info = s3_error_info(error);
	_cleanup_free_ char *message = NULL;
	va_list ap;

	va_start(ap, fmt);
	message = str_vprintf(fmt, ap);
	va_end(ap);
	reply_code(req, (unsigned)info->status, info->code, message ? message : info->message);
	return false;
}

bool reply_failure(struct request *req, struct penstock_error *err)
{
	if (err->code != PENSTOCK_E_CANCELLED)
		log_error("cannot serve %s '%s': %s", req->method, req->path,
			err->message ? err->message : penstock_code_name(err->code));
	reply_error(req, err->code == PENSTOCK_E_NO_SPACE    ? S3_E_STORAGE_FULL
			 : err->code == PENSTOCK_E_MEMORY    ? S3_E_SLOW_DOWN
			 : err->code == PENSTOCK_E_CANCELLED ? S3_E_REQUEST_TIMEOUT
							     : S3_E_INTERNAL_ERROR);
	penstock_error_release(err);
	return false;
}

bool reply_document_error(struct request *req, enum s3_error problem, struct penstock_error *err)
{
	if (err->code == PENSTOCK_E_UNSUPPORTED)
		reply_errorf(req, S3_E_NOT_IMPLEMENTED, "%s", err->message);
	else
		reply_error(req, err->code == PENSTOCK_E_MEMORY ? S3_E_SLOW_DOWN
				 : problem			? problem
								: S3_E_MALFORMED_XML);
	penstock_error_release(err);
	return false;
}

bool reply_refusal(
	struct request *req, const struct s3_refusal *refusal, struct penstock_error *err)
{
	if (!*refusal->message)
		return reply_document_error(req, refusal->problem, err);
	penstock_error_release(err);
	return reply_errorf(req, refusal->problem, "%s", refusal->message);
}

bool reply_unless_stored(struct request *req, enum store_status status, struct penstock_error *err)
{
	static const enum s3_error errors[] = {
		[STORE_NO_SUCH_BUCKET] = S3_E_NO_SUCH_BUCKET,
		[STORE_NO_SUCH_KEY] = S3_E_NO_SUCH_KEY,
		[STORE_NO_SUCH_UPLOAD] = S3_E_NO_SUCH_UPLOAD,
		[STORE_NO_SUCH_VERSION] = S3_E_NO_SUCH_VERSION,
		[STORE_BUCKET_EXISTS] = S3_E_BUCKET_ALREADY_OWNED_BY_YOU,
		[STORE_BUCKET_NOT_EMPTY] = S3_E_BUCKET_NOT_EMPTY,
		[STORE_TOO_MANY_BUCKETS] = S3_E_TOO_MANY_BUCKETS,
		[STORE_PRECONDITION] = S3_E_PRECONDITION_FAILED,
		[STORE_INVALID_PART] = S3_E_INVALID_PART,
		[STORE_PART_TOO_SMALL] = S3_E_ENTITY_TOO_SMALL,
		[STORE_TOO_LARGE] = S3_E_ENTITY_TOO_LARGE,
		[STORE_LOCKED] = S3_E_OBJECT_LOCKED,
		[STORE_BUCKET_STATE] = S3_E_INVALID_BUCKET_STATE,
		[STORE_CHANGED] = S3_E_CONDITIONAL_REQUEST_CONFLICT,
		[STORE_NO_SPACE] = S3_E_STORAGE_FULL,
	};

	if (status == STORE_OK)
		return true;
	if (status == STORE_FAILED)
		return reply_failure(req, err);
	if (status == STORE_NO_SPACE)
		log_warn("cannot store '%s' (%s): %s; free some space", req->path, req->method,
			err->message ? err->message : "the disk is full");
	penstock_error_release(err);
	if (status == STORE_TOO_MANY_PIECES)
		return reply_errorf(req, S3_E_INVALID_REQUEST,
			"The list of the object's pieces exceeds the limit of %zu bytes; upload "
			"parts instead of copying them",
			(size_t)LIMIT_STORE_LAYOUT);
	if (status == STORE_VERSION_TAKEN)
		return reply_errorf(req, S3_E_INVALID_BUCKET_STATE,
			"The key has another version with the version id of this replica");
	return reply_error(req, errors[status]);
}

static bool is_hidden(const struct request *req, enum store_status status)
{
	return req->hides_missing &&
	       (status == STORE_NO_SUCH_KEY || status == STORE_NO_SUCH_VERSION);
}

bool reply_unless_read(struct request *req, enum store_status status, struct penstock_error *err)
{
	if (!is_hidden(req, status))
		return reply_unless_stored(req, status, err);
	penstock_error_release(err);
	return reply_error(req, S3_E_ACCESS_DENIED);
}

void reply_version(struct request *req, const struct store_object *object)
{
	if (object->versioned)
		reply_header(req, "x-amz-version-id", object->version);
}

void reply_made(struct request *req, const char *version)
{
	snprintf(req->made, sizeof(req->made), "%s", version);
	if (*version && strcmp(version, "null") != 0)
		reply_header(req, "x-amz-version-id", version);
}

/* Replies to a request that finds a delete marker; `named` is true if the request names its
 * version. */
static void reply_marker(struct request *req, const struct store_object *marker, bool named)
{
	reply_error(req, named ? S3_E_METHOD_NOT_ALLOWED : S3_E_NO_SUCH_KEY);
	reply_header(req, "x-amz-delete-marker", "true");
	reply_version(req, marker);
	if (named) {
		reply_header(req, "Allow", "DELETE");
		reply_modified(req, marker);
	}
}

struct store_object *reply_unless_found(
	struct request *req, const char *bucket, const char *key, const char *version)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_object *object = NULL;
	enum store_status status = request_get_object(req, bucket, key, version, &object, &err);

	if (object && object->marker && !is_hidden(req, status))
		reply_marker(req, object, version != NULL);
	else if (reply_unless_read(req, status, &err))
		return object;
	store_object_unref(object);
	return NULL;
}
