#include "server/op/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "s3/conditions.h"
#include "s3/range.h"
#include "s3/message/xml.h"
#include "server/access/access.h"
#include "server/bucket/replica.h"
#include "server/op/verifier.h"
#include "server/request/headers.h"
#include "server/request/lock.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/tags.h"
#include "server/sse/sse.h"
#include "store/header.h"

/* Bytes per read of an object that is decrypted, or that is not in one file. */
#define READ_BLOCK (256 * KIB)

/* Bytes per read if the object is verified while it is sent, or if there are more requests than
 * FEW_REQUESTS at a time. Each connection has this much memory in any case. */
#define SMALL_BLOCK  LIMIT_SERVER_CONNECTION
#define FEW_REQUESTS 256

/* Minimum bytes of a range that is sent by sendfile(2). Smaller ranges are sent from a cached
 * mapping, which is faster; docs/decisions/store-layout.md has the figures. */
#define SENDFILE_MIN (2 * MIB)

/* The part of an object that is sent. */
struct extent {
	uint64_t offset;
	uint64_t length;
	bool partial;
	unsigned part; /* the requested part number; 0 for the whole object */
	const struct store_part *stored; /* the stored part of this number, or NULL */
};

/* --- bodies ---------------------------------------------------------------------------------- */

static void free_object(void *object)
{
	store_object_unref(object);
}

struct stream {
	struct request *req;
	struct verifier verifier;
	struct store_reader *reader;
	uint64_t offset;
};

/* Returns true if the checksum of the object, or the checksums of all its parts, can be computed
 * fast. */
static bool is_comparable(const struct store_object *object)
{
	struct store_span span = {0};

	while (store_span_next(object, &span))
		if (!checksum_is_fast(span.kind))
			return false;
	return true;
}

static bool has_to_be_verified(const struct store_object *object, const struct extent *e)
{
	return !atomic_load_explicit(&object->verified, memory_order_relaxed) &&
	       verifier_applies(object, e->offset, e->length) && is_comparable(object);
}

static struct verifier verifier_of(struct request *req)
{
	return (struct verifier){.server = req->server, .bucket = req->bucket, .key = req->key};
}

static ssize_t stream_read(void *cls, uint64_t pos, char *buf, size_t max)
{
	struct stream *stream = cls;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	ssize_t n = store_reader_read(stream->reader, stream->offset + pos, buf, max, &err);

	if (stream->verifier.object && pos != stream->verifier.summed) {
		error_set(&err, PENSTOCK_E_INTERNAL, "an object is not read in order");
		return reply_cut(stream->req->connection, &err);
	}
	/* The last bytes of a damaged object are not sent, so that no client takes the object to be
	 * complete. */
	if (n > 0 && stream->verifier.object &&
		verifier_add(&stream->verifier, buf, (size_t)n, &err) < 0)
		n = -1;
	return n > 0 ? n : reply_cut(stream->req->connection, &err);
}

static void stream_free(void *cls)
{
	struct stream *stream = cls;

	verifier_end(&stream->verifier);
	store_reader_free(stream->reader);
	free(stream);
}

/* Verifies an object of at most READ_BLOCK bytes before the reply starts. A larger object is
 * verified while it is sent. Sets the reply and returns false if the object is damaged or cannot be
 * read, or if out of memory. */
static bool verify_small(struct request *req, struct store_object *object, const struct extent *e)
{
	_cleanup_free_ char *data = NULL;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_reader *reader = NULL;
	struct verifier verifier = verifier_of(req);
	ssize_t n;
	int rc;

	if (req->head || !e->length || e->length > READ_BLOCK || !has_to_be_verified(object, e))
		return true;
	data = malloc((size_t)e->length);
	if (!data || store_reader_new(object, &reader, NULL) < 0)
		return reply_error(req, S3_E_SLOW_DOWN);
	n = store_reader_read(reader, 0, data, (size_t)e->length, &err);
	store_reader_free(reader);
	if (n < 0)
		return reply_failure(req, &err);
	if (verifier_begin(&verifier, object, NULL) < 0)
		return reply_error(req, S3_E_SLOW_DOWN);
	rc = verifier_add(&verifier, data, (size_t)n, &err);
	verifier_end(&verifier);
	return rc == 0 || reply_failure(req, &err);
}

