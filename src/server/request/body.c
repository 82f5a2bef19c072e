#include "server/request/body.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/str.h"
#include "s3/sum/md5_lanes.h"
#include "server/directory/identity.h"
#include "server/request/hash.h"
#include "server/request/headers.h"
#include "server/request/reply.h"
#include "server/request/request.h"

/* Size above which the sender of a body notices the time that hashing takes. */
#define LARGE (1 * MIB)

void body_release(struct request *req)
{
	struct request_body *body = &req->body;

	if (body->hash_late)
		hasher_forget(req->server->hasher);
	if (body->decoding)
		chunked_decoder_release(&body->decoder);
	buf_release(&body->document);
	store_body_free(body->object);
	checksum_release(&body->md5);
	checksum_release(&body->sha256);
	checksum_release(&body->extra);
	checksum_release(&body->own);
	*body = (struct request_body){.received = body->received};
}

/* --- headers that describe the body ---------------------------------------------------------- */

static bool start_hash(struct request *req, struct checksum *c, enum checksum_kind kind, bool *has)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (!*has && checksum_init(c, kind, &err) < 0)
		return reply_failure(req, &err);
	*has = true;
	return true;
}

/* Finds the only x-amz-checksum-… header with a value. */
static bool find_checksum_header(struct request *req)
{
	struct request_body *b = &req->body;
	uint8_t digest[CHECKSUM_MAX_SIZE];

	for (size_t i = 0; i < req->n_headers; i++) {
		const struct sigv4_header *h = &req->headers[i];
		enum checksum_kind kind;

		if (!headers_is_checksum(h->name))
			continue;
		kind = checksum_find(h->name);
		if (kind == CHECKSUM_NONE)
			return reply_errorf(req, S3_E_NOT_IMPLEMENTED,
				"This store does not implement the checksum of the header %s",
				h->name);
		if (b->extra_kind)
			return reply_errorf(req, S3_E_INVALID_REQUEST,
				"Expecting a single x-amz-checksum- header. Multiple checksum "
				"Types are not allowed");
		if (!checksum_parse(kind, h->value, digest))
			return reply_errorf(req, S3_E_INVALID_REQUEST,
				"Value for %s header is invalid", checksum_header(kind));
		b->extra_kind = kind;
		snprintf(b->extra_wanted, sizeof(b->extra_wanted), "%s", h->value);
	}
	return true;
}

/* Finds the announced trailer, which is a checksum. */
static bool find_trailer(struct request *req)
{
	struct request_body *b = &req->body;
	const char *trailer = request_header(req, "x-amz-trailer");
	enum checksum_kind kind = trailer ? checksum_find(trailer) : CHECKSUM_NONE;

	if (!trailer)
		return true;
	if (kind == CHECKSUM_NONE || strncasecmp(trailer, "x-amz-", 6) != 0 || b->extra_kind ||
		(b->mode != CHUNKED_SIGNED_TRAILER && b->mode != CHUNKED_UNSIGNED_TRAILER))
		return reply_errorf(req, S3_E_INVALID_REQUEST,
			"The value specified in the x-amz-trailer header is not supported");
	b->extra_kind = kind;
	b->extra_in_trailer = true;
	return true;
}

/* Finds the checksum in the headers or the trailer, or the algorithm of a checksum to compute. */
static bool find_checksum(struct request *req)
{
	struct request_body *b = &req->body;
	const char *algorithm = request_header(req, "x-amz-sdk-checksum-algorithm");
	enum checksum_kind kind = algorithm ? checksum_find(algorithm) : CHECKSUM_NONE;
	/* The checksum of CompleteMultipartUpload covers the object, not the list of parts. */
	bool of_object = strcmp(req->method, "POST") == 0 && request_has_query(req, "uploadId");

	if ((!of_object && !find_checksum_header(req)) || !find_trailer(req))
		return false;
	if (algorithm && (!kind || (b->extra_kind && b->extra_kind != kind)))
		return reply_errorf(req, S3_E_INVALID_REQUEST,
			"Value for x-amz-sdk-checksum-algorithm header is invalid");
	if (!b->extra_kind)
		b->extra_kind = kind;
	/* As with AWS, each new object has a checksum, except an object with a customer key: a
	 * checksum of its plain bytes on the disk would reveal something about them. */
	if (!b->extra_kind && (b->kind == BODY_OBJECT || b->kind == BODY_FORM) && !req->upload_id &&
		req->encryption.mode != STORE_CUSTOMER_KEY)
		b->extra_kind = CHECKSUM_CRC64NVME;
	return !b->extra_kind || start_hash(req, &b->extra, b->extra_kind, &b->has_extra);
}

