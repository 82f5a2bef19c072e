/*
 * Passes an object to a callback, in order: ranges are fetched ahead and passed on one after
 * another.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "transfer/get/parts.h"
#include "transfer/state/memory_share.h"
#include "transfer/client/internal.h"
#include "transfer/get/parts_etag.h"

#define DEFAULT_AHEAD 6 /* ranges fetched ahead by default; leaves memory for an upload */

struct stream_slot {
	struct s3_op op; /* first: `done` gets its address */
	struct stream *stream;
	struct buf bytes;
	uint64_t length;
	bool used;
	bool there; /* the range has arrived; under the lock of the fan */
};

struct stream {
	struct object_ref at;
	const struct object_get_options *options;
	struct object_info info;
	uint64_t from;
	uint64_t size;
	uint64_t handed; /* bytes passed on in total */
	struct stream_slot *slots;
	unsigned n_slots;
	struct fan fan;
	struct checksum sum; /* checksum of the bytes passed on */
	uint8_t wanted[CHECKSUM_MAX_SIZE];
	/* used if there is no checksum: the ETag made of the parts' MD5s; unused if `room` is 0 */
	struct parts_etag_sum parts;
	/* Used if there is no checksum of the whole object: the store's checksums of the parts, and
	 * the current part. */
	struct get_parts part_sums;
	unsigned part;
	uint64_t part_at;
	struct checksum part_sum;
};

static int slot_headers(void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	struct stream_slot *slot = cookie;

	return s3_op_check_same(&slot->op, reply, slot->stream->info.etag, err);
}

static int fewer_bytes(const struct stream *s, struct penstock_error *err)
{
	return object_error(
		err, PENSTOCK_E_CHANGED, "GET", s->at, "received fewer bytes than the object has");
}

static void slot_done(void *cookie, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err)
{
	struct stream_slot *slot = cookie;
	struct fan *fan = &slot->stream->fan;

	(void)request;
	(void)reply;
	if (err && (err->code == PENSTOCK_E_PRECONDITION || err->code == PENSTOCK_E_CHANGED))
		object_replaced(slot->stream->at, err);
	pthread_mutex_lock(&fan->lock);
	slot->there = !err;
	pthread_mutex_unlock(&fan->lock);
	fan_ended(fan, NULL, err);
}

static void slot_release(struct stream_slot *slot)
{
	if (slot->used)
		s3_op_release(&slot->op);
	slot->used = false;
}

static int slot_start(
	struct stream *s, struct stream_slot *slot, uint64_t offset, struct penstock_error *err)
{
	uint64_t left = s->size - offset;
	int r;

	slot_release(slot);
	slot->stream = s;
	slot->there = false;
	slot->length = left < LIMIT_STREAM_RANGE ? left : LIMIT_STREAM_RANGE;
	if (!slot->bytes.limit)
		buf_init(&slot->bytes, LIMIT_STREAM_RANGE);
	buf_clear(&slot->bytes);
	s3_op_init(&slot->op, "GET", s->at);
	slot->used = true;
	s3_op_cancel(&slot->op, s->options->cancel);
	s3_op_header(&slot->op, "if-match", s->info.etag[0] ? s->info.etag : NULL);
	slot->op.request.sink = (struct http_sink)HTTP_SINK_TO_BUF(&slot->bytes);
	slot->op.request.range = (struct http_range){.wanted = true,
		.offset = s->from + offset,
		.length = slot->length,
		.full_is_fine = slot->length == s->info.size};
	slot->op.request.bulk = true;
	slot->op.request.resend_ms = LIMIT_HTTP_RESEND_MS;
	slot->op.request.on_headers = slot_headers;
	slot->op.request.done = slot_done;
	r = s3_op_ready(&slot->op, err);
	return r < 0 ? r : fan_submit(&s->fan, &slot->op.request, &slot->op.reply, NULL, err);
}

/* Waits until the range of the slot has arrived. Returns false if a request failed or the caller
 * cancelled. */
