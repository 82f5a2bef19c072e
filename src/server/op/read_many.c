/* Many reads in one request. */
#include <stdlib.h>
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

/* Bytes per read of objects that are not in memory. */
#define READ_BLOCK (256 * KIB)

/* A reply: the table, and the bytes of objects, which are sent from the store's memory unless
 * `reads` is set. */
struct many {
	size_t n;
	uint64_t bytes; /* bytes of objects in the reply */
	struct MHD_IoVec *pieces; /* the table, and one for each read */
	struct store_object **objects; /* referenced; NULL if nothing of the object is sent */
	uint64_t *offsets; /* offsets in the objects */
	uint8_t *table;
	bool reads; /* some bytes are not in memory, so all are read */
	struct MHD_Connection *connection;
	/* Position in a reply whose bytes are read: */
	size_t at; /* the current piece */
	uint64_t start; /* start of the current piece */
	struct store_reader *reader; /* reader of the piece's object; may be NULL */
};

static void many_free(void *cookie)
{
	struct many *m = cookie;

	if (!m)
		return;
	for (size_t i = 0; m->objects && i < m->n; i++)
		store_object_unref(m->objects[i]);
	store_reader_free(m->reader);
	free(m->objects);
	free(m->offsets);
	free(m->pieces);
	free(m->table);
	free(m);
}

static void many_freep(struct many **m)
{
	many_free(*m);
}

static struct many *many_new(size_t room)
{
	struct many *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->pieces = calloc(room + 1, sizeof(*m->pieces));
	m->objects = calloc(room + 1, sizeof(struct store_object *));
	m->offsets = calloc(room + 1, sizeof(*m->offsets));
	m->table = calloc(room + 1, READ_MANY_ENTRY);
	if (m->pieces && m->objects && m->offsets && m->table)
		return m;
	many_free(m);
	return NULL;
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

/* Returns true if the byte at `offset` can be read: once the reply has started, an error would fail
 * all of its reads. */
static bool is_readable(struct store_object *object, uint64_t offset)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_reader *reader = NULL;
	char byte;
	bool readable = store_reader_new(object, &reader, &err) == 0 &&
			store_reader_read(reader, offset, &byte, 1, &err) == 1;

	store_reader_free(reader);
	if (!readable)
		log_error("store: %s", err.message ? err.message : "an object ended early");
	return readable;
}

/* Adds the bytes of an object to the reply, with a reference. Returns the status of this read. */
static unsigned add_object(struct many *m, const struct read_many_item *item,
	struct store_object *object, struct read_many_result *result)
{
	uint64_t length = item->whole ? object->size : item->length;
	const void *data = "";