static bool reply_too_long(struct request *req)
{
	return reply_error(req, req->body.kind == BODY_DOCUMENT ? S3_E_MAX_MESSAGE_LENGTH_EXCEEDED
								: S3_E_ENTITY_TOO_LARGE);
}

/* Gets the announced length, from Content-Length or x-amz-decoded-content-length. */
static bool find_length(struct request *req)
{
	struct request_body *b = &req->body;
	const char *length = request_header(req, "content-length");
	const char *decoded = request_header(req, "x-amz-decoded-content-length");
	const char *encoding = request_header(req, "transfer-encoding");
	const char *value = b->mode != CHUNKED_NONE ? decoded : length;

	b->declared = STORE_SIZE_UNKNOWN;
	if (!value && !encoding) {
		if (b->kind == BODY_DOCUMENT)
			return true;
		return reply_error(req, S3_E_MISSING_CONTENT_LENGTH);
	}
	if (value && !str_to_u64(value, 0, INT64_MAX, &b->declared))
		return reply_errorf(
			req, S3_E_INVALID_ARGUMENT, "The length of the body is not a number");
	if (b->declared != STORE_SIZE_UNKNOWN && b->declared > b->limit)
		return reply_too_long(req);
	return true;
}

/* Returns true, and announces the body to the hasher, if the hasher computes the ETag once the body
 * is complete. The hasher is fast with several bodies at a time; a single body is hashed faster
 * while it arrives, which matters for a large body. Several parts of an upload usually arrive at a
 * time. */
static bool hash_late(struct request *req)
{
	const struct request_body *b = &req->body;
	bool large = b->declared > LARGE && !req->upload_id;

	return b->kind == BODY_OBJECT && !b->has_md5 &&
	       atomic_load(&req->server->active) > (large ? MD5_LANES / 2 : 1) &&
	       b->declared != STORE_SIZE_UNKNOWN &&
	       (b->declared > STORE_INLINE_MAX || (b->declared && req->upload_id)) &&
	       b->declared <= LIMIT_SERVER_LATE_HASH && hasher_expect(req->server->hasher);
}

/* Begins the encryption of the body if the request asks for it. */
static int encrypt(struct request *req, struct penstock_error *err)
{
	const struct request_encryption *e = &req->encryption;

	if (e->mode == STORE_PLAIN)
		return 0;
	return store_body_encrypt(
		req->body.object, e->mode == STORE_CUSTOMER_KEY ? &e->key : NULL, err);
}

static bool start_object(struct request *req)
{
	struct request_body *b = &req->body;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	uint64_t room;

	if (b->declared != STORE_SIZE_UNKNOWN && b->declared > STORE_INLINE_MAX) {
		struct store *store = req->server->store;
		int rc = store_free_bytes(store, &room, &err);

		if (rc == 0 && room < b->declared + LIMIT_STORE_RESERVE) {
			store_reclaim(store);
			rc = store_free_bytes(store, &room, &err);
		}
		if (rc < 0)
			return reply_failure(req, &err);
		if (room < b->declared + LIMIT_STORE_RESERVE)
			return reply_error(req, S3_E_STORAGE_FULL);
	}
	/* Parts are files regardless of their size, because an object is assembled from files. */
	if (store_body_new(req->server->store, b->declared, !req->upload_id, &b->object, &err) <
			0 ||
		encrypt(req, &err) < 0)
		return reply_failure(req, &err);
	b->hash_late = hash_late(req);
	return b->hash_late || start_hash(req, &b->md5, CHECKSUM_MD5, &b->has_md5);
}

static int on_data(void *cookie, const void *data, size_t len, struct penstock_error *err);