static bool slot_wait(struct stream *s, struct stream_slot *slot)
{
	for (unsigned limit = s->n_slots;; limit--) {
		bool there;

		pthread_mutex_lock(&s->fan.lock);
		there = slot->there;
		pthread_mutex_unlock(&s->fan.lock);
		if (there)
			return true;
		if (!limit || !fan_wait(&s->fan, limit))
			return false;
	}
}

/* Adds a warning to the message of PENSTOCK_E_CORRUPT, because bytes were already passed on. */
static int warn_writer(struct penstock_error *err)
{
	error_suffix(err, "; do not use the bytes that were written");
	return -(int)PENSTOCK_E_CORRUPT;
}

static int damaged(const struct stream *s, struct penstock_error *err)
{
	error_prefix(
		err, "GET %s://%s/%s", object_client_scheme(s->at.client), s->at.bucket, s->at.key);
	return warn_writer(err);
}

/* Verifies parts, so that the bytes that complete a damaged part are not passed on. */
static int check_piece(struct stream *s, const char *data, size_t len, struct penstock_error *err)
{
	while (len && s->part < s->part_sums.n) {
		const struct get_part_sum *part = &s->part_sums.parts[s->part];
		uint64_t left = part->length - s->part_at;
		size_t now = len < left ? len : (size_t)left;
		enum checksum_kind kind = s->part_sum.kind;
		uint8_t got[CHECKSUM_MAX_SIZE];

		checksum_update(&s->part_sum, data, now);
		s->part_at += now;
		data += now;
		len -= now;
		if (s->part_at < part->length)
			continue;
		checksum_final(&s->part_sum, got);
		s->part++;
		s->part_at = 0;
		if (memcmp(got, part->digest, checksum_size(kind)) != 0) {
			get_part_damaged(part, s->part, kind, err);
			return damaged(s, err);
		}
		if (checksum_reset(&s->part_sum) < 0)
			return error_memory(err);
	}
	return 0;
}

static int hand_piece(struct stream *s, const void *data, size_t len, object_stream_fn fn,
	void *cookie, struct penstock_error *err)
{
	int r = check_piece(s, data, len, err);

	if (r < 0)
		return r;
	if (s->sum.kind)
		checksum_update(&s->sum, data, len);
	if (s->parts.room)
		parts_etag_sum_update(&s->parts, data, len);
	s->handed += len;
	r = fn(cookie, data, len, err);
	if (s->options->progress)
		s->options->progress(s->options->cookie, (int64_t)len);
	return r < 0 ? r : 0;
}

static int hand_over(
	struct stream *s, object_stream_fn fn, void *cookie, struct penstock_error *err)
{
	uint64_t n = (s->size + LIMIT_STREAM_RANGE - 1) / LIMIT_STREAM_RANGE, next = 0;
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < n; i++) {
		struct stream_slot *slot = &s->slots[i % s->n_slots];

		for (; r == 0 && next < n && next < i + s->n_slots; next++)
			r = slot_start(
				s, &s->slots[next % s->n_slots], next * LIMIT_STREAM_RANGE, err);
		if (r < 0 || !slot_wait(s, slot))
			break;
		/* A truncated reply without a length looks complete. */
		if (slot->bytes.len != slot->length)
			return fewer_bytes(s, err);
		r = hand_piece(s, slot->bytes.data, slot->bytes.len, fn, cookie, err);
	}
	return r;
}

/* ---- a store without ranges ---- */

static int fetch_whole(struct stream *s, int fd, struct penstock_error *err)
{
	struct stream_slot slot = {.stream = s};
	int r;

	s3_op_init(&slot.op, "GET", s->at);
	s3_op_header(&slot.op, "if-match", s->info.etag[0] ? s->info.etag : NULL);
	s3_op_cancel(&slot.op, s->options->cancel);
	slot.op.request.sink = (struct http_sink)HTTP_SINK_TO_FD(fd, 0);
	slot.op.request.bulk = true;
	slot.op.request.on_headers = slot_headers;
	r = s3_op_perform(&slot.op, err);
	if (r == -(int)PENSTOCK_E_PRECONDITION || r == -(int)PENSTOCK_E_CHANGED)
		r = object_replaced(s->at, err);
	s3_op_release(&slot.op);
	return r;
}

