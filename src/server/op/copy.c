#include "server/op/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "s3/conditions.h"
#include "s3/range.h"
#include "s3/uri.h"
#include "server/access/grants.h"
#include "server/access/owner.h"
#include "server/access/access.h"
#include "server/request/headers.h"
#include "server/request/lock.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/tags.h"
#include "store/header.h"

/* Attempts if the source is replaced while it is copied. */
#define COPY_TRIES 8
#define HASH_BLOCK (1 * MIB)

/* The object that is copied. */
struct source {
	const char *bucket, *key;
	const char *version; /* NULL if none is named */
};

/* Splits "[/]bucket/key[?versionId=ID]", percent-encoded. Returns false with a reply set. */
static bool parse_source(struct request *req, struct source *out)
{
	const char *text = request_header(req, "x-amz-copy-source");
	_cleanup_(buf_release) struct buf plain = BUF_INIT(LIMIT_HTTP_HEADERS);
	static const char parameter[] = "?versionId=";
	const char *version = strstr(text, parameter);
	size_t len = version ? (size_t)(version - text) : strlen(text);
	char *slash;

	out->version = version ? version + strlen(parameter) : NULL;
	if (version && !store_version_is_valid(out->version))
		return reply_errorf(req, S3_E_INVALID_ARGUMENT, "Invalid version id specified");
	if (len && *text == '/') {
		text++;
		len--;
	}
	if (uri_decode(&plain, text, len, URI_PLUS_LITERAL) < 0 || !plain.len ||
		!(slash = strchr(plain.data, '/')) || slash == plain.data || !slash[1]) {
		req->no_memory = req->no_memory || buf_failed(&plain);
		reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"Copy Source must mention the source bucket and key: "
			"sourcebucket/sourcekey");
		return false;
	}
	*slash = '\0';
	out->bucket = request_strdup(req, plain.data);
	out->key = request_strdup(req, slash + 1);
	if (!out->bucket || !out->key)
		return reply_error(req, S3_E_SLOW_DOWN);
	return owner_is_expected(req, "x-amz-source-expected-bucket-owner", out->bucket);
}

/* Returns NULL with a reply set, which for a named delete marker is another than that to a GET. */
static struct store_object *find_source(struct request *req, const struct source *from)
{
	_cleanup_(store_object_unrefp) struct store_object *source = NULL;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum store_status status;

	if (!from->version)
		return reply_unless_found(req, from->bucket, from->key, NULL);
	status = store_version_get(
		req->server->store, from->bucket, from->key, from->version, &source, &err);
	if (!reply_unless_stored(req, status, &err))
		return NULL;
	if (!source->marker)
		return take_pointer(source);
	reply_errorf(req, S3_E_INVALID_REQUEST,
		"The source of a copy request may not specifically refer to a delete marker by "
		"version id.");
	return NULL;
}

/* Gets the current source after checking its conditions. Returns NULL with a reply set. */
static struct store_object *open_source(struct request *req, const struct source *from)
{
	_cleanup_(store_object_unrefp) struct store_object *source = find_source(req, from);
	struct conditions c = {.if_match = request_header(req, "x-amz-copy-source-if-match"),
		.if_none_match = request_header(req, "x-amz-copy-source-if-none-match"),
		.if_modified_since = request_header(req, "x-amz-copy-source-if-modified-since"),
		.if_unmodified_since = request_header(
			req, "x-amz-copy-source-if-unmodified-since")};

	if (!source || !conditions_any(&c) ||
		conditions_evaluate_copy_source(
			&c, &(struct condition_state){.exists = true,
				    .etag = source->etag,
				    .modified = source->modified_ns / NS_PER_S}) == CONDITION_PASS)
		return take_pointer(source);
	reply_error(req, S3_E_PRECONDITION_FAILED);
	return NULL;
}

/* --- hashing bytes that are not copied ------------------------------------------------------- */

/* Computes the MD5 of a range and, if `kind` is set, that checksum. */
static int hash_range(struct store_object *source, uint64_t offset, uint64_t length,
	enum checksum_kind kind, char etag[static STORE_ETAG_SIZE],
	char value[static STORE_CHECKSUM_SIZE], struct store_body *copy, struct penstock_error *err)
{
	_cleanup_(checksum_release) struct checksum md5 = {0}, extra = {0};
	struct store_reader *reader = NULL;
	_cleanup_free_ char *block = malloc(HASH_BLOCK);
	uint8_t digest[CHECKSUM_MAX_SIZE];
	int rc = block ? 0 : error_memory(err);

	if (rc == 0)
		rc = store_reader_new(source, &reader, err);
	if (rc == 0)
		rc = checksum_init(&md5, CHECKSUM_MD5, err);
	if (rc == 0 && kind)
		rc = checksum_init(&extra, kind, err);
	while (rc == 0 && length) {
		size_t want = length < HASH_BLOCK ? (size_t)length : HASH_BLOCK;
		ssize_t n = store_reader_read(reader, offset, block, want, err);

		if (n <= 0) {
			rc = -PENSTOCK_E_IO;
			break;
		}
		checksum_update(&md5, block, (size_t)n);
		if (kind)
			checksum_update(&extra, block, (size_t)n);
		if (copy)
			rc = store_body_write(copy, block, (size_t)n, err);
		offset += (uint64_t)n;
		length -= (uint64_t)n;
	}
	if (rc == 0) {
		checksum_final(&md5, digest);
		str_hex(digest, 16, etag);
	}
	if (rc == 0 && kind) {
		checksum_final(&extra, digest);
		checksum_format(kind, digest, value);
	}
	store_reader_free(reader);
	return rc;
}

