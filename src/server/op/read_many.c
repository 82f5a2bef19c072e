/* Many reads in one request. */
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "s3/message/read_many.h"
#include "s3/sum/checksum.h"
#include "server/access/access.h"
#include "server/op/op.h"
#include "server/request/reply.h"
#include "server/request/request.h"

/* A reply: the table, whose entries are in the order of the reads, and the bytes of the objects.
 * libmicrohttpd gets both in one piece: a long list of pieces does not fit in its memory, and this
 * failure would end the process. */
struct many {
	size_t n; /* number of results so far */
	struct buf reply;
	size_t held; /* bytes of the reply that are counted by request_hold() */
};

/* Reserves room in the reply. Returns NULL if out of memory, or if the account has used up its
 * share. */
static char *reserve(struct request *req, struct many *m, size_t len)
{
	char *room = buf_reserve(&m->reply, len);
	size_t cap = m->reply.cap;

	/* A short reply is not counted, as in reply_body(). */
	if (!room || cap <= LIMIT_SERVER_CONNECTION || cap == m->held)
		return room;
	if (!request_hold(req, cap - m->held))
		return NULL;
	m->held = cap;
	return room;
}

/* Creates the table. Returns -1 if out of memory. */
static int many_init(struct request *req, struct many *m, size_t entries)
{
	size_t table = entries * READ_MANY_ENTRY;
	char *room;

	*m = (struct many){.reply = BUF_INIT(table + LIMIT_READ_MANY_BYTES)};
	room = reserve(req, m, table);
	if (!room)
		return -1;
	memset(room, 0, table);
	buf_grown(&m->reply, table);
	return 0;
}

static void many_release(struct many *m)
{
	buf_release(&m->reply);
}

static bool is_version(const struct store_object *object, const char *etag)
{
	size_t len = strlen(object->etag);

	return !etag || (strlen(etag) == len + 2 && etag[0] == '"' && etag[len + 1] == '"' &&
				memcmp(etag + 1, object->etag, len) == 0);
}

static void set_checksum(const struct store_object *object, struct read_many_result *result)
{
	enum checksum_kind kind = checksum_find(object->checksum.algorithm);
	uint8_t digest[CHECKSUM_MAX_SIZE];

	if (!checksum_is_crc(kind) || strcmp(object->checksum.type, "COMPOSITE") == 0 ||
		!checksum_parse(kind, object->checksum.value, digest))
		return;
	result->kind = kind;
	memcpy(result->digest, digest, checksum_size(kind));
}

/* Reads bytes of an object into `room`. Returns false if the bytes cannot be read. */
static bool read_bytes(char *room, struct store_object *object, uint64_t offset, uint64_t length)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_reader *reader = NULL;
	bool whole = store_reader_new(object, &reader, &err) == 0 &&
		     store_reader_read(reader, offset, room, (size_t)length, &err) ==
			     (ssize_t)length;

	store_reader_free(reader);
	if (!whole)
		log_error("store: %s", err.message ? err.message : "the object is too short");
	return whole;
}

/* Adds the bytes of an object to the reply. Returns the status of this read. */
static unsigned add_object(struct request *req, struct many *m, const struct read_many_item *item,
	struct store_object *object, struct read_many_result *result)
{
	uint64_t length = item->whole ? object->size : item->length;
	char *room;

	if (!is_version(object, item->etag))
		return MHD_HTTP_PRECONDITION_FAILED;
	if (item->offset > object->size || length > object->size - item->offset)
		return MHD_HTTP_RANGE_NOT_SATISFIABLE;
	if (length > m->reply.limit - m->reply.len)
		return MHD_HTTP_SERVICE_UNAVAILABLE;
	/* The client must send a GET with the customer's key. */
	if (object->encryption == STORE_CUSTOMER_KEY)
		return MHD_HTTP_NOT_IMPLEMENTED;
	room = reserve(req, m, (size_t)length);
	if (!room)
		return MHD_HTTP_SERVICE_UNAVAILABLE;
	if (length && !read_bytes(room, object, item->offset, length))
		return MHD_HTTP_NOT_IMPLEMENTED;
	buf_grown(&m->reply, (size_t)length);
	if (item->whole)
		set_checksum(object, result);
	result->length = length;
	return MHD_HTTP_OK;
}

