/* The PUT of an object or a part: its body, checksum and conditions. */
#include "transfer/put/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "s3/sign/chunked.h"

/* A file up to this size is read at once and sent with its headers. */
#define SMALL_FILE_MAX (64 * KIB)
/* Data bytes per chunk of an aws-chunked body. */
#define CHUNK (1 * MIB)

/* ---- the body ---- */

/* Reads the next data of the body into curl's buffer. */
static ssize_t body_data(struct put_body *body, void *out, size_t size, struct penstock_error *err)
{
	uint64_t left = body->length - body->sent;
	ssize_t n;

	if (size > left)
		size = (size_t)left;
	if (body->data) {
		memcpy(out, body->data + body->sent, size);
	} else {
		n = fs_pread_all(body->fd, out, size, (off_t)(body->offset + body->sent));
		if (n < 0) {
			error_errno(err, errno, "cannot read the file");
			return -1;
		}
		if ((size_t)n < size) {
			error_set(err, PENSTOCK_E_CHANGED,
				"the file became shorter while it was sent");
			return -1;
		}
	}
	/* Check after reading the last bytes: later changes of the file are not in the object. */
	if (body->last && size == left && body->still_valid && !body->still_valid(body->cookie)) {
		error_set(err, PENSTOCK_E_CHANGED, "the file changed while it was sent");
		return -1;
	}
	if (body->sum.kind)
		checksum_update(&body->sum, out, size);
	body->sent += size;
	if (body->progress)
		body->progress(body->cookie, (int64_t)size);
	return (ssize_t)size;
}

static void frame_set(struct put_body *body, size_t len)
{
	body->frame_at = 0;
	body->frame_len = len;
}

/* Sets up the next framing of an aws-chunked body; returns false at the end of the body. */
static bool frame_next(struct put_body *body)
{
	uint64_t left = body->length - body->sent;

	if (body->in_chunk) { /* the data of the chunk was sent */
		body->in_chunk = false;
		memcpy(body->frame, "\r\n", 2);
		frame_set(body, 2);
		return true;
	}
	if (body->ended)
		return false;
	if (left) {
		body->chunk_left = left < CHUNK ? left : CHUNK;
		frame_set(body, chunked_head(body->chunk_left, body->frame));
		body->in_chunk = true;
		return true;
	}
	checksum_final(&body->sum, body->digest);
	frame_set(body, chunked_tail(body->sum.kind, body->digest, body->frame));
	body->ended = true;
	return true;
}

static ssize_t body_chunked(
	struct put_body *body, char *out, size_t size, struct penstock_error *err)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n;

		/* Send the remaining bytes of the frame first. */
		if (body->frame_at < body->frame_len) {
			size_t rest = body->frame_len - body->frame_at;
			size_t now = rest < size - done ? rest : size - done;

			memcpy(out + done, body->frame + body->frame_at, now);
			body->frame_at += now;
			done += now;
			continue;
		}
		if (!body->in_chunk || body->chunk_left == 0) {
			if (!frame_next(body))
				break;
			continue;
		}
		n = body_data(body, out + done,
			size - done < body->chunk_left ? size - done : (size_t)body->chunk_left,
			err);
		if (n < 0)
			return n;
		body->chunk_left -= (uint64_t)n;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static ssize_t body_read(void *cookie, void *out, size_t size, struct penstock_error *err)
{
	struct put_body *body = cookie;

	if (body->chunked)
		return body_chunked(body, out, size, err);
	return body_data(body, out, size, err);
}

int put_body_rewind(void *cookie)
{
	struct put_body *body = cookie;

	if (body->progress && body->sent)
		body->progress(body->cookie, -(int64_t)body->sent);
	body->sent = 0;
	body->in_chunk = false;
	body->ended = false;
	frame_set(body, 0);
	return body->sum.kind ? checksum_reset(&body->sum) : 0;
}

void put_body_release(struct put_body *body)
{
	checksum_release(&body->sum);
	free(body->small);
	*body = (struct put_body){.fd = -1};
}