static ssize_t no_read(void *cls, uint64_t pos, char *buf, size_t max)
{
	(void)cls;
	(void)pos;
	(void)buf;
	(void)max;
	return MHD_CONTENT_READER_END_WITH_ERROR; /* never called: HEAD, or no bytes */
}

/* Returns the bytes per read. The block is small if the object is verified, or if there are many
 * requests: a client that reads nothing keeps its block. */
static size_t block_of(const struct request *req, const struct stream *stream, uint64_t length)
{
	bool small = stream->verifier.object || atomic_load(&req->server->active) > FEW_REQUESTS;
	size_t block = small ? SMALL_BLOCK : READ_BLOCK;

	return length < block ? (size_t)length : block;
}

/* Creates a response that reads the bytes while they are sent. Returns NULL if out of memory. Sets
 * the reply and returns NULL if a file of the object is missing or too short. */
static struct MHD_Response *stream_response(
	struct request *req, struct store_object *object, const struct extent *e)
{
	struct stream *stream = calloc(1, sizeof(*stream));
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct MHD_Response *response;

	if (!stream)
		return NULL;
	stream->req = req;
	stream->verifier = verifier_of(req);
	stream->offset = e->offset;
	if (store_reader_new(object, &stream->reader, NULL) < 0) {
		free(stream);
		return NULL;
	}
	if (has_to_be_verified(object, e) && verifier_begin(&stream->verifier, object, NULL) < 0) {
		stream_free(stream);
		return NULL;
	}
	if (object->encryption == STORE_CUSTOMER_KEY)
		store_reader_set_key(stream->reader, &req->encryption.key);
	if (store_reader_check(stream->reader, e->offset, e->length, &err) < 0) {
		reply_failure(req, &err);
		stream_free(stream);
		return NULL;
	}
	response = MHD_create_response_from_callback(
		e->length, block_of(req, stream, e->length), stream_read, stream, stream_free);
	if (!response)
		stream_free(stream);
	return response;
}

/* Sends from the page cache without a copy. Returns NULL if the bytes are few, or not in one file,
 * or if TLS needs a copy. */
static struct MHD_Response *file_response(
	struct request *req, const struct store_object *object, const struct extent *e)
{
	struct MHD_Response *response;
	uint64_t at;
	int fd = e->length < SENDFILE_MIN || request_tls_version(req)
			 ? -1
			 : store_object_open(object, e->offset, e->length, &at);

	if (fd < 0)
		return NULL;
	response = MHD_create_response_from_fd_at_offset64(e->length, fd, at);
	if (!response)
		close(fd);
	return response;
}

static struct MHD_Response *object_response(
	struct request *req, struct store_object *object, const struct extent *e)
{
	struct MHD_Response *response;
	const char *data;

	if (req->head || e->length == 0)
		return MHD_create_response_from_callback(e->length, 1024, no_read, NULL, NULL);
	if (has_to_be_verified(object, e))
		return stream_response(req, object, e);
	response = file_response(req, object, e);
	if (response)
		return response;
	data = store_object_map(object, e->offset, e->length);
	if (!data)
		return stream_response(req, object, e);
	response = MHD_create_response_from_buffer_with_free_callback_cls(
		(size_t)e->length, (void *)data, free_object, store_object_ref(object));
	if (!response)
		store_object_unref(object);
	return response;
}

/* --- headers --------------------------------------------------------------------------------- */

/* "response-content-type=…" in the query replaces a stored header. */
static const char *const overridable[] = {"cache-control", "content-disposition",
	"content-encoding", "content-language", "content-type", "expires"};

static const char *find_override(struct request *req, const char *name)
{
	char parameter[64];

	if (!req->query || !strstr(req->query, "response-"))
		return NULL;
	snprintf(parameter, sizeof(parameter), "response-%s", name);
	return request_query(req, parameter);
}

/* As with AWS, only a signed request replaces headers: a link must not turn a public text into a
 * web page. Sets the reply and returns false after a refusal. */
