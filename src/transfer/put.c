/* One object in one PUT: from memory or from a file, guarded by a checksum. */
#include "transfer/put_internal.h"
#include "transfer/put_delta.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "s3/chunked.h"
#include "transfer/google.h"
#include "base/banned.h"

/* A file that fits is read at once and goes out with its headers. */
#define SMALL_FILE_MAX (64 * KIB)
/* Data bytes between two lines of an aws-chunked body. */
#define CHUNK	  (1 * MIB)
#define READ_SIZE (256 * KIB)

/* ---- the body ---- */

static uint64_t plain_left(const struct put_body *body)
{
	return body->length - body->sent;
}

/* Data for the wire: read straight into curl's buffer. */
static ssize_t body_data(struct put_body *body, void *out, size_t size, struct penstock_error *err)
{
	uint64_t left = plain_left(body);
	ssize_t n;

	if (size > left)
		size = (size_t)left;
	if (body->data) {
		memcpy(out, body->data + body->sent, size);
	} else {
		n = fs_pread_all(body->fd, out, size, (off_t)(body->offset + body->sent));
		if (n < 0) {
			error_errno(err, errno, "cannot read the file to be sent");
			return -1;
		}
		if ((size_t)n < size) {
			error_set(err, PENSTOCK_E_CHANGED,
				"the file became shorter while it was sent");
			return -1;
		}
	}
	/* After the last bytes were read: what changes now is not in the object. */
	if (body->last && size == left && body->still_valid && !body->still_valid(body->cookie)) {
		error_set(err, PENSTOCK_E_CHANGED, "it changed while it was sent");
		return -1;
	}
	if (body->sum.kind)
		checksum_update(&body->sum, out, size);
	body->sent += size;
	if (body->progress)
		body->progress(body->cookie, (int64_t)size);
	return (ssize_t)size;
}

/* What stands in `frame` goes out before anything else. */
static size_t frame_out(struct put_body *body, char *out, size_t size)
{
	size_t n = body->frame_len - body->frame_at;

	if (n > size)
		n = size;
	memcpy(out, body->frame + body->frame_at, n);
	body->frame_at += n;
	return n;
}

static void frame_set(struct put_body *body, size_t len)
{
	body->frame_at = 0;
	body->frame_len = len;
}