int put_body_sum(const struct put_body *body, enum checksum_kind kind,
	uint8_t digest[static CHECKSUM_MAX_SIZE], struct penstock_error *err)
{
	return body->data ? checksum_of(kind, body->data, body->length, digest, err)
			  : checksum_of_file(
				    body->fd, kind, body->offset, body->length, NULL, digest, err);
}

bool put_body_has_md5(const struct put_body *body, const char *etag)
{
	uint8_t stored[16], md5[CHECKSUM_MAX_SIZE];

	return object_etag_md5(etag, stored) && put_body_sum(body, CHECKSUM_MD5, md5, NULL) == 0 &&
	       memcmp(stored, md5, sizeof(stored)) == 0;
}

/* Reads a small file into memory. */
static int body_load(struct put_body *body, struct penstock_error *err)
{
	ssize_t n;

	if (body->data || body->length > SMALL_FILE_MAX)
		return 0;
	body->small = malloc(body->length + 1);
	if (!body->small)
		return error_memory(err);
	n = fs_pread_all(body->fd, body->small, body->length, (off_t)body->offset);
	if (n < 0)
		return error_errno(err, errno, "cannot read the file");
	if ((uint64_t)n < body->length)
		return error_set(
			err, PENSTOCK_E_CHANGED, "the file became shorter while it was sent");
	body->data = body->small;
	return 0;
}

/* Puts "aws-chunked" before the object's own Content-Encoding, if it has one. */
static void encode_chunked(struct s3_op *op)
{
	for (size_t i = 0; i < op->n_headers; i++) {
		struct sigv4_header *header = &op->headers[i];
		char *both;

		if (strcmp(header->name, "content-encoding") != 0)
			continue;
		both = str_printf("aws-chunked,%s", header->value);
		if (!both) {
			error_memory(&op->failed);
			return;
		}
		free((char *)header->value);
		header->value = both;
		return;
	}
	s3_op_header(op, "content-encoding", "aws-chunked");
}

int put_body_attach(
	struct s3_op *op, struct put_body *body, enum guard guard, struct penstock_error *err)
{
	const char *header = checksum_header(op->at.client->guard_kind);
	char text[CHECKSUM_TEXT_SIZE], length[24];
	int r = body_load(body, err);

	if (r < 0)
		return r;
	body->guard = guard;
	body->kind = op->at.client->guard_kind;
	if (body->data && body->length <= SMALL_FILE_MAX) {
		s3_op_body(op, body->data, body->length);
		if (guard == GUARD_TRAILER)
			guard = GUARD_HEADER;
		body->inline_body = true;
	} else {
		op->payload_hash = SIGV4_UNSIGNED_PAYLOAD;
		op->request.bulk = true;
		op->request.source = (struct http_source){.kind = HTTP_SOURCE_CALLBACK,
			.length = body->length,
			.read = body_read,
			.rewind = put_body_rewind,
			.cookie = body};
	}
	if (guard == GUARD_TRAILER) {
		snprintf(length, sizeof(length), "%llu", (unsigned long long)body->length);
		encode_chunked(op);
		s3_op_header(op, "x-amz-decoded-content-length", length);
		s3_op_header(op, "x-amz-trailer", header);
		op->payload_hash = SIGV4_STREAMING_UNSIGNED_TRAILER;
		op->request.source.length = chunked_encoded_length(body->length, CHUNK, body->kind);
		body->chunked = true;
		return checksum_init(&body->sum, body->kind, err);
	}
	if (guard == GUARD_HEADER) {
		r = put_body_sum(body, body->kind, body->digest, err);
		if (r < 0)
			return r;
		checksum_format(body->kind, body->digest, text);
		s3_op_header(op, header, text);
		return 0;
	}
	r = checksum_init(&body->sum, CHECKSUM_MD5, err);
	if (r == 0 && body->inline_body)
		checksum_update(&body->sum, body->data, body->length);
	return r;
}

/* ---- verifying the reply ---- */