/* Fetches everything into a file first, so that memory is bounded even if the callback is slow. */
static int hand_over_held(
	struct stream *s, object_stream_fn fn, void *cookie, struct penstock_error *err)
{
	_cleanup_free_ char *block = malloc(MIB);
	_cleanup_close_ int fd = -1;
	int r = block ? 0 : error_memory(err);

	if (r == 0)
		r = fd = fs_open_unnamed("the object", err);
	if (r >= 0)
		r = fetch_whole(s, fd, err);
	for (uint64_t at = 0; r == 0 && at < s->size;) {
		size_t want = s->size - at < MIB ? (size_t)(s->size - at) : MIB;

		if (fs_pread_all(fd, block, want, (off_t)(s->from + at)) != (ssize_t)want)
			return fewer_bytes(s, err);
		r = hand_piece(s, block, want, fn, cookie, err);
		at += want;
	}
	return r;
}

/* ---- expected checksums ---- */

static int check_whole(struct stream *s, struct penstock_error *err)
{
	uint8_t got[CHECKSUM_MAX_SIZE];

	if (!s->sum.kind)
		return 0;
	checksum_final(&s->sum, got);
	if (memcmp(got, s->wanted, checksum_size(s->sum.kind)) == 0)
		return 0;
	object_corrupt(s->at, s->sum.kind, err);
	return warn_writer(err);
}

/* For a multipart object without a checksum of the whole: uses the checksums of its parts, else its
 * ETag if the ETag may be made of the parts' MD5s. */
static int learn_parts(struct stream *s, const struct http_reply *reply, struct penstock_error *err)
{
	struct object_client *client = s->at.client;
	uint64_t count = parts_etag_count(s->info.etag), part = s->size;
	enum checksum_kind kind = object_reply_part_checksum(reply, s->info.etag);

	if (kind != CHECKSUM_NONE)
		get_parts_learn(
			&s->part_sums, s->at, s->info.size, s->info.etag, kind, s->options->cancel);
	if (s->part_sums.n)
		return checksum_init(&s->part_sum, kind, err);

	if (!count || !s->size || client->google || atomic_load(&client->odd_etags) ||
		object_reply_encrypted(reply))
		return 0;
	if (count > 1)
		part = parts_etag_part_size(s->at, s->info.etag, s->size, s->options->cancel);
	return part ? parts_etag_sum_init(&s->parts, part, count, err) : 0;
}

static int learn(struct stream *s, struct penstock_error *err)
{
	const struct object_get_options *o = s->options;
	_cleanup_(s3_op_release) struct s3_op op = {0};
	bool ranged = o->offset || o->length;
	enum checksum_kind kind;
	int r = s3_op_head(
		&op, s->at, o->if_match, object_response_checksums(), o->cancel, &s->info, err);

	if (r < 0)
		return r;
	if (o->known &&
		(s->info.size != o->known->size || strcmp(s->info.etag, o->known->etag) != 0))
		return object_replaced(s->at, err);
	if (o->offset && o->offset >= s->info.size)
		return object_error(err, PENSTOCK_E_INVALID, "GET", s->at,
			"the object ends before byte %" PRIu64, o->offset);
	s->from = o->offset;
	s->size = s->info.size - o->offset;
	if (o->length && o->length < s->size)
		s->size = o->length;
	ranged = ranged || !object_response_checksums();
	kind = ranged ? CHECKSUM_NONE : object_reply_checksum(&op.reply, s->wanted);
	/* Without a checksum, the ETag is usually the MD5. */
	if (!ranged && kind == CHECKSUM_NONE && object_reply_md5(&op.reply, s->wanted))
		kind = CHECKSUM_MD5;
	if (kind != CHECKSUM_NONE)
		return checksum_init(&s->sum, kind, err);
	return ranged ? 0 : learn_parts(s, &op.reply, err);
}

