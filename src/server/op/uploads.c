#include "server/op/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "s3/multipart.h"
#include "server/access/grants.h"
#include "server/access/owner.h"
#include "server/request/headers.h"
#include "server/request/lock.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/tags.h"
#include "server/sse/sse.h"
#include "store/header.h"

/* --- CreateMultipartUpload ------------------------------------------------------------------- */

/* Selects the algorithm and type of the object's checksum. Sets the reply and returns false on
 * failure. */
static bool choose_checksum(struct request *req, struct store_checksum *out)
{
	const char *algorithm = request_header(req, "x-amz-checksum-algorithm");
	const char *type = request_header(req, "x-amz-checksum-type");
	enum checksum_kind kind = algorithm ? checksum_find(algorithm) : CHECKSUM_NONE;
	bool full;

	if (algorithm && !kind)
		return reply_errorf(req, S3_E_INVALID_REQUEST,
			"Checksum algorithm provided is unsupported. Please try again with any of "
			"the valid types: [CRC32, CRC32C, CRC64NVME, MD5, SHA1, SHA256, SHA512, "
			"XXHASH64, XXHASH3, XXHASH128]");
	if (type && strcmp(type, "FULL_OBJECT") != 0 && strcmp(type, "COMPOSITE") != 0)
		return reply_errorf(req, S3_E_INVALID_REQUEST,
			"Value for x-amz-checksum-type header is invalid");
	if (type && !kind)
		return reply_errorf(req, S3_E_INVALID_REQUEST,
			"The x-amz-checksum-type header can only be used with the "
			"x-amz-checksum-algorithm header");
	if (!kind)
		return true;
	full = type ? strcmp(type, "FULL_OBJECT") == 0 : kind == CHECKSUM_CRC64NVME;
	if (full ? !checksum_is_crc(kind) : kind == CHECKSUM_CRC64NVME)
		return reply_errorf(req, S3_E_INVALID_REQUEST,
			"The %s checksum type cannot be used with the %s checksum algorithm",
			full ? "FULL_OBJECT" : "COMPOSITE", checksum_name(kind));
	snprintf(out->algorithm, sizeof(out->algorithm), "%s", checksum_name(kind));
	snprintf(out->type, sizeof(out->type), full ? "FULL_OBJECT" : "COMPOSITE");
	return true;
}

void op_create_upload(struct request *req)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	char id[STORE_UPLOAD_ID_SIZE];
	struct store_upload upload = {0};

	if (!headers_collect(req, &req->stored_headers) || !tags_add(req, &req->stored_headers) ||
		!grants_add(req, &req->stored_headers) || !lock_add(req, &req->stored_headers) ||
		!op_replica_add(req, &req->stored_headers) || !sse_add(req, &req->stored_headers) ||
		!choose_checksum(req, &upload.checksum))
		return;
	upload.headers = req->stored_headers.data;
	upload.headers_len = req->stored_headers.len;
	if (!reply_unless_stored(req,
		    store_upload_create(req->server->store, req->bucket, req->bucket_id, req->key,
			    &upload, id, &err),
		    &err))
		return;
	s3_reply_write(&xml, &(struct s3_reply){.kind = S3_REPLY_INITIATE,
				     .bucket = req->bucket,
				     .key = req->key,
				     .upload_id = id});
	reply_xml(req, MHD_HTTP_OK, &xml);
	reply_sse(req, req->encryption.mode);
	if (upload.checksum.algorithm[0]) {
		reply_header(req, "x-amz-checksum-algorithm", upload.checksum.algorithm);
		reply_header(req, "x-amz-checksum-type", upload.checksum.type);
	}
	op_reply_upload_end(req, clock_wall_ns());
}

/* --- AbortMultipartUpload -------------------------------------------------------------------- */

static bool find_upload_id(struct request *req)
{
	req->upload_id = request_query(req, "uploadId");
	return req->upload_id || reply_error(req, S3_E_NO_SUCH_UPLOAD);
}