static void log_read(struct request *req, const char *key, const struct store_object *object,
	const struct read_many_result *result)
{
	int status = (int)result->status;
	bool found = status == MHD_HTTP_OK;

	op_log_item(req,
		&(struct op_log_item){.operation = "BATCH.GET.OBJECT",
			.key = key,
			.error = found ? NULL : s3_error_info(s3_error_of_status(status))->code,
			.status = status,
			.sent = found ? (int64_t)result->length : -1,
			.size = object ? (int64_t)object->size : -1});
}

/* Adds the result of one read. Returns STORE_OK even if the object is missing. */
static enum store_status add_item(struct request *req, struct many *m,
	const struct read_many_item *item, struct penstock_error *err)
{
	const struct access_subject subject = {.bucket = req->bucket, .key = item->key};
	_cleanup_(store_object_unrefp) struct store_object *object = NULL;
	struct read_many_result result = {.status = MHD_HTTP_FORBIDDEN};
	enum store_status status = STORE_OK;
	enum access_result access;

	if (request_is_abandoned(req)) {
		error_set(err, PENSTOCK_E_CANCELLED, "the client has closed the connection");
		return STORE_FAILED;
	}
	access_forget(req);
	access = access_of(req, "s3:GetObject", &subject);
	if (access == ACCESS_FAILED)
		result.status = MHD_HTTP_SERVICE_UNAVAILABLE;
	if (access == ACCESS_ALLOWED)
		status = request_get_object(req, req->bucket, item->key, NULL, &object, err);
	if (status == STORE_OK && object) {
		result.status = add_object(req, m, item, object, &result);
	} else if (status == STORE_NO_SUCH_KEY) {
		status = STORE_OK;
		if (access_may_list(req, &subject))
			result.status = MHD_HTTP_NOT_FOUND;
	}
	read_many_encode(&result, (uint8_t *)m->reply.data + m->n++ * READ_MANY_ENTRY);
	if (status == STORE_OK)
		log_read(req, item->key, object, &result);
	return status;
}

/* Reads all lines of the request, and adds a result for each. Sets the reply and returns false if a
 * line is invalid, if there are no lines or too many, or if the store fails. */
static bool add_items(struct request *req, struct many *m, char *text)
{
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_S3_KEY + 1);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct read_many_item item;
	enum store_status status = STORE_OK;
	int r = 1;

	while (status == STORE_OK && m->n < LIMIT_READ_MANY &&
		(r = read_many_next(&text, &key, &item)) > 0)
		status = add_item(req, m, &item, &err);
	if (status != STORE_OK)
		return reply_unless_stored(req, status, &err);
	if (r < 0 && key.failure == BUF_NO_MEMORY)
		return reply_error(req, S3_E_SLOW_DOWN);
	if (r < 0)
		return reply_errorf(req, S3_E_INVALID_REQUEST, "Line %zu is invalid", m->n + 1);
	if (*text || m->n == 0)
		return reply_errorf(req, S3_E_INVALID_REQUEST,
			"The request must have 1 to %d reads", LIMIT_READ_MANY);
	return true;
}

static size_t count_lines(const char *text)
{
	size_t n = 0;

	for (; (text = strchr(text, '\n')); text++)
		n++;
	return n < LIMIT_READ_MANY ? n : LIMIT_READ_MANY;
}

void op_read_many(struct request *req)
{
	struct buf *body = &req->body.document;
	_cleanup_(many_release) struct many m;

	if (many_init(req, &m, count_lines(buf_str(body))) < 0) {
		reply_error(req, S3_E_SLOW_DOWN);
		return;
	}
	if (strlen(buf_str(body)) != body->len) {
		reply_errorf(req, S3_E_INVALID_REQUEST, "the body has a NUL");
		return;
	}
	if (!add_items(req, &m, body->len ? body->data : (char[]){""}))
		return;
	reply_held(req, MHD_HTTP_OK, &m.reply, "application/octet-stream");
	reply_header(req, READ_MANY_HEADER, READ_MANY_VERSION);
}