static bool may_override(struct request *req)
{
	for (size_t i = 0; req->anonymous && i < ARRAY_SIZE(overridable); i++)
		if (find_override(req, overridable[i]))
			return reply_errorf(req, S3_E_INVALID_REQUEST,
				"Request specific response headers cannot be used for anonymous "
				"GET requests.");
	return true;
}

static bool may(struct request *req, const char *action)
{
	return access_of(req, action,
		       &(struct access_subject){
			       .bucket = req->bucket, .key = req->key, .version = req->version}) ==
	       ACCESS_ALLOWED;
}

/* Adds the header of a reply that corresponds to one of the store's own headers. As with AWS, the
 * sender needs the right to the operation that reads the same property. */
static void add_own_header(struct request *req, const char *name, const char *value)
{
	if (strcmp(name, TAGS_HEADER) == 0 && may(req, "s3:GetObjectTagging"))
		reply_tag_count(req, value);
	else if (strcmp(name, STORE_RETENTION_HEADER) == 0 && may(req, "s3:GetObjectRetention"))
		reply_retention(req, value);
	else if (strcmp(name, STORE_HOLD_HEADER) == 0 && may(req, "s3:GetObjectLegalHold"))
		reply_hold(req, value);
}

static void add_stored_headers(struct request *req, const struct store_object *object)
{
	bool overridden[ARRAY_SIZE(overridable)];
	const char *p = NULL, *name, *value, *status = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(overridable); i++) {
		value = find_override(req, overridable[i]);
		overridden[i] = value != NULL;
		reply_header(req, overridable[i], value);
	}
	while (store_header_next(object->headers, object->headers_len, &p, &name, &value)) {
		bool skip = *name == ':';

		if (skip) {
			add_own_header(req, name, value);
			status = op_replica_status(status, name, value);
		}
		for (size_t i = 0; i < ARRAY_SIZE(overridable); i++)
			skip = skip || (overridden[i] && strcmp(name, overridable[i]) == 0);
		if (!skip)
			reply_header(req, name, value);
	}
	reply_header(req, "x-amz-replication-status", status);
}

static void add_object_headers(
	struct request *req, struct store_object *object, const struct extent *e)
{
	const char *mode = request_header(req, "x-amz-checksum-mode");
	struct store_checksum checksum;
	char range[RANGE_TEXT_SIZE];

	req->object_size = (int64_t)object->size;
	if (!req->head)
		req->sent = e->length;
	reply_modified(req, object);
	reply_etag(req, object->etag);
	reply_version(req, object);
	reply_header(req, "Accept-Ranges", "bytes");
	add_stored_headers(req, object);
	if (!req->version)
		op_reply_end(req, &(struct op_ended){.size = object->size,
					  .modified_ns = object->modified_ns,
					  .headers = object->headers,
					  .headers_len = object->headers_len});
	reply_sse(req, object->encryption);
	if (e->partial && e->length) {
		range_format_content(&(struct byte_range){e->offset, e->offset + e->length - 1},
			object->size, range);
		reply_header(req, "Content-Range", range);
	}
	if (e->stored)
		reply_headerf(req, "x-amz-mp-parts-count", "%zu", object->n_parts);
	if (!mode)
		return;
	checksum = object->checksum;
	if (e->stored && !replica_has_sums(object))
		return;
	if (e->stored)
		memcpy(checksum.value, e->stored->checksum, sizeof(checksum.value));
	if (e->stored || !e->partial || e->length == object->size)
		reply_checksum(req, &checksum);
}

/* --- the requested range --------------------------------------------------------------------- */

static struct condition_state state_of(const struct store_object *object)
{
	return (struct condition_state){
		.exists = true, .etag = object->etag, .modified = object->modified_ns / NS_PER_S};
}

static bool choose_part(struct request *req, const struct store_object *object, struct extent *e)
{
	uint64_t number = 0;

	if (!request_query_number(req, "partNumber", 1, LIMIT_S3_PARTS, &number))
		return false;
	if (!number)
		return true;
	e->part = (unsigned)number;
	e->partial = true;
	if (!object->n_parts && number == 1)
		return true;
	for (size_t i = 0; i < object->n_parts; i++) {
		if (object->parts[i].number == number) {
			e->length = object->parts[i].size;
			e->stored = &object->parts[i];
			return true;
		}
		e->offset += object->parts[i].size;
	}
	return reply_error(req, S3_E_INVALID_PART_NUMBER);
}