/* Compares the start of the upload with the time in the request, which may be NULL. As AWS
 * documents, a missing upload counts as aborted, and the reply is 204. Sets the reply and returns
 * false if the upload is missing or the times differ. */
static bool is_of_time(struct request *req, const char *time)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_condition wanted = {0};
	struct store_upload upload = {0};
	enum store_status status;

	if (!time)
		return true;
	if (!condition_add_state(&wanted, NULL, time))
		return reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"The value of x-amz-if-match-initiated-time is not a time");
	status = store_upload_get(
		req->server->store, req->bucket, req->key, req->upload_id, &upload, &err);
	free(upload.headers);
	if (status == STORE_NO_SUCH_UPLOAD) {
		penstock_error_release(&err);
		reply_empty(req, MHD_HTTP_NO_CONTENT);
		return false;
	}
	return reply_unless_stored(req, status, &err) &&
	       (upload.started_ns / NS_PER_S == wanted.modified_s ||
		       reply_error(req, S3_E_PRECONDITION_FAILED));
}

void op_abort_upload(struct request *req)
{
	const char *time = request_header(req, "x-amz-if-match-initiated-time");
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (find_upload_id(req) && is_of_time(req, time) &&
		reply_unless_stored(req,
			store_upload_abort(req->server->store, req->bucket, req->bucket_id,
				req->key, req->upload_id, &err),
			&err))
		reply_empty(req, MHD_HTTP_NO_CONTENT);
}

enum checksum_kind op_part_checksum(const struct request *req)
{
	const char *algorithm = req->part.put.checksum.algorithm;

	if (algorithm[0])
		return checksum_find(algorithm);
	return req->encryption.mode == STORE_CUSTOMER_KEY ? CHECKSUM_NONE : CHECKSUM_CRC64NVME;
}

/* Returns the kind of the checksums of the parts. */
static enum checksum_kind kind_of(const struct store_upload *upload)
{
	return upload->checksum.algorithm[0] ? checksum_find(upload->checksum.algorithm)
					     : CHECKSUM_CRC64NVME;
}

/* --- ListParts ------------------------------------------------------------------------------- */

static void write_parts(struct request *req, struct s3_parts *list,
	const struct store_upload *upload, const struct store_part *parts)
{
	enum checksum_kind kind = kind_of(upload);
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	_cleanup_free_ struct s3_part *out = calloc(list->n + 1, sizeof(*out));

	if (!out) {
		reply_error(req, S3_E_SLOW_DOWN);
		return;
	}
	for (size_t i = 0; i < list->n; i++) {
		out[i] = (struct s3_part){.number = parts[i].number,
			.etag = request_quote(req, parts[i].etag),
			.size = parts[i].size,
			.modified_ns = parts[i].modified_ns};
		if (kind && parts[i].checksum[0])
			out[i].checksums[kind] = parts[i].checksum;
	}
	list->parts = out;
	if (list->n)
		list->next_marker = parts[list->n - 1].number;
	s3_parts_write(&xml, list);
	reply_xml(req, MHD_HTTP_OK, &xml);
}

