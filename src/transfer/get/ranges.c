/* Fetches the bytes of an object into a file: in one GET, or in parallel ranges. */
#include "transfer/get/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "transfer/get/parts_etag.h"

/* A range in flight. */
struct range_slot {
	struct s3_op op; /* first: hooks get its address */
	struct download *download;
	atomic_bool flying;
	bool used;
	enum http_verdict (*classify)(
		void *cookie, const struct http_reply *reply, struct penstock_error *err);
	uint64_t offset; /* in the file */
	uint64_t length;
	uint64_t at; /* bytes received */
	uint64_t written; /* bytes written */
	/* bytes received and not written, at most LIMIT_GET_GATHER; may be NULL */
	char *gathered;
	struct checksum sum; /* checksum of an object that is fetched whole */
	struct get_run run; /* pieces of a range; owned by the writer if there is one */
	struct get_line line;
};

/* Writes a piece to the file, and adds it to the checksums. Returns 0 or an errno. */
static int write_piece(void *cookie, uint64_t at, const void *data, size_t len)
{
	struct range_slot *slot = cookie;
	struct download *d = slot->download;

	if (fs_pwrite_all(d->part.fd, data, len, (off_t)at) < 0)
		return errno;
	if (slot->sum.kind)
		checksum_update(&slot->sum, data, len);
	if (d->blocks.kind && get_blocks_add(&d->blocks, &slot->run, at, data, len) < 0)
		return ENOMEM;
	return 0;
}

static int write_failed(int e, struct penstock_error *err)
{
	return e ? error_errno(err, e, "cannot write the received bytes") : 0;
}

/* Writes the gathered bytes, or passes them to the writer. */
static int range_write_out(struct range_slot *slot, struct penstock_error *err)
{
	struct get_writer *writer = slot->download->writer;
	uint64_t place = slot->offset + slot->written;
	size_t len = (size_t)(slot->at - slot->written);
	char *data = slot->gathered;

	slot->written = slot->at;
	if (!writer)
		return write_failed(write_piece(slot, place, data, len), err);
	slot->gathered = NULL;
	return write_failed(get_writer_push(writer, &slot->line, place, data, len), err);
}

/* Gathers received pieces, and writes LIMIT_GET_GATHER bytes at a time: libcurl delivers bodies in
 * pieces of 16 KiB at any offset, and a memory page that is written in two steps costs twice as
 * much. */
static int range_gather(
	struct range_slot *slot, const char *data, size_t len, struct penstock_error *err)
{
	struct get_writer *writer = slot->download->writer;
	int r = 0;

	while (r == 0 && len) {
		size_t held = (size_t)(slot->at - slot->written);
		size_t n = LIMIT_GET_GATHER - held < len ? LIMIT_GET_GATHER - held : len;

		if (!slot->gathered)
			slot->gathered = writer ? get_writer_room(writer)
						: malloc(LIMIT_GET_GATHER);
		if (!slot->gathered)
			return error_memory(err);
		memcpy(slot->gathered + held, data, n);
		slot->at += n;
		data += n;
		len -= n;
		if (held + n == LIMIT_GET_GATHER || slot->at == slot->length)
			r = range_write_out(slot, err);
	}
	return r;
}

static enum http_take range_write(
	void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct range_slot *slot = cookie;
	const struct object_get_options *options = slot->download->options;

	if (slot->length != HTTP_LENGTH_UNKNOWN && len > slot->length - slot->at) {
		error_set(err, PENSTOCK_E_CHANGED, "the object is longer than in its listing");
		return HTTP_REFUSE;
	}
	if (range_gather(slot, data, len, err) < 0)
		return HTTP_REFUSE;
	if (options->progress)
		options->progress(options->cookie, (int64_t)len);
	return HTTP_TAKEN;
}

static int range_restart(void *cookie)
{
	struct range_slot *slot = cookie;
	const struct object_get_options *options = slot->download->options;

	if (options->progress && slot->at)
		options->progress(options->cookie, -(int64_t)slot->at);
	slot->at = 0;
	slot->written = 0;
	if (slot->download->writer && get_writer_drain(slot->download->writer, &slot->line) != 0)
		return -1;
	if (get_run_restart(&slot->run) < 0)
		return -1;
	return slot->sum.kind ? checksum_reset(&slot->sum) : 0;
}

static void slot_init(struct download *d, struct range_slot *slot)
{
	s3_op_init(&slot->op, "GET", d->at);
	slot->used = true;
	slot->download = d;
	slot->line.cookie = slot;
	slot->at = 0;
	slot->written = 0;
	slot->op.request.sink = (struct http_sink){.kind = HTTP_SINK_CALLBACK,
		.write = range_write,
		.restart = range_restart,
		.cookie = slot};
	slot->op.request.bulk = true;
	slot->op.request.resend_ms = LIMIT_HTTP_RESEND_MS;
	s3_op_header(&slot->op, "if-match", d->etag[0] ? d->etag : d->options->if_match);
}