static int corrupt(struct penstock_error *err, const struct s3_op *op, const char *what)
{
	return error_set(err, PENSTOCK_E_CORRUPT,
		"%s: the object differs from the bytes that were sent (wrong %s)", op->what, what);
}

static int verify_etag(struct s3_op *op, struct put_body *body, struct penstock_error *err)
{
	uint8_t stored[16];
	uint8_t sent[CHECKSUM_MAX_SIZE];
	int r = 0;

	if (!object_reply_md5(&op->reply, stored))
		return 0;
	if (body->guard == GUARD_MD5)
		checksum_final(&body->sum, sent);
	else
		r = put_body_sum(body, CHECKSUM_MD5, sent, err);
	if (r < 0)
		return r;
	return memcmp(stored, sent, 16) == 0 ? 0 : corrupt(err, op, "ETag");
}

enum put_sum put_compare_sum(
	const struct object_client *client, const char *checksum, const uint8_t *digest)
{
	uint8_t stored[CHECKSUM_MAX_SIZE];

	if (!checksum || !checksum_parse(client->guard_kind, checksum, stored))
		return PUT_SUM_UNKNOWN;
	return memcmp(stored, digest, checksum_size(client->guard_kind)) == 0 ? PUT_SUM_SAME
									      : PUT_SUM_DIFFERS;
}

int put_body_verify(struct s3_op *op, struct put_body *body, struct penstock_error *err)
{
	struct object_client *client = op->at.client;
	enum put_sum sum = body->guard == GUARD_MD5
				   ? PUT_SUM_UNKNOWN
				   : put_compare_sum(client,
					     http_reply_header(&op->reply,
						     checksum_header(client->guard_kind)),
					     body->digest);
	int header = GUARD_HEADER;

	if (sum == PUT_SUM_DIFFERS)
		return corrupt(err, op, "checksum");
	/* Google compares the header's checksum and refuses bytes that do not match it. */
	if (sum == PUT_SUM_SAME || (client->google && body->guard != GUARD_MD5))
		return 0;
	/* The store ignores checksums: compare ETags from now on. */
	if (body->guard == GUARD_HEADER)
		atomic_compare_exchange_strong(&client->guard, &header, GUARD_MD5);
	return verify_etag(op, body, err);
}

/* ---- object_put ---- */

/* Calls `still_valid` before an attempt whose whole body is sent at once. */
static int put_prepare(
	void *cookie, struct http_request *request, unsigned attempt, struct penstock_error *err)
{
	struct put_request *put = cookie;
	const struct put_body *body = put->body;

	if (body->inline_body && body->last && body->still_valid &&
		!body->still_valid(body->cookie))
		return error_set(err, PENSTOCK_E_CHANGED, "the file changed while it was sent");
	return put->sign(&put->op, request, attempt, err);
}

/* Refuses the reply to a PUT if it has no ETag: the reply does not come from the store, and proves
 * nothing. */
static int put_answered(void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	struct put_request *put = cookie;

	return put->needs_etag ? s3_op_check_etag(&put->op, reply, err) : 0;
}

static enum http_verdict put_classify(
	void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	struct put_request *put = cookie;

	return put->classify(&put->op, reply, err);
}

void put_request_hook(struct put_request *put, struct put_body *body)
{
	put->body = body;
	put->sign = put->op.request.prepare;
	put->classify = put->op.request.classify;
	put->op.request.prepare = put_prepare;
	put->op.request.classify = put_classify;
	put->op.request.on_headers = put_answered;
	put->needs_etag = strcmp(put->op.request.method, "PUT") == 0;
	put->op.request.cookie = put;
}

void put_pairs(struct s3_op *op, const char *prefix, const struct strlist *pairs)
{
	for (size_t i = 0; pairs && i < pairs->n; i++) {
		const char *item = pairs->items[i];
		size_t len = strcspn(item, "=");
		_cleanup_free_ char *name = str_printf("%s%.*s", prefix, (int)len, item);

		if (name)
			s3_op_header(op, name, item[len] ? item + len + 1 : "");
		else
			error_memory(&op->failed);
	}
}