static int on_trailer(void *cookie, const char *name, const char *value, struct penstock_error *err)
{
	struct request *req = cookie;
	struct request_body *b = &req->body;
	uint8_t digest[CHECKSUM_MAX_SIZE];

	if (!b->extra_in_trailer || checksum_find(name) != b->extra_kind || b->extra_wanted[0]) {
		reply_errorf(req, S3_E_MALFORMED_TRAILER,
			"The trailer %s was not announced by x-amz-trailer, or is repeated", name);
		return error_set(err, PENSTOCK_E_PROTOCOL, "unexpected trailer");
	}
	if (!checksum_parse(b->extra_kind, value, digest)) {
		reply_errorf(req, S3_E_INVALID_REQUEST, "Value for %s trailing header is invalid",
			checksum_header(b->extra_kind));
		return error_set(err, PENSTOCK_E_PROTOCOL, "malformed checksum in the trailer");
	}
	snprintf(b->extra_wanted, sizeof(b->extra_wanted), "%s", value);
	return 0;
}

static bool start_decoder(struct request *req)
{
	struct request_body *b = &req->body;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct sigv4 *signer = server_signer(req->server);
	bool is_signed = b->mode != CHUNKED_UNSIGNED_TRAILER;

	if (!signer)
		return reply_error(req, S3_E_SLOW_DOWN);
	/* The first chunk continues the signature of the head, which has been verified. */
	if (is_signed && (!*req->auth.access_key || req->auth.presigned))
		return reply_errorf(req, S3_E_INVALID_REQUEST,
			"Signed chunks need an Authorization header of Signature Version 4");
	if (is_signed && sigv4_chain_start(signer, &req->auth, req->identity->secret_access_key,
				 &req->chain, &err) < 0)
		return reply_failure(req, &err);
	if (chunked_decoder_init(&b->decoder,
		    &(struct chunked_options){.mode = b->mode,
			    .decoded_length = b->declared == STORE_SIZE_UNKNOWN
						      ? CHUNKED_UNKNOWN_LENGTH
						      : b->declared,
			    .ws = signer,
			    .chain = is_signed ? &req->chain : NULL,
			    .data = on_data,
			    .trailer = on_trailer,
			    .cookie = req},
		    &err) < 0)
		return reply_failure(req, &err);
	b->decoding = true;
	return true;
}

static bool find_md5(struct request *req)
{
	const char *md5 = request_header(req, "content-md5");
	uint8_t digest[CHECKSUM_MAX_SIZE];

	if (!md5)
		return true;
	if (!checksum_parse(CHECKSUM_MD5, md5, digest))
		return reply_error(req, S3_E_INVALID_DIGEST);
	return start_hash(req, &req->body.md5, CHECKSUM_MD5, &req->body.has_md5);
}

bool body_begin_form(struct request *req, body_take_fn take, uint64_t limit)
{
	struct request_body *b = &req->body;

	b->kind = BODY_FORM;
	b->limit = limit;
	b->mode = CHUNKED_NONE;
	b->take = take;
	return find_length(req);
}

bool body_begin_file(struct request *req)
{
	return find_checksum(req) && find_md5(req) && start_object(req);
}

bool body_add_checksum(struct request *req, enum checksum_kind kind)
{
	return start_hash(req, &req->body.own, kind, &req->body.has_own);
}

/* Returns the hash of the body that the signature covers, which a presigned URL may have in its
 * query. */
static const char *announced_sha256(const struct request *req)
{
	return req->auth.payload_hash ? req->auth.payload_hash
				      : request_header(req, "x-amz-content-sha256");
}

bool body_begin(struct request *req, enum body_kind kind, uint64_t limit)
{
	struct request_body *b = &req->body;
	const char *sha256 = announced_sha256(req);
	uint8_t digest[32];

	b->kind = kind;
	b->limit = limit;
	b->mode = chunked_mode_of(sha256);
	if (b->mode == CHUNKED_UNSUPPORTED)
		return reply_errorf(req, S3_E_NOT_IMPLEMENTED,
			"This form of x-amz-content-sha256 is not implemented");
	buf_init(&b->document, kind == BODY_DOCUMENT ? (size_t)limit : 0);
	if (!find_length(req) || !find_checksum(req))
		return false;
	if (sha256 && str_unhex(sha256, digest, sizeof(digest)) == 0 &&
		!start_hash(req, &b->sha256, CHECKSUM_SHA256, &b->has_sha256))
		return false;
	if (!find_md5(req))
		return false;
	if (kind == BODY_OBJECT && !start_object(req))
		return false;
	return b->mode == CHUNKED_NONE || start_decoder(req);
}