/* --- CopyObject ------------------------------------------------------------------------------ */

static const char redirect_header[] = "x-amz-website-redirect-location";

/* Returns true for the stored headers that a copy never takes from its source. */
static bool is_of_request(const char *name)
{
	return strcmp(name, "x-amz-storage-class") == 0 || strcmp(name, redirect_header) == 0;
}

static bool keep_headers(struct request *req, const struct store_object *source)
{
	const char *redirect = request_header(req, redirect_header);
	struct buf *out = &req->stored_headers;
	const char *p = NULL, *name, *value;

	/* Tags come on top of the headers that a request can have. */
	buf_init(out, 2 * LIMIT_HTTP_HEADERS);
	while (store_header_next(source->headers, source->headers_len, &p, &name, &value))
		if (*name != ':' && !is_of_request(name))
			store_header_add(out, name, value);
	if (redirect && *redirect)
		store_header_add(out, redirect_header, redirect);
	return headers_add_storage_class(req, out);
}

static bool may(struct request *req, const char *action, const struct source *from)
{
	return access_check_subject(req, action,
		&(struct access_subject){
			.bucket = from->bucket, .key = from->key, .version = from->version});
}

/* Selects the tags of the copy: those of the source or of the request. */
static bool copy_tags(
	struct request *req, const struct source *from, const struct store_object *source)
{
	const char *directive = request_header(req, "x-amz-tagging-directive");
	const char *tags = store_object_header(source, TAGS_HEADER);
	struct buf *out = &req->stored_headers;

	if (directive && strcmp(directive, "REPLACE") == 0)
		return tags_add(req, out);
	if (tags && !may(req, "s3:GetObjectTagging", from))
		return false;
	if (tags)
		store_header_add(out, TAGS_HEADER, tags);
	return true;
}

/* Selects the headers of the copy: those of the source or of the request. */
static bool copy_headers(struct request *req, const struct source *from,
	const struct store_object *source, bool replace)
{
	struct store_put *put = &req->put;

	buf_release(&req->stored_headers);
	if (replace ? !headers_collect(req, &req->stored_headers) : !keep_headers(req, source))
		return false;
	if (!copy_tags(req, from, source) || !grants_add(req, &req->stored_headers) ||
		!lock_add(req, &req->stored_headers))
		return false;
	if (buf_failed(&req->stored_headers))
		return reply_error(req, S3_E_SLOW_DOWN);
	put->headers = req->stored_headers.data;
	put->headers_len = req->stored_headers.len;
	return true;
}

/* Keeps the source's checksum, unless another algorithm is requested. */
static bool copy_checksum(struct request *req, struct store_object *source)
{
	const char *wanted = request_header(req, "x-amz-checksum-algorithm");
	enum checksum_kind kind = wanted ? checksum_find(wanted) : CHECKSUM_NONE;
	struct store_put *put = &req->put;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	char etag[STORE_ETAG_SIZE];

	put->checksum = source->checksum;
	if (!wanted || (kind && kind == checksum_find(source->checksum.algorithm)))
		return true;
	if (!kind)
		return reply_errorf(req, S3_E_INVALID_REQUEST,
			"Value for x-amz-checksum-algorithm header is invalid");
	put->checksum = (struct store_checksum){0};
	if (hash_range(source, 0, source->size, kind, etag, put->checksum.value, NULL, &err) < 0)
		return reply_failure(req, &err);
	snprintf(put->checksum.algorithm, sizeof(put->checksum.algorithm), "%s",
		checksum_name(kind));
	snprintf(put->checksum.type, sizeof(put->checksum.type), "FULL_OBJECT");
	return true;
}

/* Calls `attempt` until it returns true, with a reply set. It returns false if the source was
 * replaced meanwhile. */
static void copy_with(
	struct request *req, bool (*attempt)(struct request *req, const struct source *from))
{
	struct source from = {0};
	int tries = 0;

	if (!parse_source(req, &from) || !may(req, "s3:GetObject", &from))
		return;
	while (!attempt(req, &from)) {
		if (++tries == COPY_TRIES) {
			reply_error(req, S3_E_CONDITIONAL_REQUEST_CONFLICT);
			return;
		}
	}
}

static void reply_source_version(struct request *req, const struct store_object *source)
{
	if (source->versioned)
		reply_header(req, "x-amz-copy-source-version-id", source->version);
}