/* The next framing of an aws-chunked body; false: the body is at its end. */
static bool frame_next(struct put_body *body)
{
	uint64_t left = plain_left(body);

	if (body->in_chunk) { /* its data is out */
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

		if (body->frame_at < body->frame_len) {
			done += frame_out(body, out + done, size - done);
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

static int body_rewind(void *cookie)
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

/* The checksum of the whole body, before any of it is sent. */
int put_body_digest(struct put_body *body, struct penstock_error *err)
{
	_cleanup_(checksum_release) struct checksum sum = {0};
	_cleanup_free_ char *block = NULL;
	int r = checksum_init(&sum, body->kind, err);

	if (r < 0)
		return r;
	if (body->data) {
		checksum_update(&sum, body->data, body->length);
	} else {
		block = malloc(READ_SIZE);
		if (!block)
			return error_memory(err);
	}
	for (uint64_t at = 0; !body->data && at < body->length;) {
		size_t want = body->length - at < READ_SIZE ? (size_t)(body->length - at)
							    : READ_SIZE;
		ssize_t n = fs_pread_all(body->fd, block, want, (off_t)(body->offset + at));

		if (n < 0)
			return error_errno(err, errno, "cannot read the file to be sent");
		if ((size_t)n < want)
			return error_set(err, PENSTOCK_E_CHANGED,
				"the file became shorter while it was sent");
		checksum_update(&sum, block, want);
		at += want;
	}
	checksum_final(&sum, body->digest);
	return 0;
}

/* A small file is read once, and then is memory. */
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
		return error_errno(err, errno, "cannot read the file to be sent");
	if ((uint64_t)n < body->length)
		return error_set(
			err, PENSTOCK_E_CHANGED, "the file became shorter while it was sent");
	body->data = body->small;
	return 0;
}

/* x-amz-checksum-…: … */
static int add_checksum(struct s3_op *op, const uint8_t *digest, struct penstock_error *err)
{
	char text[CHECKSUM_TEXT_SIZE];

	checksum_format(op->client->guard_kind, digest, text);
	return s3_op_header(op, checksum_header(op->client->guard_kind), text, err);
}

/* Before that of the object itself, if it has one. */
static int encode_chunked(struct s3_op *op, struct penstock_error *err)
{
	for (size_t i = 0; i < op->n_headers; i++) {
		struct sigv4_header *header = &op->headers[i];
		char *both;

		if (strcmp(header->name, "content-encoding") != 0)
			continue;
		if (asprintf(&both, "aws-chunked,%s", header->value) < 0)
			return error_memory(err);
		free((char *)header->value);
		header->value = both;
		return 0;
	}
	return s3_op_header(op, "content-encoding", "aws-chunked", err);
}

static int attach_trailer(struct s3_op *op, struct put_body *body, struct penstock_error *err)
{
	char length[24];
	int r;

	snprintf(length, sizeof(length), "%llu", (unsigned long long)body->length);
	r = encode_chunked(op, err);
	if (r == 0)
		r = s3_op_header(op, "x-amz-decoded-content-length", length, err);
	if (r == 0)
		r = s3_op_header(op, "x-amz-trailer", checksum_header(op->client->guard_kind), err);
	if (r == 0)
		r = checksum_init(&body->sum, op->client->guard_kind, err);
	op->payload_hash = SIGV4_STREAMING_UNSIGNED_TRAILER;
	op->request.source.length = chunked_encoded_length(body->length, CHUNK, body->kind);
	body->chunked = true;
	return r;
}

int put_body_attach(
	struct s3_op *op, struct put_body *body, enum guard guard, struct penstock_error *err)
{
	int r = body_load(body, err);

	if (r < 0)
		return r;
	body->guard = guard;
	body->kind = op->client->guard_kind;
	if (body->data && body->length <= SMALL_FILE_MAX) {
		r = s3_op_body(op, body->data, body->length, err);
		if (guard == GUARD_TRAILER)
			guard = GUARD_HEADER;
		body->inline_body = true;
	} else {
		op->payload_hash = SIGV4_UNSIGNED_PAYLOAD;
		op->request.bulk = true;
		op->request.source = (struct http_source){.kind = HTTP_SOURCE_CALLBACK,
			.length = body->length,
			.read = body_read,
			.rewind = body_rewind,
			.cookie = body};
	}
	if (r < 0)
		return r;
	if (guard == GUARD_TRAILER)
		return attach_trailer(op, body, err);
	if (guard == GUARD_HEADER) {
		r = put_body_digest(body, err);
		return r < 0 ? r : add_checksum(op, body->digest, err);
	}
	r = checksum_init(&body->sum, CHECKSUM_MD5, err);
	if (r == 0 && body->inline_body)
		checksum_update(&body->sum, body->data, body->length);
	return r;
}

/* ---- what the store says it has ---- */

bool object_reply_encrypted(const struct http_reply *reply)
{
	const char *encryption = http_reply_header(reply, "x-amz-server-side-encryption");

	return (encryption && str_starts(encryption, "aws:kms")) ||
	       http_reply_header(reply, "x-amz-server-side-encryption-customer-algorithm");
}

bool object_reply_md5(const struct http_reply *reply, uint8_t md5[static 16])
{
	if (object_reply_encrypted(reply))
		return false;
	return google_reply_md5(reply, md5) ||
	       object_etag_md5(http_reply_header(reply, "ETag"), md5);
}

/* The MD5 of the body by reading it once more; only for the first PUT to a store of unknown kind. */
int put_body_md5(
	struct put_body *body, uint8_t digest[static CHECKSUM_MAX_SIZE], struct penstock_error *err)
{
	struct checksum sum;
	_cleanup_free_ char *block = malloc(READ_SIZE);
	int r = block ? checksum_init(&sum, CHECKSUM_MD5, err) : error_memory(err);

	if (r < 0)
		return r;
	for (uint64_t at = 0; r == 0 && at < body->length;) {
		size_t want = body->length - at < READ_SIZE ? (size_t)(body->length - at)
							    : READ_SIZE;
		const char *from = body->data ? body->data + at : block;

		if (!body->data && fs_pread_all(body->fd, block, want,
					   (off_t)(body->offset + at)) != (ssize_t)want)
			r = error_set(err, PENSTOCK_E_CHANGED,
				"the file became shorter while it was sent");
		checksum_update(&sum, from, want);
		at += want;
	}
	checksum_final(&sum, digest);
	checksum_release(&sum);
	return r;
}

static int corrupt(struct penstock_error *err, const struct s3_op *op, const char *what)
{
	return error_set(err, PENSTOCK_E_CORRUPT,
		"%s: the store has other bytes than were sent (its %s differs)", op->what, what);
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
		r = put_body_md5(body, sent, err);
	if (r < 0)
		return r;
	return memcmp(stored, sent, 16) == 0 ? 0 : corrupt(err, op, "ETag");
}

void put_learn_store(struct object_client *client, const struct http_reply *reply)
{
	const char *server = http_reply_header(reply, "Server");
	int header = GUARD_HEADER;

	if (client->google || !server || !str_starts(server, "penstock"))
		return;
	atomic_store(&client->own_kind, true);
	atomic_compare_exchange_strong(&client->guard, &header, GUARD_TRAILER);
}

int put_body_verify(struct s3_op *op, struct put_body *body, struct penstock_error *err)
{
	const char *echo = http_reply_header(&op->reply, checksum_header(op->client->guard_kind));
	uint8_t stored[CHECKSUM_MAX_SIZE];
	int header = GUARD_HEADER;

	put_learn_store(op->client, &op->reply);
	if (body->guard != GUARD_MD5 && echo &&
		checksum_parse(op->client->guard_kind, echo, stored))
		return memcmp(stored, body->digest, checksum_size(op->client->guard_kind)) == 0
			       ? 0
			       : corrupt(err, op, "checksum");
	/* Google compares what the header says, and refuses what differs. */
	if (op->client->google && body->guard != GUARD_MD5)
		return 0;
	/* It ignores checksums: from now on the ETag is what we go by. */
	if (body->guard == GUARD_HEADER)
		atomic_compare_exchange_strong(&op->client->guard, &header, GUARD_MD5);
	return verify_etag(op, body, err);
}

/* ---- object_put ---- */

static int still_valid_now(const struct put_body *body, struct penstock_error *err)
{
	if (!body->still_valid || body->still_valid(body->cookie))
		return 0;
	return error_set(err, PENSTOCK_E_CHANGED, "it changed while it was sent");
}

/* Asks before an attempt whose body goes out in one go. */
static int put_prepare(
	void *cookie, struct http_request *request, unsigned attempt, struct penstock_error *err)
{
	struct put_request *put = cookie;
	int r = put->body->inline_body && put->body->last ? still_valid_now(put->body, err) : 0;

	return r < 0 ? r : put->sign(&put->op, request, attempt, err);
}

/* An answer without an ETag is not the store's, and says nothing of what it has. */
static int put_answered(void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	struct put_request *put = cookie;

	return put->needs_etag ? s3_op_check_etag(&put->op, reply, err) : 0;
}

static enum http_verdict put_judge(
	void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	struct put_request *put = cookie;

	return put->judge(&put->op, reply, err);
}

void put_request_hook(struct put_request *put, struct put_body *body)
{
	put->body = body;
	put->sign = put->op.request.prepare;
	put->judge = put->op.request.judge;
	put->op.request.prepare = put_prepare;
	put->op.request.judge = put_judge;
	put->op.request.on_headers = put_answered;
	put->needs_etag = strcmp(put->op.request.method, "PUT") == 0;
	put->op.request.cookie = put;
}

int put_headers(
	struct s3_op *op, const struct object_put_options *options, struct penstock_error *err)
{
	int r = s3_op_header(op, "content-type",
		options->content_type ? options->content_type : "application/octet-stream", err);

	if (r == 0)
		r = s3_op_header(op, "x-amz-storage-class", options->storage_class, err);
	for (size_t i = 0; r == 0 && options->metadata && i < options->metadata->n; i++) {
		const char *item = options->metadata->items[i];
		size_t len = strcspn(item, "=");
		_cleanup_free_ char *name = NULL;

		if (asprintf(&name, "x-amz-meta-%.*s", (int)len, item) < 0)
			return error_memory(err);
		r = s3_op_header(op, name, item[len] ? item + len + 1 : "", err);
	}
	for (size_t i = 0; r == 0 && options->properties && i < options->properties->n; i++) {
		const char *item = options->properties->items[i];
		_cleanup_free_ char *name = strndup(item, strcspn(item, "="));

		if (!name)
			return error_memory(err);
		r = s3_op_header(op, name, item + strlen(name) + 1, err);
	}
	return r;
}

/* Google makes up what an object does not have: an hour, or none, from now. */
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

int put_conditions(
	struct s3_op *op, const struct object_put_options *options, struct penstock_error *err)
{
	const char *etag = options->if_match;
	char bare[OBJECT_ETAG_SIZE];
	int r;

	if (etag && atomic_load(&op->client->bare_etags)) {
		size_t len = strlen(etag);

		if (len >= 2 && len < sizeof(bare) && etag[0] == '"' && etag[len - 1] == '"') {
			snprintf(bare, sizeof(bare), "%.*s", (int)(len - 2), etag + 1);
			etag = bare;
		}
	}
	r = s3_op_header(op, "if-match", etag, err);
	return r < 0 ? r
		     : s3_op_header(op, "if-none-match", options->if_none_match ? "*" : NULL, err);
}

/* Google takes no condition on what makes an upload in parts visible, but a PUT of any size. */
bool put_needs_one_request(
	const struct object_client *client, const struct object_put_options *options)
{
	return client->google && (options->if_match || options->if_none_match);
}

/* "No such key" is how stores say that there is nothing which If-Match could match. */
void put_nothing_to_match(const struct s3_op *op, const struct object_put_options *options,
	struct penstock_error *err)
{
	if (options->if_match && op->error == S3_E_NO_SUCH_KEY)
		error_set(err, PENSTOCK_E_PRECONDITION,
			"%s: the object is not the expected one any more, there is none", op->what);
}

/*
 * A refusal although the object is the expected one: the store compares the quotes, too. True: it
 * is to be asked again, from now on without them.
 */
bool put_wants_bare_etag(struct object_client *client, const char *bucket, const char *key,
	const struct object_put_options *options)
{
	_cleanup_(object_info_release) struct object_info there = {0};

	if (!options->if_match || atomic_load(&client->bare_etags) ||
		object_head(client, bucket, key, &there, NULL) < 0 ||
		strcmp(there.etag, options->if_match) != 0)
		return false;
	atomic_store(&client->bare_etags, true);
	return true;
}

/* The store answered that it cannot do checksums (and not that ours is wrong). */
bool put_guard_refused(const struct s3_op *op, const struct penstock_error *err)
{
	return op->error == S3_E_NOT_IMPLEMENTED || err->http_status == 501 ||
	       (err->http_status == 400 &&
		       (op->error == S3_OK || op->error == S3_E_INVALID_REQUEST ||
			       op->error == S3_E_INVALID_ARGUMENT ||
			       op->error == S3_E_XAMZ_CONTENT_SHA256_MISMATCH));
}

/*
 * A condition that fails although an earlier attempt may have been carried out: is what is there now
 * what we sent? True: then the put was done.
 */
static bool put_was_done(struct s3_op *op, struct put_body *body)
{
	_cleanup_(s3_op_release) struct s3_op head = {0};
	uint8_t stored[CHECKSUM_MAX_SIZE];
	uint8_t sent[CHECKSUM_MAX_SIZE];
	const char *checksum;

	if (!op->reply.sent_before ||
		s3_op_init(&head, op->client, "HEAD", op->bucket, op->key, NULL) < 0 ||
		s3_op_header(&head, "x-amz-checksum-mode", "ENABLED", NULL) < 0 ||
		s3_op_perform(&head, NULL) < 0 || head.reply.total_size != body->length)
		return false;
	checksum = http_reply_header(&head.reply, checksum_header(op->client->guard_kind));
	if (checksum && checksum_parse(op->client->guard_kind, checksum, stored))
		return put_body_digest(body, NULL) == 0 &&
		       memcmp(stored, body->digest, checksum_size(op->client->guard_kind)) == 0;
	return object_reply_md5(&head.reply, stored) && put_body_md5(body, sent, NULL) == 0 &&
	       memcmp(stored, sent, 16) == 0;
}

static int put_once(struct object_client *client, const char *bucket, const char *key,
	struct put_body *body, const struct object_put_options *options, enum guard guard,
	bool *refused, struct object_info *info, struct penstock_error *err)
{
	_cleanup_(put_request_release) struct put_request put = {0};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	struct object_info found = {0};
	int r = s3_op_init(&put.op, client, "PUT", bucket, key, err);

	if (r == 0)
		r = put_headers(&put.op, options, err);
	if (r == 0)
		r = put_conditions(&put.op, options, err);
	if (r == 0)
		r = put_body_attach(&put.op, body, guard, err);
	if (r < 0)
		return r;
	s3_op_cancel(&put.op, options->cancel);
	put.op.request.fresh_connection = options->if_match || options->if_none_match;
	if (options->ungated)
		put.op.request.gate = NULL;
	put_request_hook(&put, body);
	r = s3_op_perform(&put.op, &own);
	if (r == -(int)PENSTOCK_E_PRECONDITION && put_was_done(&put.op, body))
		return object_head(client, bucket, key, info, err);
	if (r < 0) {
		*refused = guard != GUARD_MD5 && put_guard_refused(&put.op, &own);
		put_nothing_to_match(&put.op, options, &own);
		return error_move(err, &own);
	}
	r = put_body_verify(&put.op, body, err);
	if (r == 0 && body->inline_body && body->progress)
		body->progress(body->cookie, (int64_t)body->length);
	if (r == 0)
		r = object_info_from_reply(&put.op.reply, &found, err);
	found.size = body->length;
	if (r == 0 && info)
		*info = found;
	else
		object_info_release(&found);
	return r;
}

void put_request_release(struct put_request *put)
{
	s3_op_release(&put->op);
}

static int put_whole(struct object_client *client, const char *bucket, const char *key,
	const struct put_body *from, const struct object_put_options *options,
	struct object_info *info, struct penstock_error *err)
{
	enum guard guard = (enum guard)atomic_load(&client->guard);
	bool bare = false;  /* it was asked again without quotes */
	bool again = false; /* it arrived damaged, and was sent once more */

	for (;;) {
		_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
		_cleanup_(put_body_release) struct put_body body = *from;
		bool refused = false;
		int r = put_once(client, bucket, key, &body, options, guard, &refused, info, &own);

		if (r == 0) {
			/* Only a success without a guard shows that the guard was the trouble. */
			if (guard == GUARD_MD5)
				atomic_store(&client->guard, GUARD_MD5);
			return 0;
		}
		body_rewind(&body);
		if (r == -(int)PENSTOCK_E_PRECONDITION && !bare &&
			put_wants_bare_etag(client, bucket, key, options)) {
			bare = true;
			continue;
		}
		if (bare)
			atomic_store(&client->bare_etags, false);
		/* Under a condition the damaged object itself would be in the way. */
		if (r == -(int)PENSTOCK_E_CORRUPT && !again && !options->if_match &&
			!options->if_none_match) {
			log_debug("%s; sent again", own.message);
			again = true;
			continue;
		}
		if (!refused)
			return error_move(err, &own);
		guard = GUARD_MD5;
	}
}

int object_put(struct object_client *client, const char *bucket, const char *key, const void *data,
	size_t len, const struct object_put_options *options, struct object_info *info,
	struct penstock_error *err)
{
	static const struct object_put_options none;
	const struct object_put_options *o = options ? options : &none;
	const struct put_body body = {.data = len ? data : "",
		.fd = -1,
		.length = len,
		.last = true,
		.still_valid = o->still_valid,
		.progress = o->progress,
		.cookie = o->cookie};

	return put_whole(client, bucket, key, &body, o, info, err);
}

int object_put_file(struct object_client *client, const char *bucket, const char *key, int fd,
	uint64_t size, const struct object_put_options *options, struct object_info *info,
	struct penstock_error *err)
{
	static const struct object_put_options none;
	const struct object_put_options *o = options ? options : &none;
	const struct put_body body = {.fd = fd,
		.length = size,
		.last = true,
		.still_valid = o->still_valid,
		.progress = o->progress,
		.cookie = o->cookie};

	if (o->delta_dir && size > LIMIT_DELTA_MIN && !put_needs_one_request(client, o))
		return put_with_delta(client, bucket, key, fd, size, o, info, err);
	if (size > (o->part_size ? o->part_size : LIMIT_PUT_SINGLE) &&
		!put_needs_one_request(client, o))
		return put_in_parts(client, bucket, key, fd, size, o, info, err);
	return put_whole(client, bucket, key, &body, o, info, err);
}