void op_list_parts(struct request *req)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_parts list = {.bucket = req->bucket, .key = req->key};
	struct store_upload upload = {0};
	struct store_part_page page = {0};
	struct store_bucket bucket;
	uint64_t marker = 0, max = 1000;
	enum store_status status;

	if (!find_upload_id(req) || !owner_of_request_bucket(req, &bucket, &list.owner) ||
		!request_query_number(req, "part-number-marker", 0, INT32_MAX, &marker) ||
		!request_query_number(req, "max-parts", 0, INT32_MAX, &max))
		return;
	list.upload_id = req->upload_id;
	list.marker = (unsigned)marker;
	list.max_parts = max > 1000 ? 1000 : (unsigned)max;
	status = store_upload_get(
		req->server->store, req->bucket, req->key, req->upload_id, &upload, &err);
	if (status == STORE_OK)
		status = store_part_list(req->server->store, req->bucket, req->key, req->upload_id,
			list.marker, list.max_parts, &page, &err);
	if (reply_unless_stored(req, status, &err) &&
		(!req->encryption.has_key || sse_of_upload(req, &upload))) {
		if (upload.checksum.algorithm[0]) {
			list.checksum_algorithm = upload.checksum.algorithm;
			list.checksum_type = upload.checksum.type;
		}
		list.owner = owner_of_headers(req, upload.headers, upload.headers_len);
		list.storage_class = store_header_find(
			upload.headers, upload.headers_len, STORE_CLASS_HEADER);
		list.n = page.n;
		list.truncated = page.truncated;
		write_parts(req, &list, &upload, page.parts);
		op_reply_upload_end(req, upload.started_ns);
	}
	free(page.parts);
	store_upload_release(&upload);
}

/* --- CompleteMultipartUpload ----------------------------------------------------------------- */

struct completion {
	struct request *req;
	struct s3_complete wanted;
	struct store_upload upload;
	struct store_part_page stored; /* all parts of the upload */
	struct store_part *parts; /* the selected parts */
	char etag[MULTIPART_ETAG_SIZE];
	struct store_checksum checksum;
};

static bool has_etag(const struct store_part *part, const struct s3_part *wanted)
{
	const char *etag = wanted->etag ? wanted->etag : "";
	size_t len = strlen(etag);

	if (len >= 2 && etag[0] == '"' && etag[len - 1] == '"') {
		etag++;
		len -= 2;
	}
	return strlen(part->etag) == len && memcmp(part->etag, etag, len) == 0;
}

/* Finds the stored part named by an entry of the document. Sets the reply and returns false on
 * failure. */
static bool pick_part(struct completion *c, const struct s3_part *wanted, struct store_part *out)
{
	enum checksum_kind kind = kind_of(&c->upload);
	const struct store_part *found = NULL;

	for (size_t i = 0; i < c->stored.n && !found; i++)
		if (c->stored.parts[i].number == wanted->number)
			found = &c->stored.parts[i];
	for (int k = CHECKSUM_NONE + 1; k < CHECKSUM_KIND_COUNT_; k++)
		if (wanted->checksums[k] && (enum checksum_kind)k != kind)
			return reply_errorf(c->req, S3_E_INVALID_REQUEST,
				"Part %u has a %s checksum, which its upload does not have",
				wanted->number, checksum_name((enum checksum_kind)k));
	if (!found || !has_etag(found, wanted) ||
		(kind && wanted->checksums[kind] &&
			strcmp(wanted->checksums[kind], found->checksum) != 0))
		return reply_error(c->req, S3_E_INVALID_PART);
	*out = *found;
	return true;
}

/* Selects the parts, and checks the announced size of the object. */
static bool pick_parts(struct completion *c)
{
	const char *text = request_header(c->req, "x-amz-mp-object-size");
	uint64_t sum = 0, size;

	c->parts = calloc(c->wanted.n, sizeof(*c->parts));
	if (!c->parts)
		return reply_error(c->req, S3_E_SLOW_DOWN);
	for (size_t i = 0; i < c->wanted.n; i++) {
		if (!pick_part(c, &c->wanted.parts[i], &c->parts[i]))
			return false;
		sum += c->parts[i].size;
	}
	if (!text || (str_to_u64(text, 0, UINT64_MAX, &size) && size == sum))
		return true;
	return reply_errorf(c->req, S3_E_INVALID_REQUEST,
		"The provided 'x-amz-mp-object-size' header value %s does not match what was "
		"computed: %llu",
		text, (unsigned long long)sum);
}

static uint64_t total(const struct completion *c)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < c->wanted.n; i++)
		sum += c->parts[i].size;
	return sum;
}