	if (!is_version(object, item->etag))
		return MHD_HTTP_PRECONDITION_FAILED;
	if (item->offset > object->size || length > object->size - item->offset)
		return MHD_HTTP_RANGE_NOT_SATISFIABLE;
	if (length > LIMIT_READ_MANY_BYTES - m->bytes)
		return MHD_HTTP_SERVICE_UNAVAILABLE;
	/* The client must send a GET with the customer's key. */
	if (object->encryption == STORE_CUSTOMER_KEY)
		return MHD_HTTP_NOT_IMPLEMENTED;
	if (length)
		data = store_object_map(object, item->offset, length);
	if (!data && !is_readable(object, item->offset + length - 1))
		return MHD_HTTP_NOT_IMPLEMENTED;
	m->reads = m->reads || !data;
	if (item->whole)
		set_checksum(object, result);
	result->length = length;
	m->bytes += length;
	m->pieces[m->n + 1] = (struct MHD_IoVec){.iov_base = data, .iov_len = (size_t)length};
	m->offsets[m->n] = item->offset;
	m->objects[m->n] = store_object_ref(object);
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

/* Adds the result of one read. Returns STORE_OK also if the object is missing. */
static enum store_status add_item(struct request *req, struct many *m,
	const struct read_many_item *item, struct penstock_error *err)
{
	const struct access_subject subject = {.bucket = req->bucket, .key = item->key};
	_cleanup_(store_object_unrefp) struct store_object *object = NULL;
	struct read_many_result result = {.status = MHD_HTTP_FORBIDDEN};
	enum store_status status = STORE_OK;
	enum access_result access;

	access_forget(req);
	access = access_of(req, "s3:GetObject", &subject);
	if (access == ACCESS_FAILED)
		result.status = MHD_HTTP_SERVICE_UNAVAILABLE;
	if (access == ACCESS_ALLOWED)
		status = request_get_object(req, req->bucket, item->key, NULL, &object, err);
	if (status == STORE_OK && object) {
		result.status = add_object(m, item, object, &result);
	} else if (status == STORE_NO_SUCH_KEY) {
		status = STORE_OK;
		if (access_may_list(req, &subject))
			result.status = MHD_HTTP_NOT_FOUND;
	}
	read_many_encode(&result, m->table + m->n * READ_MANY_ENTRY);
	m->n++;
	if (status == STORE_OK)
		log_read(req, item->key, object, &result);
	return status;
}

/* Returns false with a reply set. */
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

/* --- replies whose bytes are not in memory ---------------------------------------------------- */

static void next_piece(struct many *m)
{
	m->start += m->pieces[m->at++].iov_len;
	store_reader_free(take_pointer(m->reader));
}

/* Reads from the object of the current piece. */
static ssize_t read_piece(struct many *m, uint64_t offset, char *buf, size_t max)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	size_t i = m->at - 1;
	ssize_t n = -1;

	if (m->reader || store_reader_new(m->objects[i], &m->reader, &err) == 0)
		n = store_reader_read(m->reader, m->offsets[i] + offset, buf, max, &err);
	return n > 0 ? n : reply_cut(m->connection, &err);
}

static ssize_t many_read(void *cls, uint64_t pos, char *buf, size_t max)
{
	struct many *m = cls;
	uint64_t left;

	while (m->at <= m->n && pos >= m->start + m->pieces[m->at].iov_len)
		next_piece(m);
	if (m->at > m->n)
		return MHD_CONTENT_READER_END_OF_STREAM;
	left = m->start + m->pieces[m->at].iov_len - pos;
	if (max > left)
		max = (size_t)left;
	if (m->at)
		return read_piece(m, pos - m->start, buf, max);
	memcpy(buf, m->table + pos, max);
	return (ssize_t)max;
}

static struct MHD_Response *many_response(struct many *m)
{
	size_t table = m->n * READ_MANY_ENTRY;

	m->pieces[0] = (struct MHD_IoVec){m->table, table};
	return m->reads ? MHD_create_response_from_callback(
				  table + m->bytes, READ_BLOCK, many_read, m, many_free)
			: MHD_create_response_from_iovec(
				  m->pieces, (unsigned)(m->n + 1), many_free, m);
}

void op_read_many(struct request *req)
{
	struct buf *body = &req->body.document;
	_cleanup_(many_freep) struct many *m = many_new(count_lines(buf_str(body)));

	if (!m) {
		reply_error(req, S3_E_SLOW_DOWN);
		return;
	}
	if (strlen(buf_str(body)) != body->len) {
		reply_errorf(req, S3_E_INVALID_REQUEST, "the body has a NUL");
		return;
	}
	if (!add_items(req, m, body->len ? body->data : (char[]){""}))
		return;
	m->connection = req->connection;
	reply_response(req, MHD_HTTP_OK, many_response(m));
	if (!req->response)
		return;
	req->sent = m->n * READ_MANY_ENTRY + m->bytes;
	take_pointer(m);
	reply_header(req, "Content-Type", "application/octet-stream");
	reply_header(req, READ_MANY_HEADER, READ_MANY_VERSION);
}