static void slot_release(struct range_slot *slot)
{
	s3_op_release(&slot->op);
	checksum_release(&slot->sum);
	get_run_release(&slot->run);
	free(slot->gathered);
	slot->gathered = NULL;
	slot->used = false;
}

int download_replaced(const struct download *d, struct penstock_error *err)
{
	if (err && err->code == PENSTOCK_E_PRECONDITION && !d->options->if_match) {
		object_replaced(d->at, err);
		err->http_status = 412;
	}
	return err ? -(int)err->code : -(int)PENSTOCK_E_CHANGED;
}

static int check_digest(struct download *d, const uint8_t *got, struct penstock_error *err)
{
	if (memcmp(got, d->wanted, checksum_size(d->kind)) == 0)
		return 0;
	return object_corrupt(d->at, d->kind, err);
}

static int range_headers(void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	struct range_slot *slot = cookie;

	return s3_op_check_same(&slot->op, reply, slot->download->etag, err);
}

/* Checks the headers of a whole GET, and takes the object's checksum from them. */
static int whole_headers(void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	struct range_slot *slot = cookie;
	struct download *d = slot->download;
	int r = range_headers(cookie, reply, err);

	if (r < 0)
		return r;
	if (slot->length != HTTP_LENGTH_UNKNOWN && reply->total_size != HTTP_LENGTH_UNKNOWN &&
		d->size != reply->total_size)
		return error_set(err, PENSTOCK_E_CHANGED,
			"the object has %" PRIu64 " bytes, but its listing has %" PRIu64,
			reply->total_size, d->size);
	d->encrypted = object_reply_encrypted(reply);
	if (d->kind == CHECKSUM_NONE)
		d->kind = object_reply_digest(reply, d->wanted);
	if (d->kind == CHECKSUM_NONE && object_response_checksums())
		d->part_kind = object_reply_part_checksum(reply, d->etag);
	if (d->kind != CHECKSUM_NONE && slot->sum.kind == CHECKSUM_NONE)
		return checksum_init(&slot->sum, d->kind, err);
	return 0;
}

int download_whole(struct download *d, bool ranged, struct penstock_error *err)
{
	struct range_slot slot = {.length = d->size};
	uint8_t got[CHECKSUM_MAX_SIZE];
	int r;

	slot_init(d, &slot);
	slot.op.request.on_headers = ranged ? range_headers : whole_headers;
	if (ranged)
		slot.op.request.range = (struct http_range){
			.wanted = true, .offset = d->from, .length = d->options->length};
	else if (object_response_checksums())
		s3_op_header(&slot.op, "x-amz-checksum-mode", "ENABLED");
	s3_op_cancel(&slot.op, d->options->cancel);
	r = s3_op_perform(&slot.op, err);
	if (r < 0)
		r = download_replaced(d, err);
	if (r == 0 && slot.at > slot.written)
		r = range_write_out(&slot, err);
	if (r == 0 && slot.length != HTTP_LENGTH_UNKNOWN && slot.at != slot.length)
		r = error_set(err, PENSTOCK_E_CHANGED,
			"%s: the object has %" PRIu64 " bytes, but its listing has %" PRIu64,
			slot.op.what, slot.at, slot.length);
	if (r == 0 && slot.sum.kind && !ranged) {
		checksum_final(&slot.sum, got);
		r = check_digest(d, got, err);
	}
	if (r == 0)
		r = object_info_from_reply(&slot.op.reply, &d->info, err);
	d->size = slot.at;
	slot_release(&slot);
	return r;
}

/* ---- in parallel ranges ---- */

#define DAMAGED_ATTEMPTS 3 /* limit of requests for a range with damaged bytes */

/* Returns the next part, from index *i on, that lies in the given bytes of the file and differs
 * from the store's checksum. */
static const struct get_part_sum *damaged_part(
	const struct download *d, unsigned *i, uint64_t offset, uint64_t length)
{
	const struct get_part_sum *part;
	uint8_t got[CHECKSUM_MAX_SIZE];

	while ((part = get_parts_within(&d->parts, i, offset, length))) {
		if (get_blocks_digest_of(&d->blocks, part->offset, part->length, got) &&
			memcmp(got, part->digest, checksum_size(d->blocks.kind)) != 0)
			return part;
	}
	return NULL;
}