/* Passes all bytes of the object, or of the requested range, to `fn`. */
static int read_all(struct stream *s, object_stream_fn fn, void *cookie, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error failed = PENSTOCK_ERROR_INIT;
	struct penstock_error own = PENSTOCK_ERROR_INIT;
	uint64_t before = s->handed;
	int r;

	fan_init(&s->fan, s->at.client->engine, s->options->cancel);
	if (hand_over(s, fn, cookie, &own) < 0)
		fan_fail(&s->fan, &own);
	r = fan_finish(&s->fan, &failed);
	for (unsigned i = 0; i < s->n_slots; i++)
		slot_release(&s->slots[i]);
	fan_release(&s->fan);
	if (r == -(int)PENSTOCK_E_UNSUPPORTED && s->handed == before) {
		log_debug("%s; fetching it in one piece", failed.message);
		return hand_over_held(s, fn, cookie, err);
	}
	return r < 0 ? error_move(err, &failed) : 0;
}

static int pass_by(void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	(void)cookie;
	(void)data;
	(void)len;
	(void)err;
	return 0;
}

/* Reads the bytes once more after the first mismatch. The first bytes were passed on already, and
 * are accepted only if the new bytes give the same ETag. */
static int check_parts(struct stream *s, struct penstock_error *err)
{
	const struct object_get_options *options = s->options;
	const struct parts_etag of = {s->at, s->info.etag, s->size, s->parts.part, options->cancel};
	struct object_get_options quiet = *options;
	char own[MULTIPART_ETAG_SIZE], first[MULTIPART_ETAG_SIZE] = "";
	int r;

	if (!s->parts.room)
		return 0;
	r = parts_etag_sum_final(&s->parts, own, err);
	if (r == 0)
		r = parts_etag_judge(&of, own, first, err);
	if (r == -(int)PENSTOCK_E_CORRUPT && !atomic_load(&s->at.client->md5_etags)) {
		penstock_error_release(err);
		quiet.progress = NULL;
		s->options = &quiet;
		r = read_all(s, pass_by, NULL, err);
		s->options = options;
		if (r == 0)
			r = parts_etag_sum_final(&s->parts, own, err);
		if (r < 0)
			return r;
		r = parts_etag_judge(&of, own, first, err);
		if (r == 0 && strcmp(own, first) != 0)
			r = parts_etag_mismatch(err);
	}
	return r == -(int)PENSTOCK_E_CORRUPT ? damaged(s, err) : r;
}

int object_get_stream(struct object_ref at, const struct object_get_options *options,
	object_stream_fn fn, void *cookie, struct object_info *info, struct penstock_error *err)
{
	struct stream s = {
		.at = at, .options = options ? options : &(struct object_get_options){0}};
	int r = learn(&s, err);

	if (r == 0) {
		s.n_slots = memory_share_take(
			s.options->parallel ? s.options->parallel : DEFAULT_AHEAD,
			LIMIT_STREAM_RANGE);
		s.slots = calloc(s.n_slots, sizeof(*s.slots));
		if (!s.slots)
			r = error_memory(err);
	}
	if (r == 0) {
		r = read_all(&s, fn, cookie, err);
		if (r == 0)
			r = check_whole(&s, err);
		if (r == 0)
			r = check_parts(&s, err);
		for (unsigned i = 0; i < s.n_slots; i++)
			buf_release(&s.slots[i].bytes);
	}
	memory_share_give(s.n_slots, LIMIT_STREAM_RANGE);
	free(s.slots);
	checksum_release(&s.sum);
	parts_etag_sum_release(&s.parts);
	get_parts_release(&s.part_sums);
	checksum_release(&s.part_sum);
	return object_info_pass(r, &s.info, info);
}