static bool compute_etag(struct completion *c)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ uint8_t(*md5)[16] = calloc(c->wanted.n, sizeof(*md5));
	int rc = md5 ? 0 : error_memory(&err);
	char quoted[MULTIPART_ETAG_SIZE];

	for (size_t i = 0; rc == 0 && i < c->wanted.n; i++)
		if (str_unhex(c->parts[i].etag, md5[i], 16) < 0)
			rc = error_set(&err, PENSTOCK_E_CORRUPT, "a part has no MD5");
	if (rc == 0)
		rc = multipart_etag(md5, c->wanted.n, quoted, &err);
	if (rc < 0)
		return reply_failure(c->req, &err);
	snprintf(c->etag, sizeof(c->etag), "%s", etag_unquote(quoted));
	return true;
}

/* Computes the composite checksum of the object: the checksum of the checksums of the parts. */
static int composite(struct completion *c, enum checksum_kind kind, struct penstock_error *err)
{
	_cleanup_(checksum_release) struct checksum whole = {0};
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char text[CHECKSUM_TEXT_SIZE];
	int rc = checksum_init(&whole, kind, err);

	for (size_t i = 0; rc == 0 && i < c->wanted.n; i++) {
		if (!checksum_parse(kind, c->parts[i].checksum, digest))
			rc = error_set(err, PENSTOCK_E_CORRUPT, "a part has no checksum");
		else
			checksum_update(&whole, digest, checksum_size(kind));
	}
	if (rc == 0) {
		checksum_final(&whole, digest);
		checksum_format(kind, digest, text);
		snprintf(c->checksum.value, sizeof(c->checksum.value), "%s-%zu", text, c->wanted.n);
	}
	return rc;
}

/* Combines the checksums of the parts into the checksum of the object. */
static int full_object(struct completion *c, enum checksum_kind kind, struct penstock_error *err)
{
	uint8_t digest[CHECKSUM_MAX_SIZE], next[CHECKSUM_MAX_SIZE];

	for (size_t i = 0; i < c->wanted.n; i++) {
		if (!checksum_parse(kind, c->parts[i].checksum, i ? next : digest))
			return error_set(err, PENSTOCK_E_CORRUPT, "a part has no checksum");
		if (i)
			checksum_combine(kind, digest, next, c->parts[i].size);
	}
	checksum_format(kind, digest, c->checksum.value);
	return 0;
}

/* Compares the checksum with the checksums in the request. */
static bool compare_checksum(struct completion *c, enum checksum_kind kind)
{
	const char *type = request_header(c->req, "x-amz-checksum-type");
	size_t len = strcspn(c->checksum.value, "-");

	if (type && strcmp(type, c->checksum.type) != 0)
		return reply_errorf(c->req, S3_E_INVALID_REQUEST,
			"The upload does not have the checksum type %s", type);
	for (size_t i = 0; i < c->req->n_headers; i++) {
		const struct sigv4_header *h = &c->req->headers[i];

		if (!headers_is_checksum(h->name))
			continue;
		if (!kind || checksum_find(h->name) != kind)
			return reply_errorf(c->req, S3_E_INVALID_REQUEST,
				"The upload does not have the checksum of the header %s", h->name);
		/* A composite checksum may be sent without its "-N". */
		if (strcmp(c->checksum.value, h->value) != 0 &&
			(strlen(h->value) != len || memcmp(c->checksum.value, h->value, len) != 0))
			return reply_errorf(c->req, S3_E_BAD_DIGEST,
				"The %s you specified did not match the calculated checksum",
				checksum_name(kind));
	}
	return true;
}

/* As with AWS, an object has the checksum CRC64NVME if its upload names no algorithm. Returns false
 * if a part has no checksum, because it has a customer key, or because an older version of penstock
 * has stored it. */
static bool choose_default(struct completion *c)
{
	for (size_t i = 0; i < c->wanted.n; i++)
		if (!c->parts[i].checksum[0])
			return false;
	snprintf(c->checksum.algorithm, sizeof(c->checksum.algorithm), "%s",
		checksum_name(CHECKSUM_CRC64NVME));
	snprintf(c->checksum.type, sizeof(c->checksum.type), "FULL_OBJECT");
	return true;
}