static int check_parts(
	const struct download *d, uint64_t offset, uint64_t length, struct penstock_error *err)
{
	unsigned i = 0;
	const struct get_part_sum *part = damaged_part(d, &i, offset, length);

	if (!part)
		return 0;
	get_part_damaged(part, i, d->blocks.kind, err);
	return error_prefix(
		err, "GET %s://%s/%s", object_client_scheme(d->at.client), d->at.bucket, d->at.key);
}

/* Retries a range at once if it has damaged parts. */
static enum http_verdict range_classify(
	void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	struct range_slot *slot = cookie;
	struct download *d = slot->download;
	enum http_verdict verdict = slot->classify(cookie, reply, err);

	if (verdict != HTTP_VERDICT_DEFAULT || slot->at != slot->length ||
		!atomic_load(&d->parts_known))
		return verdict;
	if (d->writer) {
		/* The engine's thread does not wait for queued writes here; refetch_damaged() finds
		 * the damage. */
		if (!d->refetching)
			return verdict;
		if (write_failed(get_writer_drain(d->writer, &slot->line), err) < 0)
			return HTTP_VERDICT_FAIL;
	}
	if (check_parts(d, slot->offset, slot->length, err) == 0)
		return verdict;
	return reply->attempts < DAMAGED_ATTEMPTS ? HTTP_VERDICT_RETRY : HTTP_VERDICT_FAIL;
}

static void range_done(void *cookie, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err)
{
	struct range_slot *slot = cookie;
	struct download *d = slot->download;
	struct penstock_error own = PENSTOCK_ERROR_INIT;

	(void)request;
	(void)reply;
	if (err) {
		download_replaced(d, err);
	} else if (slot->at != slot->length) {
		/* A server that does not send the object's size may send a part of the range as if
		 * it were the whole range. */
		object_error(&own, PENSTOCK_E_CHANGED, "GET", d->at,
			"received %" PRIu64 " bytes of %" PRIu64, slot->at, slot->length);
		err = &own;
	}
	fan_ended(&d->fan, &slot->flying, err);
}

static int range_start(struct download *d, struct range_slot *slot, uint64_t offset,
	uint64_t length, struct penstock_error *err)
{
	int r;

	if (slot->used)
		slot_release(slot);
	slot_init(d, slot);
	s3_op_cancel(&slot->op, d->options->cancel);
	slot->offset = offset;
	slot->length = length;
	slot->op.request.range = (struct http_range){
		.wanted = true, .offset = d->from + slot->offset, .length = slot->length};
	slot->op.request.on_headers = range_headers;
	slot->op.request.done = range_done;
	slot->classify = slot->op.request.classify;
	slot->op.request.classify = range_classify;
	r = s3_op_ready(&slot->op, err);
	return r < 0 ? r
		     : fan_submit(&d->fan, &slot->op.request, &slot->op.reply, &slot->flying, err);
}

/* Returns a slot that is unused, or whose range has arrived and is written. If there is no such
 * slot, waits until the writer has written a range that has arrived. Returns NULL if all slots are
 * in flight. */
static struct range_slot *free_slot(struct download *d)
{
	struct range_slot *came = NULL;

	for (unsigned i = 0; i < d->n_slots; i++) {
		struct range_slot *slot = &d->slots[i];

		if (atomic_load(&slot->flying))
			continue;
		if (!atomic_load(&slot->line.pending))
			return slot;
		came = slot;
	}
	if (came)
		get_writer_drain(d->writer, &came->line);
	return came;
}

static void learn_parts(struct download *d)
{
	if (d->part_kind == CHECKSUM_NONE || d->part_kind != d->blocks.kind)
		return;
	get_parts_learn(&d->parts, d->at, d->size, d->etag, d->part_kind, d->options->cancel);
	atomic_store(&d->parts_known, d->parts.n > 0);
}

/* Fetches parts again that arrived before their checksums were known, or in several ranges. */
static void refetch_damaged(struct download *d)
{
	struct penstock_error own = PENSTOCK_ERROR_INIT;
	unsigned i = 0;

	while (fan_wait(&d->fan, 1)) {
		const struct get_part_sum *part;

		if (d->writer && get_writer_drain(d->writer, NULL) != 0)
			return;
		d->refetching = true;
		part = damaged_part(d, &i, 0, d->size);
		if (!part)
			return;
		log_debug("GET %s://%s/%s: part %u is damaged; fetching it again",
			object_client_scheme(d->at.client), d->at.bucket, d->at.key, i);
		if (d->options->progress)
			d->options->progress(d->options->cookie, -(int64_t)part->length);
		if (range_start(d, &d->slots[0], part->offset, part->length, &own) < 0)
			fan_fail(&d->fan, &own);
	}
}