void put_headers(struct s3_op *op, const struct object_put_options *options)
{
	s3_op_header(op, "content-type",
		options->content_type ? options->content_type : "application/octet-stream");
	s3_op_header(op, "x-amz-storage-class", options->storage_class);
	put_pairs(op, "x-amz-meta-", options->metadata);
	put_pairs(op, "", options->properties);
}

/* Returns true for a caching header that Google invents for an object without one. */
static bool is_made_up(const struct object_client *client, const char *name, const char *value)
{
	return client->google &&
	       (strcmp(name, "expires") == 0 || strcmp(value, "private, max-age=0") == 0 ||
		       strcmp(value, "public, max-age=3600") == 0);
}

int put_properties(const struct object_client *client, const struct http_reply *reply,
	struct strlist *out, struct penstock_error *err)
{
	static const char *const names[] = {"cache-control", "content-disposition",
		"content-encoding", "content-language", "expires"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const char *value = http_reply_header(reply, names[i]);

		if (value && !is_made_up(client, names[i], value) &&
			strlist_addf(out, "%s=%s", names[i], value) < 0)
			return error_memory(err);
	}
	return 0;
}

void put_control(struct s3_op *op, const struct object_put_options *options)
{
	s3_op_cancel(op, options->cancel);
	if (options->ungated)
		op->request.gate = NULL;
}

void put_conditions(struct s3_op *op, const struct object_put_options *options)
{
	const char *etag = options->if_match;
	char bare[OBJECT_ETAG_SIZE];

	if (etag && atomic_load(&op->at.client->bare_etags)) {
		size_t len = strlen(etag);

		if (len >= 2 && len < sizeof(bare) && etag[0] == '"' && etag[len - 1] == '"') {
			snprintf(bare, sizeof(bare), "%.*s", (int)(len - 2), etag + 1);
			etag = bare;
		}
	}
	s3_op_header(op, "if-match", etag);
	s3_op_header(op, "if-none-match", options->if_none_match ? "*" : NULL);
}

/* Returns true for a conditional upload to Google, which accepts a condition on a PUT of any size,
 * but not on the Complete of a multipart upload. */
bool put_needs_one_request(
	const struct object_client *client, const struct object_put_options *options)
{
	return client->google && (options->if_match || options->if_none_match);
}

/* Makes the error "no such key" a PENSTOCK_E_PRECONDITION: stores return it if there is no object
 * for If-Match. */
void put_nothing_to_match(const struct s3_op *op, const struct object_put_options *options,
	struct penstock_error *err)
{
	if (options->if_match && op->error == S3_E_NO_SUCH_KEY)
		error_set(err, PENSTOCK_E_PRECONDITION,
			"%s: the object is not the expected one: it does not exist", op->what);
}

bool put_finds_expected(struct object_ref at, const struct object_put_options *options)
{
	_cleanup_(object_info_release) struct object_info there = {0};

	return options->if_match && object_head(at, &there, NULL) == 0 &&
	       strcmp(there.etag, options->if_match) == 0;
}

bool put_wants_bare_etag(struct object_ref at, const struct object_put_options *options)
{
	if (atomic_load(&at.client->bare_etags) || !put_finds_expected(at, options))
		return false;
	atomic_store(&at.client->bare_etags, true);
	return true;
}

/* Returns true if the store replied that it does not support checksums (not that the sent checksum
 * is wrong). */
bool put_guard_refused(const struct s3_op *op, const struct penstock_error *err)
{
	return op->error == S3_E_NOT_IMPLEMENTED || err->http_status == 501 ||
	       (err->http_status == 400 &&
		       (op->error == S3_OK || op->error == S3_E_INVALID_REQUEST ||
			       op->error == S3_E_INVALID_ARGUMENT ||
			       op->error == S3_E_XAMZ_CONTENT_SHA256_MISMATCH));
}

void put_request_release(struct put_request *put)
{
	s3_op_release(&put->op);
}
