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
#include "server/op/verifier.h"
#include "server/request/headers.h"
#include "server/request/lock.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/tags.h"
#include "server/sse/sse.h"
#include "store/header.h"

/* Maximum attempts to copy a source that is replaced while it is copied. */
#define COPY_TRIES 8
#define HASH_BLOCK (1 * MIB)
/* A part shares the bytes of its source unless it would have more pieces than FEW_PIECES plus one
 * for each PIECE_SIZE bytes. */
#define FEW_PIECES 16
#define PIECE_SIZE (64 * KIB)

/* The object that is copied. */
struct source {
	const char *bucket, *key;
	const char *version; /* NULL for the current version */
};

/* Splits "[/]bucket/key[?versionId=ID]", percent-encoded. Sets the reply and returns false on
 * failure. */
static bool parse_source(struct request *req, struct source *out)
{
	const char *text = request_header(req, "x-amz-copy-source");
	_cleanup_(buf_release) struct buf plain = BUF_INIT(LIMIT_HTTP_HEADERS);
	size_t len = copy_source_length(text, &out->version);
	char *slash;

	if (out->version && !store_version_is_valid(out->version))
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

/* Gets the source. Sets the reply and returns NULL if the source cannot be read, or is a delete
 * marker. If the request names the version of the delete marker, the reply differs from that to a
 * GET. */
static struct store_object *find_source(struct request *req, const struct source *from)
{
	_cleanup_(store_object_unrefp) struct store_object *source = NULL;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum store_status status;

	if (!from->version)
		return reply_unless_found(req, from->bucket, from->key, NULL);
	status = request_get_object(req, from->bucket, from->key, from->version, &source, &err);
	if (!reply_unless_read(req, status, &err))
		return NULL;
	if (!source->marker)
		return take_pointer(source);
	reply_errorf(req, S3_E_INVALID_REQUEST,
		"The source of a copy request may not specifically refer to a delete marker by "
		"version id.");
	return NULL;
}

/* Gets the current source after checking its conditions. Sets the reply and returns NULL on
 * failure. */
static struct store_object *open_source(struct request *req, const struct source *from)
{
	_cleanup_(store_object_unrefp) struct store_object *source = find_source(req, from);
	struct conditions c = {.if_match = request_header(req, "x-amz-copy-source-if-match"),
		.if_none_match = request_header(req, "x-amz-copy-source-if-none-match"),
		.if_modified_since = request_header(req, "x-amz-copy-source-if-modified-since"),
		.if_unmodified_since = request_header(
			req, "x-amz-copy-source-if-unmodified-since")};

	if (source && !sse_may_copy(req, source))
		return NULL;
	if (!source || !conditions_any(&c) ||
		conditions_evaluate_copy_source(
			&c, &(struct condition_state){.exists = true,
				    .etag = source->etag,
				    .modified = source->modified_ns / NS_PER_S}) == CONDITION_PASS)
		return take_pointer(source);
	reply_error(req, S3_E_PRECONDITION_FAILED);
	return NULL;
}

/* --- bytes that are not shared -------------------------------------------------------------- */

/* A range of a source that is hashed and, if `copy` is set, copied. */
struct reading {
	const struct request *req;
	const struct source *from;
	struct store_object *source;
	const struct store_key *key; /* key of the source; NULL if the source needs no key */
	uint64_t offset, length;
	enum checksum_kind kind; /* kind of `value`; CHECKSUM_NONE if no value is needed */
	struct store_body *copy; /* gets the bytes; may be NULL */
	struct verifier verifier; /* used if verifier_is_needed() for the range */
	char etag[33]; /* result: the MD5 */
	char value[STORE_CHECKSUM_SIZE]; /* result: the checksum of the kind `kind` */
};

static int read_bytes(struct reading *r, struct store_reader *reader, struct checksum *md5,
	struct checksum *extra, struct penstock_error *err)
{
	_cleanup_free_ char *block = malloc(HASH_BLOCK);
	uint64_t offset = r->offset, left = r->length;
	int rc = block ? 0 : error_memory(err);

	while (rc == 0 && left) {
		size_t want = left < HASH_BLOCK ? (size_t)left : HASH_BLOCK;
		ssize_t n;

		if (request_is_abandoned(r->req))
			return error_set(
				err, PENSTOCK_E_CANCELLED, "the client has closed the connection");
		n = store_reader_read(reader, offset, block, want, err);
		if (n <= 0)
			return -PENSTOCK_E_IO;
		checksum_update(md5, block, (size_t)n);
		checksum_update(extra, block, (size_t)n);
		if (r->verifier.object)
			rc = verifier_add(&r->verifier, block, (size_t)n, err);
		if (rc == 0 && r->copy)
			rc = store_body_write(r->copy, block, (size_t)n, err);
		offset += (uint64_t)n;
		left -= (uint64_t)n;
	}
	return rc;
}

/* Hashes and copies a range. A copy of damaged bytes would have checksums that match them, so the
 * bytes of a whole object are compared with its checksums, even if an earlier read has verified
 * them: the disk may have changed them since. */
static int read_range(struct reading *r, struct penstock_error *err)
{
	_cleanup_(checksum_release) struct checksum md5 = {0}, extra = {0};
	struct store_reader *reader = NULL;
	uint8_t digest[CHECKSUM_MAX_SIZE];
	int rc = store_reader_new(r->source, &reader, err);

	if (rc == 0 && r->key)
		store_reader_set_key(reader, r->key);
	if (rc == 0)
		rc = checksum_init(&md5, CHECKSUM_MD5, err);
	if (rc == 0 && r->kind)
		rc = checksum_init(&extra, r->kind, err);
	r->verifier = (struct verifier){
		.server = r->req->server, .bucket = r->from->bucket, .key = r->from->key};
	if (rc == 0 && verifier_applies(r->source, r->offset, r->length))
		rc = verifier_begin(&r->verifier, r->source, err);
	if (rc == 0)
		rc = read_bytes(r, reader, &md5, &extra, err);
	verifier_end(&r->verifier);
	store_reader_free(reader);
	if (rc < 0)
		return rc;
	checksum_final(&md5, digest);
	str_hex(digest, 16, r->etag);
	if (r->kind) {
		checksum_final(&extra, digest);
		checksum_format(r->kind, digest, r->value);
	}
	return r->copy ? store_body_sync(r->copy, err) : 0;
}

/* Fails if a file of a range that is shared is missing or too short. */
static int check_range(const struct reading *r, struct penstock_error *err)
{
	struct store_reader *reader = NULL;
	int rc = store_reader_new(r->source, &reader, err);

	if (rc == 0 && r->key)
		store_reader_set_key(reader, r->key);
	if (rc == 0)
		rc = store_reader_check(reader, r->offset, r->length, err);
	store_reader_free(reader);
	return rc;
}

/* Returns true if the read is so long that the operation has to be repeated in a slot for long
 * jobs. */
static bool needs_slot(struct request *req, uint64_t length)
{
	if (req->is_long || length <= LIMIT_SERVER_SHORT_COPY)
		return false;
	req->is_long = true;
	return true;
}

static const struct store_key *source_key(const struct request *req)
{
	return req->encryption.has_source_key ? &req->encryption.source_key : NULL;
}

/* Creates a body for bytes that are not shared. */
static int make_body(
	struct request *req, uint64_t size, bool may_inline, struct penstock_error *err)
{
	const struct request_encryption *e = &req->encryption;
	int rc;

	store_body_free(take_pointer(req->body.object)); /* left by an earlier attempt */
	rc = store_body_new(req->server->store, size, may_inline, &req->body.object, err);
	if (rc < 0 || e->mode == STORE_PLAIN)
		return rc;
	return store_body_encrypt(
		req->body.object, e->mode == STORE_CUSTOMER_KEY ? &e->key : NULL, err);
}

/* --- CopyObject ------------------------------------------------------------------------------ */

/* Returns true for the stored headers that a copy never takes from its source. */
static bool is_of_request(const char *name)
{
	return strcmp(name, STORE_CLASS_HEADER) == 0 || strcmp(name, REDIRECT_HEADER) == 0;
}

static bool keep_headers(struct request *req, const struct store_object *source)
{
	const char *redirect = request_header(req, REDIRECT_HEADER);
	struct buf *out = &req->stored_headers;
	const char *p = NULL, *name, *value;

	/* Leaves room for the tags in addition to the headers of a request. */
	buf_init(out, 2 * LIMIT_HTTP_HEADERS);
	while (store_header_next(source->headers, source->headers_len, &p, &name, &value))
		if (*name != ':' && !is_of_request(name))
			store_header_add(out, name, value);
	if (redirect && *redirect)
		store_header_add(out, REDIRECT_HEADER, redirect);
	return headers_add_storage_class(req, out);
}

static bool may(struct request *req, const char *action, const struct source *from)
{
	return access_check_subject(req, action,
		&(struct access_subject){
			.bucket = from->bucket, .key = from->key, .version = from->version});
}

/* Takes the tags of the copy from the source or from the request. */
static bool copy_tags(
	struct request *req, const struct source *from, const struct store_object *source)
{
	const char *directive = request_header(req, "x-amz-tagging-directive");
	const char *tags = store_object_header(source, TAGS_HEADER);
	struct buf *out = &req->stored_headers;

	if (directive && strcmp(directive, "REPLACE") == 0)
		return tags_add(req, out);
	if (tags && (!may(req, "s3:GetObjectTagging", from) ||
			    !access_check_implied(req, "s3:PutObjectTagging", false)))
		return false;
	if (tags)
		store_header_add(out, TAGS_HEADER, tags);
	return true;
}

/* Takes the headers of the copy from the source or from the request. */
static bool copy_headers(struct request *req, const struct source *from,
	const struct store_object *source, bool replace)
{
	struct store_put *put = &req->put;

	buf_release(&req->stored_headers);
	if (replace ? !headers_collect(req, &req->stored_headers) : !keep_headers(req, source))
		return false;
	if (!copy_tags(req, from, source) || !grants_add(req, &req->stored_headers) ||
		!lock_add(req, &req->stored_headers) || !sse_add(req, &req->stored_headers))
		return false;
	if (buf_failed(&req->stored_headers))
		return reply_error(req, S3_E_SLOW_DOWN);
	put->headers = req->stored_headers.data;
	put->headers_len = req->stored_headers.len;
	return true;
}

/* Selects the checksum of the copy. The checksum of the source is kept unless the request names
 * another algorithm, or the checksum is composite and the bytes are written again: such a copy has
 * no parts. If the source has no checksum, the copy gets the checksum that a new object would get.
 * Sets the reply and returns false on failure. */
static bool choose_checksum(struct request *req, const struct store_object *source, bool shared,
	enum checksum_kind *computed)
{
	const char *wanted = request_header(req, "x-amz-checksum-algorithm");
	enum checksum_kind has = checksum_find(source->checksum.algorithm);
	enum checksum_kind kind = wanted ? checksum_find(wanted)
				  : has || req->encryption.mode == STORE_CUSTOMER_KEY
					  ? has
					  : CHECKSUM_CRC64NVME;

	*computed = CHECKSUM_NONE;
	if (wanted && !kind)
		return reply_errorf(req, S3_E_INVALID_REQUEST,
			"Value for x-amz-checksum-algorithm header is invalid");
	if (kind != has || (!shared && strcmp(source->checksum.type, "COMPOSITE") == 0))
		*computed = kind;
	return true;
}

/* Gives the copy the parts of the source. If `sums` is false, the parts lose their checksums, which
 * are of a different algorithm. Sets the reply and returns false on failure. */
static bool keep_parts(struct request *req, const struct store_object *source, bool sums)
{
	struct store_part *parts;

	req->put.n_parts = source->n_parts;
	req->put.parts = source->parts;
	if (sums || !source->n_parts)
		return true;
	parts = arena_alloc(&req->arena, source->n_parts * sizeof(*parts));
	for (size_t i = 0; parts && i < source->n_parts; i++) {
		parts[i] = source->parts[i];
		parts[i].checksum[0] = '\0';
	}
	req->put.parts = parts;
	return parts != NULL || reply_error(req, S3_E_SLOW_DOWN);
}

/* Shares the bytes of the source, or writes them again. Sets the reply and returns false on
 * failure; also returns false if the copy needs a slot. */
static bool copy_bytes(struct request *req, const struct source *from, struct store_object *source)
{
	struct reading r = {.req = req,
		.from = from,
		.source = source,
		.key = source_key(req),
		.length = source->size};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	bool shared = sse_shares(req, source);
	struct store_put *put = &req->put;

	if (!choose_checksum(req, source, shared, &r.kind) ||
		((!shared || r.kind) && needs_slot(req, r.length)))
		return false;
	if (!shared && make_body(req, source->size, true, &err) < 0)
		return reply_failure(req, &err);
	r.copy = shared ? NULL : req->body.object;
	if ((r.copy || r.kind ? read_range(&r, &err) : check_range(&r, &err)) < 0)
		return reply_failure(req, &err);
	put->checksum = source->checksum;
	if (r.kind) {
		snprintf(put->checksum.value, sizeof(put->checksum.value), "%s", r.value);
		snprintf(put->checksum.algorithm, sizeof(put->checksum.algorithm), "%s",
			checksum_name(r.kind));
		snprintf(put->checksum.type, sizeof(put->checksum.type), "FULL_OBJECT");
	}
	put->body = r.copy;
	put->parts = NULL;
	put->n_parts = 0;
	put->etag = source->etag;
	if (shared) {
		put->source = keep_parts(req, source, !r.kind) ? source : NULL;
		return put->source != NULL;
	}
	snprintf(req->body.etag, sizeof(req->body.etag), "%s", r.etag);
	put->etag = req->body.etag;
	return sse_etag(req, req->body.etag, &err) == 0 || reply_failure(req, &err);
}

/* Calls `attempt` up to COPY_TRIES times, until it returns true. `attempt` returns true if it has
 * set the reply or the copy needs a slot, and false if the source was replaced in the meantime.
 * Access is checked before each attempt, because the sender may have no right to read the new
 * source, and the key of the sender may have been deleted while the copy was queued. */
static void copy_with(
	struct request *req, bool (*attempt)(struct request *req, const struct source *from))
{
	struct source from = {0};

	if (!parse_source(req, &from))
		return;
	for (int i = 0; i < COPY_TRIES; i++)
		if (!access_check_again(req) || !may(req, "s3:GetObject", &from) ||
			attempt(req, &from))
			return;
	reply_error(req, S3_E_CONDITIONAL_REQUEST_CONFLICT);
}

static void reply_source_version(struct request *req, const struct store_object *source)
{
	if (source->versioned)
		reply_header(req, "x-amz-copy-source-version-id", source->version);
}

static bool try_copy(struct request *req, const struct source *from)
{
	const char *directive = request_header(req, "x-amz-metadata-directive");
	bool replace = directive && strcmp(directive, "REPLACE") == 0, last;
	_cleanup_(store_object_unrefp) struct store_object *source = NULL;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_put *put = &req->put;
	enum store_status status;

	if (strcmp(from->bucket, req->bucket) == 0 && strcmp(from->key, req->key) == 0 &&
		!from->version && !replace && req->encryption.mode == STORE_PLAIN &&
		!request_header(req, "x-amz-storage-class") &&
		!request_header(req, REDIRECT_HEADER) &&
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
	if (!copy_headers(req, from, source, replace) || !copy_bytes(req, from, source))
		return true;
	put->bucket = req->bucket;
	put->bucket_id = req->bucket_id;
	put->key = req->key;
	put->origin = op_origin(req, "ObjectCreated:Copy");
	status = store_put(req->server->store, put, &err);
	/* If `has_decided` is set, the object to be replaced may have changed rather than the
	 * source: another attempt would then fail, too. */
	last = status != STORE_CHANGED || put->condition.has_decided;
	if (last && reply_unless_stored(req, status, &err)) {
		reply_result(
			req, S3_REPLY_COPY_OBJECT, put->etag, &put->checksum, put->modified_ns);
		reply_made(req, put->version);
		op_reply_put_end(req);
		reply_sse(req, req->encryption.mode);
		reply_source_version(req, source);
	}
	put->source = NULL;
	return last;
}

void op_copy_object(struct request *req)
{
	struct store_condition *condition = &req->put.condition;
	bool was_long = req->is_long;

	/* Keep the decision on the object to be replaced: the decision on the source would
	 * overwrite it. */
	if (!was_long)
		request_bind_ref(req, req->key, NULL, condition);
	copy_with(req, try_copy);
	if (req->is_long == was_long)
		store_object_unref(condition->decided);
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

/* Returns false for a range in many small pieces. A reader opens a file for each piece, and each
 * copy of a copy could double the number of pieces. */
static bool has_few_pieces(const struct store_object *source, uint64_t offset, uint64_t length)
{
	uint64_t start = 0, n = 0;

	for (size_t i = 0; i < source->n_pieces && start < offset + length; i++) {
		start += source->pieces[i].length;
		n += start > offset;
	}
	return n <= FEW_PIECES + length / PIECE_SIZE;
}

/* Hashes the range, unless the source has the hashes of the range. Writes the bytes to a file if
 * they cannot be shared with the source. Sets the reply and returns false on failure; also returns
 * false if the copy needs a slot. */
static bool part_source(struct request *req, const struct source *from, struct store_object *source)
{
	struct store_put *put = &req->part.put;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct reading r = {.req = req,
		.from = from,
		.source = source,
		.key = source_key(req),
		.offset = req->part.offset,
		.length = req->part.length,
		.kind = op_part_checksum(req)};
	bool shared = !source->body && sse_shares(req, source) &&
		      has_few_pieces(source, r.offset, r.length);
	bool hashed = shared && r.length == source->size && !source->n_parts &&
		      (!r.kind || r.kind == checksum_find(source->checksum.algorithm));
	int rc;

	if (!hashed && needs_slot(req, r.length))
		return false;
	rc = shared ? 0 : make_body(req, r.length, false, &err);
	if (rc == 0) {
		put->body = r.copy = shared ? NULL : req->body.object;
		rc = hashed ? check_range(&r, &err) : read_range(&r, &err);
	}
	snprintf(req->body.etag, sizeof(req->body.etag), "%.32s", hashed ? source->etag : r.etag);
	snprintf(put->checksum.value, sizeof(put->checksum.value), "%s",
		hashed && r.kind ? source->checksum.value : r.value);
	if (rc == 0 && !hashed)
		rc = sse_etag(req, req->body.etag, &err);
	put->source = rc == 0 && shared ? source : NULL;
	return rc == 0 || reply_failure(req, &err);
}

static bool try_part_copy(struct request *req, const struct source *from)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(store_object_unrefp) struct store_object *source = open_source(req, from);
	struct store_put *put = &req->part.put;
	enum store_status status;

	if (!source || !choose_range(req, source))
		return true;
	if (req->part.length > LIMIT_S3_PART_MAX) {
		reply_error(req, S3_E_ENTITY_TOO_LARGE);
		return true;
	}
	put->bucket = req->bucket;
	put->bucket_id = req->bucket_id;
	put->key = req->key;
	put->etag = req->body.etag;
	if (!part_source(req, from, source))
		return true;
	status = store_part_put(req->server->store, &req->part, &err);
	if (status != STORE_CHANGED && reply_unless_stored(req, status, &err)) {
		reply_result(req, S3_REPLY_COPY_PART, put->etag, &put->checksum, put->modified_ns);
		reply_sse(req, req->encryption.mode);
		reply_source_version(req, source);
	}
	put->source = NULL;
	return status != STORE_CHANGED;
}

void op_upload_part_copy(struct request *req)
{
	copy_with(req, try_part_copy);
}