static int run_ranges(struct download *d, struct penstock_error *err)
{
	struct penstock_error own = PENSTOCK_ERROR_INIT;
	uint64_t at = 0, offset, length;
	unsigned started = 0;

	while (at < d->size && fan_wait(&d->fan, d->n_slots)) {
		struct range_slot *slot = free_slot(d);

		if (!slot)
			continue;
		if (!get_blocks_next(&d->blocks, &at, LIMIT_GET_RANGE, &offset, &length))
			break;
		if (range_start(d, slot, offset, length, &own) < 0) {
			fan_fail(&d->fan, &own);
			break;
		}
		/* Requests the checksums of the parts while the first ranges are in flight. */
		if (++started == LIMIT_HTTP_BULK_CONNECTIONS)
			learn_parts(d);
	}
	if (started < LIMIT_HTTP_BULK_CONNECTIONS)
		learn_parts(d);
	refetch_damaged(d);
	return fan_finish(&d->fan, err);
}

/*
 * Compares the checksum of the whole object. A checksum that cannot be combined from the checksums
 * of the blocks (MD5, SHA) requires reading the file once more, which takes longer than the
 * transfer; such a checksum is used only if the store has nothing better.
 */
static int check_whole(struct download *d, struct penstock_error *err)
{
	uint8_t got[CHECKSUM_MAX_SIZE];
	int r = 0;

	if (checksum_is_crc(d->kind))
		get_blocks_digest(&d->blocks, got);
	else
		r = checksum_of_file(d->part.fd, d->kind, 0, d->size, d->options->cancel, got, err);
	return r < 0 ? r : check_digest(d, got, err);
}

/* Returns true if each part was compared. A part that starts or ends within a block was not
 * compared. */
static bool all_compared(const struct download *d)
{
	uint8_t got[CHECKSUM_MAX_SIZE];

	for (unsigned i = 0; i < d->parts.n; i++) {
		const struct get_part_sum *part = &d->parts.parts[i];

		if (part->length &&
			!get_blocks_digest_of(&d->blocks, part->offset, part->length, got))
			return false;
	}
	return d->parts.n > 0;
}

/* Sets up the blocks, and takes over the blocks that an earlier call has fetched. */
static int prepare_blocks(struct download *d, struct penstock_error *err)
{
	/* Use only a checksum that can be combined from the blocks' checksums; a journal needs such
	 * a checksum. */
	enum checksum_kind kind = checksum_is_crc(d->kind)	  ? d->kind
				  : d->part_kind != CHECKSUM_NONE ? d->part_kind
				  : d->part.journaled		  ? CHECKSUM_CRC64NVME
								  : CHECKSUM_NONE;
	int r = get_blocks_init(&d->blocks, d->size, kind, err);
	int64_t there = r < 0 ? r : get_part_begin(&d->part, d->etag, &d->blocks, err);

	if (there > 0 && d->options->progress)
		d->options->progress(d->options->cookie, there);
	if (there > 0 && d->options->resumed)
		d->options->resumed(d->options->cookie, (uint64_t)there);
	return there < 0 ? (int)there : 0;
}

int download_ranges(struct download *d, struct penstock_error *err)
{
	int r = prepare_blocks(d, err);
	int failed;

	if (r < 0)
		return r;
	d->n_slots = d->options->parallel ? d->options->parallel : LIMIT_TRANSFER_AHEAD;
	d->slots = calloc(d->n_slots, sizeof(*d->slots));
	if (!d->slots)
		return error_memory(err);
	fan_init(&d->fan, d->at.client->engine, d->options->cancel);
	d->refetching = false;
	d->writer = get_writer_start(write_piece, LIMIT_GET_LINGER_MS);
	r = run_ranges(d, err);
	failed = get_writer_stop(d->writer);
	d->writer = NULL;
	/* Report a failed write first, because the requests usually fail as a consequence. */
	if (failed && r != -(int)PENSTOCK_E_CANCELLED)
		r = write_failed(failed, err);
	/* Verify parts that arrived before their checksums were known, or in several ranges. */
	if (r == 0 && !checksum_is_crc(d->kind))
		r = check_parts(d, 0, d->size, err);
	if (r == 0 && d->kind != CHECKSUM_NONE)
		r = check_whole(d, err);
	d->parts_checked = r == 0 && all_compared(d);
	/* A store that has no checksums of the parts now will have none later. */
	if (!d->parts.n)
		d->part_kind = CHECKSUM_NONE;
	atomic_store(&d->parts_known, false);
	get_parts_release(&d->parts);
	for (unsigned i = 0; i < d->n_slots; i++) {
		if (d->slots[i].used)
			slot_release(&d->slots[i]);
	}
	fan_release(&d->fan);
	free(d->slots);
	d->slots = NULL;
	return r;
}