/* Computes the checksum, and compares it with the checksum in the request. */
static bool compute_checksum(struct completion *c)
{
	enum checksum_kind kind = kind_of(&c->upload);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int rc;

	c->checksum = c->upload.checksum;
	if (!c->checksum.algorithm[0] && !choose_default(c))
		return compare_checksum(c, CHECKSUM_NONE);
	if (strcmp(c->checksum.type, "COMPOSITE") == 0)
		rc = composite(c, kind, &err);
	else
		rc = full_object(c, kind, &err);
	if (rc < 0)
		return reply_failure(c->req, &err);
	return compare_checksum(c, kind);
}

static bool names_parts(const struct s3_complete *wanted, const struct store_object *object)
{
	bool same = wanted->n == object->n_parts;

	for (size_t i = 0; same && i < wanted->n; i++)
		same = wanted->parts[i].number == object->parts[i].number &&
		       has_etag(&object->parts[i], &wanted->parts[i]);
	return same;
}

/* Replies to a repeated request: the first reply may have been lost. */
static void complete_again(struct request *req, const struct s3_complete *wanted)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(store_object_unrefp) struct store_object *object = NULL;
	enum store_status status = store_completed_get(
		req->server->store, req->bucket, req->key, req->upload_id, &object, &err);

	if (status == STORE_OK && !names_parts(wanted, object))
		status = STORE_NO_SUCH_UPLOAD;
	if (!reply_unless_stored(req, status, &err))
		return;
	reply_result(req, S3_REPLY_COMPLETE, object->etag, &object->checksum, 0);
	reply_version(req, object);
	reply_sse(req, object->encryption);
}

void op_complete_upload(struct request *req)
{
	struct completion c = {.req = req};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store *store = req->server->store;
	enum store_status status;

	if (!find_upload_id(req))
		return;
	if (s3_complete_parse(
		    buf_str(&req->body.document), req->body.document.len, &c.wanted, &err) < 0) {
		reply_document_error(req, c.wanted.problem, &err);
		return;
	}
	status = store_upload_get(store, req->bucket, req->key, req->upload_id, &c.upload, &err);
	if (status == STORE_OK)
		status = store_part_list(store, req->bucket, req->key, req->upload_id, 0,
			LIMIT_S3_PARTS, &c.stored, &err);
	if (status == STORE_NO_SUCH_UPLOAD)
		complete_again(req, &c.wanted);
	else if (reply_unless_stored(req, status, &err) && sse_of_upload(req, &c.upload) &&
		 pick_parts(&c) && compute_etag(&c) && compute_checksum(&c)) {
		struct store_complete complete = {.bucket = req->bucket,
			.bucket_id = req->bucket_id,
			.key = req->key,
			.upload = req->upload_id,
			.parts = c.parts,
			.n_parts = c.wanted.n,
			.etag = c.etag,
			.checksum = c.checksum,
			.origin = op_origin(req, "ObjectCreated:CompleteMultipartUpload"),
			.condition = headers_condition(req)};

		request_bind(req, req->key, NULL, &complete.condition);
		status = store_complete(store, &complete, &err);
		if (status == STORE_NO_SUCH_UPLOAD) {
			complete_again(req, &c.wanted);
		} else if (reply_unless_stored(req, status, &err)) {
			reply_result(req, S3_REPLY_COMPLETE, c.etag, &c.checksum, 0);
			reply_made(req, complete.version);
			op_reply_end(req, &(struct op_ended){.size = total(&c),
						  .modified_ns = complete.modified_ns,
						  .headers = c.upload.headers,
						  .headers_len = c.upload.headers_len});
			reply_sse(req, req->encryption.mode);
		}
	}
	s3_complete_release(&c.wanted);
	store_upload_release(&c.upload);
	free(c.stored.parts);
	free(c.parts);
}