static bool choose_extent(struct request *req, const struct store_object *object, struct extent *e)
{
	const char *range = request_header(req, "range");
	struct condition_state state = state_of(object);
	struct byte_range r;
	char text[RANGE_TEXT_SIZE];

	*e = (struct extent){.length = object->size};
	if (!choose_part(req, object, e))
		return false;
	if (e->part && range)
		return reply_errorf(req, S3_E_INVALID_REQUEST,
			"Cannot specify both Range header and partNumber query parameter");
	if (!range || !condition_if_range(request_header(req, "if-range"), &state))
		return true;
	switch (range_parse(range, object->size, &r)) {
	case RANGE_WHOLE:
		break;
	case RANGE_PART:
		e->offset = r.first;
		e->length = byte_range_length(&r);
		e->partial = true;
		break;
	case RANGE_UNSATISFIABLE:
		reply_error(req, S3_E_INVALID_RANGE);
		range_format_unsatisfied(object->size, text);
		reply_header(req, "Content-Range", text);
		return false;
	}
	return true;
}

static bool check_conditions(struct request *req, const struct store_object *object)
{
	struct conditions c = {.if_match = request_header(req, "if-match"),
		.if_none_match = request_header(req, "if-none-match"),
		.if_modified_since = request_header(req, "if-modified-since"),
		.if_unmodified_since = request_header(req, "if-unmodified-since")};
	struct condition_state state = state_of(object);

	if (!conditions_any(&c))
		return true;
	switch (conditions_evaluate(&c, &state, true)) {
	case CONDITION_PASS:
		return true;
	case CONDITION_NOT_MODIFIED:
		reply_error(req, S3_E_NOT_MODIFIED);
		reply_etag(req, object->etag);
		reply_modified(req, object);
		return false;
	case CONDITION_FAILED:
		break;
	}
	return reply_error(req, S3_E_PRECONDITION_FAILED);
}

void op_get_object(struct request *req)
{
	_cleanup_(store_object_unrefp) struct store_object *object = reply_unless_found(
		req, req->bucket, req->key, req->version);
	struct MHD_Response *response;
	struct extent e;

	if (!object || !may_override(req) || !sse_may_read(req, object) ||
		!check_conditions(req, object) || !choose_extent(req, object, &e) ||
		!verify_small(req, object, &e))
		return;
	response = object_response(req, object, &e);
	if (response) {
		reply_response(req, e.partial ? MHD_HTTP_PARTIAL_CONTENT : MHD_HTTP_OK, response);
		/* The decisions on headers must be about this object, not about a newer object. */
		request_keep_object(
			req, req->bucket, req->key, req->version, store_object_ref(object));
		add_object_headers(req, object, &e);
		access_forget(req);
	} else if (!request_replied(req)) {
		reply_error(req, S3_E_SLOW_DOWN);
	}
}

/* --- GetObjectAttributes --------------------------------------------------------------------- */

enum attribute { ETAG, CHECKSUM, OBJECT_PARTS, STORAGE_CLASS, OBJECT_SIZE, ATTRIBUTES };

struct attributes {
	bool wanted[ATTRIBUTES];
	uint64_t marker, max_parts;
};

/* Reads the number in a header, which may be absent. Sets the reply and returns false on
 * failure. */
static bool read_number(struct request *req, const char *name, uint64_t *out)
{
	const char *text = request_header(req, name);

	return !text || str_to_u64(text, 0, INT32_MAX, out) ||
	       reply_errorf(req, S3_E_INVALID_ARGUMENT,
		       "Provided %s not an integer or within integer range", name);
}