static bool try_copy(struct request *req, const struct source *from)
{
	const char *directive = request_header(req, "x-amz-metadata-directive");
	bool replace = directive && strcmp(directive, "REPLACE") == 0;
	_cleanup_(store_object_unrefp) struct store_object *source = NULL;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_put *put = &req->put;
	enum store_status status;

	if (strcmp(from->bucket, req->bucket) == 0 && strcmp(from->key, req->key) == 0 &&
		!from->version && !replace && !request_header(req, "x-amz-storage-class") &&
		!request_header(req, redirect_header) &&
		!request_header(req, "x-amz-checksum-algorithm")) {
		reply_errorf(req, S3_E_INVALID_REQUEST,
			"This copy request is illegal because it is trying to copy an object to "
			"itself without changing the object's metadata, storage class, website "
			"redirect location or encryption attributes.");
		return true;
	}
	source = open_source(req, from);
	if (!source)
		return true;
	if (source->size > LIMIT_S3_PUT_MAX) {
		reply_errorf(req, S3_E_INVALID_REQUEST,
			"The specified copy source is larger than the maximum allowable size for a "
			"copy source: %llu",
			(unsigned long long)LIMIT_S3_PUT_MAX);
		return true;
	}
	if (!copy_headers(req, from, source, replace) || !copy_checksum(req, source))
		return true;
	put->bucket = req->bucket;
	put->key = req->key;
	put->source = source;
	put->etag = source->etag;
	put->parts = source->parts;
	put->n_parts = source->n_parts;
	put->origin = op_origin(req, "ObjectCreated:Copy");
	status = store_put(req->server->store, put, &err);
	if (status != STORE_CHANGED && reply_unless_stored(req, status, &err)) {
		reply_result(
			req, S3_REPLY_COPY_OBJECT, source->etag, &put->checksum, put->modified_ns);
		reply_made(req, put->version);
		op_reply_put_end(req);
		reply_source_version(req, source);
	}
	put->source = NULL;
	return status != STORE_CHANGED;
}

void op_copy_object(struct request *req)
{
	const char *directive = request_header(req, "x-amz-metadata-directive");

	if (directive && strcmp(directive, "REPLACE") != 0 && strcmp(directive, "COPY") != 0)
		reply_errorf(req, S3_E_INVALID_ARGUMENT, "Unknown metadata directive.");
	else
		copy_with(req, try_copy);
}

/* --- UploadPartCopy -------------------------------------------------------------------------- */

static bool choose_range(struct request *req, const struct store_object *source)
{
	const char *header = request_header(req, "x-amz-copy-source-range");
	struct byte_range r;

	req->part.offset = 0;
	req->part.length = source->size;
	if (!header)
		return true;
	if (!range_parse_copy_source(header, &r))
		return reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"The x-amz-copy-source-range value must be of the form bytes=first-last "
			"where first and last are the zero-based offsets of the first and last "
			"bytes to copy");
	if (r.last >= source->size)
		return reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"Range specified is not valid for source object of size: %llu",
			(unsigned long long)source->size);
	req->part.offset = r.first;
	req->part.length = byte_range_length(&r);
	return true;
}

/* Hashes the range. The bytes of an inline source, which has no file to share, are written to
 * one. */
static int part_source(struct request *req, struct store_object *source,
	char etag[static STORE_ETAG_SIZE], struct penstock_error *err)
{
	struct store_put *put = &req->part.put;
	enum checksum_kind kind = checksum_find(put->checksum.algorithm);
	bool whole = req->part.length == source->size;
	int rc = 0;

	if (source->body) {
		rc = store_body_new(
			req->server->store, req->part.length, false, &req->body.object, err);
		if (rc == 0)
			rc = hash_range(source, req->part.offset, req->part.length, kind, etag,
				put->checksum.value, req->body.object, err);
		if (rc == 0)
			rc = store_body_sync(req->body.object, err);
		put->body = req->body.object;
		return rc;
	}
	put->source = source;
	if (whole && !kind && !source->n_parts) {
		snprintf(etag, STORE_ETAG_SIZE, "%s", source->etag);
		return 0;
	}
	return hash_range(source, req->part.offset, req->part.length, kind, etag,
		put->checksum.value, NULL, err);
}

static bool try_part_copy(struct request *req, const struct source *from)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(store_object_unrefp) struct store_object *source = open_source(req, from);
	struct store_put *put = &req->part.put;
	enum store_status status = STORE_OK;
	char etag[STORE_ETAG_SIZE] = "";

	if (!source || !choose_range(req, source))
		return true;
	if (req->part.length > LIMIT_S3_PART_MAX) {
		reply_error(req, S3_E_ENTITY_TOO_LARGE);
		return true;
	}
	put->bucket = req->bucket;
	put->key = req->key;
	put->etag = etag;
	if (part_source(req, source, etag, &err) < 0)
		reply_failure(req, &err);
	else
		status = store_part_put(req->server->store, &req->part, &err);
	if (status != STORE_CHANGED && reply_unless_stored(req, status, &err) &&
		!request_replied(req)) {
		reply_result(req, S3_REPLY_COPY_PART, etag, &put->checksum, put->modified_ns);
		reply_source_version(req, source);
	}
	put->source = NULL;
	return status != STORE_CHANGED;
}

void op_upload_part_copy(struct request *req)
{
	copy_with(req, try_part_copy);
}
