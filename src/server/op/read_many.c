/* Many reads in one request. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "s3/message/read_many.h"
#include "s3/sum/checksum.h"
#include "server/access/access.h"
#include "server/op/op.h"
#include "server/request/reply.h"
#include "server/request/request.h"

/* A reply: the table, and the bytes of objects where the store has them. */
struct many {
	size_t n;
	uint64_t bytes; /* of objects */
	struct MHD_IoVec *pieces; /* the table, and one for each read */
	struct store_object **objects; /* referenced; NULL: nothing is sent of it */
	uint8_t *table;
};

static void many_free(void *cookie)
{
	struct many *m = cookie;

	if (!m)
		return;
	for (size_t i = 0; m->objects && i < m->n; i++)
		store_object_unref(m->objects[i]);
	free(m->objects);
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
	m->table = calloc(room + 1, READ_MANY_ENTRY);
	if (m->pieces && m->objects && m->table)
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

/* Adds what the reply has of an object, and takes it over. */
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
	if (length)
		data = store_object_map(object, item->offset, length);
	if (!data)
		return MHD_HTTP_NOT_IMPLEMENTED;
	if (item->whole)
		set_checksum(object, result);
	result->length = length;
	m->bytes += length;
	m->pieces[m->n + 1] = (struct MHD_IoVec){.iov_base = data, .iov_len = (size_t)length};
	m->objects[m->n] = store_object_ref(object);
	return MHD_HTTP_OK;
}

/* Returns STORE_OK also if the object is missing. */
static enum store_status add_item(struct request *req, struct many *m,
	const struct read_many_item *item, struct penstock_error *err)
{
	_cleanup_(store_object_unrefp) struct store_object *object = NULL;
	struct read_many_result result = {.status = MHD_HTTP_FORBIDDEN};
	enum store_status status = STORE_OK;

	if (access_of(req, "s3:GetObject",
		    &(struct access_subject){.bucket = req->bucket, .key = item->key}) ==
		ACCESS_ALLOWED) {
		result.status = MHD_HTTP_NOT_FOUND;
		status = store_object_get(req->server->store, req->bucket, item->key, &object, err);
	}
	if (status == STORE_OK && object)
		result.status = add_object(m, item, object, &result);
	else if (status == STORE_NO_SUCH_KEY)
		status = STORE_OK;
	read_many_encode(&result, m->table + m->n * READ_MANY_ENTRY);
	m->n++;
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
	if (r < 0)
		return reply_errorf(req, S3_E_INVALID_REQUEST, "line %zu is invalid", m->n + 1);
	if (*text || m->n == 0)
		return reply_errorf(
			req, S3_E_INVALID_REQUEST, "expected 1 to %d reads", LIMIT_READ_MANY);
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
	m->pieces[0] = (struct MHD_IoVec){m->table, m->n * READ_MANY_ENTRY};
	reply_response(req, MHD_HTTP_OK,
		MHD_create_response_from_iovec(m->pieces, (unsigned)(m->n + 1), many_free, m));
	if (!req->response)
		return;
	take_pointer(m);
	reply_header(req, "Content-Type", "application/octet-stream");
	reply_header(req, READ_MANY_HEADER, READ_MANY_VERSION);
}