/* Reads the list of attributes. Sets the reply and returns false on failure. */
static bool read_attributes(struct request *req, struct attributes *out)
{
	static const char *const names[ATTRIBUTES] = {
		"ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"};
	const char *p = request_header(req, "x-amz-object-attributes");

	if (!p || !*p)
		return reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"The x-amz-object-attributes header specifying the attributes to be "
			"retrieved is missing");
	for (p += strspn(p, ", \t"); *p; p += strspn(p, ", \t")) {
		size_t len = strcspn(p, ", \t"), i = 0;

		while (i < ATTRIBUTES &&
			(strlen(names[i]) != len || strncasecmp(names[i], p, len) != 0))
			i++;
		if (i == ATTRIBUTES)
			return reply_errorf(
				req, S3_E_INVALID_ARGUMENT, "Invalid attribute name specified.");
		out->wanted[i] = true;
		p += len;
	}
	return read_number(req, "x-amz-part-number-marker", &out->marker) &&
	       read_number(req, "x-amz-max-parts", &out->max_parts);
}

static void write_parts(
	struct buf *xml, const struct attributes *attributes, struct store_object *object)
{
	enum checksum_kind kind = replica_has_sums(object)
					  ? checksum_find(object->checksum.algorithm)
					  : CHECKSUM_NONE;
	uint64_t marker = attributes->marker, n = 0, last = marker;
	uint64_t max = attributes->max_parts > 1000 ? 1000 : attributes->max_parts;
	_cleanup_(buf_release) struct buf list = BUF_INIT(LIMIT_XML_BODY);
	bool truncated = false;

	for (size_t i = 0; i < object->n_parts && !truncated; i++) {
		const struct store_part *p = &object->parts[i];

		truncated = p->number > marker && n == max;
		if (p->number <= marker || truncated)
			continue;
		n++;
		last = p->number;
		xml_open(&list, "Part");
		xml_element_u64(&list, "PartNumber", p->number);
		xml_element_u64(&list, "Size", p->size);
		if (kind && p->checksum[0])
			xml_element(&list, checksum_element(kind), p->checksum);
		xml_close(&list, "Part");
	}
	xml_open(xml, "ObjectParts");
	xml_element_u64(xml, "PartsCount", object->n_parts);
	xml_element_u64(xml, "PartNumberMarker", marker);
	xml_element_u64(xml, "NextPartNumberMarker", last);
	xml_element_u64(xml, "MaxParts", max);
	xml_element_bool(xml, "IsTruncated", truncated);
	/* AWS lists the parts only if they have checksums of their own. */
	if (kind && list.len)
		buf_add(xml, list.data, list.len);
	xml_close(xml, "ObjectParts");
}

static void write_attributes(
	struct buf *xml, const struct attributes *attributes, struct store_object *object)
{
	const bool *wanted = attributes->wanted;
	enum checksum_kind kind = checksum_find(object->checksum.algorithm);
	const char *class = store_object_header(object, STORE_CLASS_HEADER);

	xml_declaration(xml);
	xml_open_root(xml, "GetObjectAttributesResponse");
	if (wanted[ETAG])
		xml_element(xml, "ETag", object->etag);
	if (wanted[CHECKSUM] && kind && object->checksum.value[0]) {
		xml_open(xml, "Checksum");
		xml_element(xml, checksum_element(kind), object->checksum.value);
		xml_element(xml, "ChecksumType", object->checksum.type);
		xml_close(xml, "Checksum");
	}
	if (wanted[OBJECT_PARTS] && object->n_parts)
		write_parts(xml, attributes, object);
	if (wanted[STORAGE_CLASS])
		xml_element(xml, "StorageClass", class ? class : "STANDARD");
	if (wanted[OBJECT_SIZE])
		xml_element_u64(xml, "ObjectSize", object->size);
	xml_close(xml, "GetObjectAttributesResponse");
}

void op_object_attributes(struct request *req)
{
	struct attributes attributes = {.max_parts = 1000};
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	_cleanup_(store_object_unrefp) struct store_object *object = NULL;

	if (!read_attributes(req, &attributes))
		return;
	if (!access_check(req, "s3:GetObjectAttributes"))
		return;
	object = reply_unless_found(req, req->bucket, req->key, req->version);
	if (!object || !sse_may_read(req, object))
		return;
	write_attributes(&xml, &attributes, object);
	reply_xml(req, MHD_HTTP_OK, &xml);
	reply_modified(req, object);
	reply_version(req, object);
}