/* --- the bytes ----------------------------------------------------------------------------- */

int body_store(struct request *req, const void *data, size_t len, struct penstock_error *err)
{
	struct request_body *b = &req->body;

	if (b->has_md5)
		checksum_update(&b->md5, data, len);
	if (b->has_extra)
		checksum_update(&b->extra, data, len);
	if (b->has_own)
		checksum_update(&b->own, data, len);
	if (b->object)
		return store_body_write(b->object, data, len, err);
	if (b->kind == BODY_DOCUMENT && buf_add(&b->document, data, len) < 0)
		return buf_error(&b->document, "the request", err);
	return 0;
}

static int on_data(void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct request *req = cookie;
	struct request_body *b = &req->body;

	if (len > b->limit - b->received) {
		reply_too_long(req);
		return error_set(err, PENSTOCK_E_LIMIT, "the body is too long");
	}
	b->received += len;
	if (b->kind == BODY_FORM)
		return b->take(req, data, len, err);
	if (b->kind == BODY_DOCUMENT && b->received > LIMIT_SERVER_CONNECTION &&
		!request_hold(req, len)) {
		reply_error(req, S3_E_SLOW_DOWN);
		return error_set(err, PENSTOCK_E_LIMIT, "too many documents");
	}
	return body_store(req, data, len, err);
}

bool body_feed(struct request *req, const void *data, size_t len)
{
	struct request_body *b = &req->body;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int rc;

	/* A hash in x-amz-content-sha256 covers the body as received, and implies that the body is
	 * not chunked. */
	if (b->has_sha256)
		checksum_update(&b->sha256, data, len);
	rc = b->decoding ? chunked_decoder_feed(&b->decoder, data, len, &err)
			 : on_data(req, data, len, &err);
	if (rc == 0)
		return true;
	if (!request_replied(req) && b->decoding && b->decoder.error)
		reply_error(req, b->decoder.error);
	if (!request_replied(req))
		reply_failure(req, &err);
	penstock_error_release(&err);
	return false;
}

bool body_is_whole(const struct request *req)
{
	const struct request_body *b = &req->body;

	/* A chunked body has an end marker, which may still be missing. */
	return !b->decoding && b->declared != STORE_SIZE_UNKNOWN && b->received == b->declared;
}

bool body_finish(struct request *req)
{
	struct request_body *b = &req->body;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char text[CHECKSUM_TEXT_SIZE], hex[65];

	if (b->decoding && chunked_decoder_finish(&b->decoder, &err) < 0) {
		penstock_error_release(&err);
		return !request_replied(req) &&
		       reply_error(req, b->decoder.error ? b->decoder.error : S3_E_INCOMPLETE_BODY);
	}
	if (b->declared != STORE_SIZE_UNKNOWN && b->received != b->declared)
		return reply_error(req, S3_E_INCOMPLETE_BODY);
	if (b->has_sha256) {
		checksum_final(&b->sha256, digest);
		str_hex(digest, 32, hex);
		if (strcasecmp(announced_sha256(req), hex) != 0)
			return reply_error(req, S3_E_XAMZ_CONTENT_SHA256_MISMATCH);
	}
	if (b->has_md5) {
		const char *wanted = request_header(req, "content-md5");

		checksum_final(&b->md5, digest);
		str_hex(digest, 16, b->etag);
		checksum_format(CHECKSUM_MD5, digest, text);
		if (wanted && strcmp(wanted, text) != 0)
			return reply_error(req, S3_E_BAD_DIGEST);
	}
	if (b->has_own) {
		checksum_final(&b->own, digest);
		checksum_format(b->own.kind, digest, b->own_value);
	}
	if (!b->has_extra)
		return true;
	checksum_final(&b->extra, digest);
	checksum_format(b->extra_kind, digest, b->extra_value);
	if (b->extra_in_trailer && !b->extra_wanted[0])
		return reply_errorf(req, S3_E_MALFORMED_TRAILER,
			"The trailer announced by x-amz-trailer is missing");
	return !b->extra_wanted[0] || strcmp(b->extra_wanted, b->extra_value) == 0 ||
	       reply_errorf(req, S3_E_BAD_DIGEST,
		       "The %s you specified did not match the calculated checksum",
		       checksum_name(b->extra_kind));
}
