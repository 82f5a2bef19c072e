/* Reads through the client's engine, many at a time. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "transfer/reads/internal.h"
#include "transfer/web/request.h"

struct slot {
	/* The first member, because hooks get the address of the slot. For a web resource only the
	 * op's request and reply are used. */
	struct s3_op op;
	struct fan *fan;
	atomic_bool *lost; /* the store does not reply */
	struct flight flight;
	atomic_bool flying;
	bool used;
};

static enum http_take on_write(
	void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct flight *f = &((struct slot *)cookie)->flight;

	if (len > f->read->length - f->at) {
		error_set(err, PENSTOCK_E_CHANGED,
			"the object is longer than the %zu bytes expected", f->read->length);
		return HTTP_REFUSE;
	}
	flight_add(f, data, len);
	return HTTP_TAKEN;
}

static int on_restart(void *cookie)
{
	struct slot *slot = cookie;

	slot->flight.at = 0;
	return checksum_reset(&slot->flight.sum);
}

static int on_headers(void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	struct slot *slot = cookie;
	int r = s3_op_check_same(
		&slot->op, reply, slot->flight.read->etag ? slot->flight.read->etag : "", err);

	if (r < 0 || !slot->flight.read->whole || slot->flight.at > 0)
		return r;
	checksum_release(&slot->flight.sum);
	return checksum_init(
		&slot->flight.sum, object_reply_digest(reply, slot->flight.digest), err);
}

static int check(struct slot *slot, struct penstock_error *err)
{
	const struct object_read *read = slot->flight.read;
	uint8_t got[CHECKSUM_MAX_SIZE];

	if (slot->flight.at != read->length && !slot->op.at.client)
		return error_set(err, PENSTOCK_E_CHANGED,
			"%" PRIu64 " bytes arrived instead of %zu", slot->flight.at, read->length);
	if (slot->flight.at != read->length)
		return object_error(err, PENSTOCK_E_CHANGED, "GET", slot->op.at,
			"%" PRIu64 " bytes arrived instead of %zu", slot->flight.at, read->length);
	checksum_final(&slot->flight.sum, got);
	return memcmp(slot->flight.digest, got, checksum_size(slot->flight.sum.kind)) == 0
		       ? 0
		       : object_corrupt(slot->op.at, slot->flight.sum.kind, err);
}

static int on_web_headers(void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	return reads_web_check(((struct slot *)cookie)->flight.read, reply, err);
}

static void note_lost(const struct slot *slot)
{
	enum penstock_code code = slot->flight.read->error.code;

	if (code == PENSTOCK_E_UNAVAILABLE || code == PENSTOCK_E_TIMEOUT)
		atomic_store(slot->lost, true);
}

/* Takes the result of a read. A failure does not end the other reads, unless the store did not
 * answer the retries. */
static void on_done(void *cookie, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err)
{
	struct slot *slot = cookie;
	struct object_read *read = slot->flight.read;

	(void)request;
	if (!err)
		check(slot, &read->error);
	else if (!slot->op.at.client && web_is_replaced(reply))
		reads_web_check(read, reply, &read->error);
	else if (err->code == PENSTOCK_E_PRECONDITION)
		object_replaced(slot->op.at, &read->error);
	else
		error_move(&read->error, err);
	note_lost(slot);
	fan_ended(slot->fan, &slot->flying, NULL);
}

static int prepare_object(struct object_reads *reads, struct slot *slot, const atomic_int *cancel,
	struct penstock_error *err)
{
	const struct object_read *read = slot->flight.read;
	struct http_request *request = &slot->op.request;

	s3_op_init(&slot->op, "GET", object_at(reads->client, reads->bucket, read->key));
	s3_op_cancel(&slot->op, cancel);
	s3_op_header(&slot->op, "if-match", read->etag && *read->etag ? read->etag : NULL);
	if (!read->whole)
		request->range = (struct http_range){
			.wanted = true, .offset = read->offset, .length = read->length};
	else if (object_response_checksums())
		s3_op_header(&slot->op, "x-amz-checksum-mode", "ENABLED");
	request->on_headers = on_headers;
	return s3_op_ready(&slot->op, err);
}

static int prepare_web(struct slot *slot, struct penstock_error *err)
{
	struct http_request *request = &slot->op.request;

	slot->op.reply = (struct http_reply)HTTP_REPLY_INIT;
	request->cookie = slot;
	request->on_headers = on_web_headers;
	return reads_web_request(request, slot->flight.read, err);
}

static void start(struct object_reads *reads, struct slot *slot, struct object_read *read,
	const atomic_int *cancel)
{
	struct http_request *request = &slot->op.request;
	int r;

	if (slot->used)
		s3_op_release(&slot->op);
	slot->used = true;
	slot->flight.read = read;
	slot->flight.at = 0;
	checksum_release(&slot->flight.sum);
	r = reads->client ? prepare_object(reads, slot, cancel, &read->error)
			  : prepare_web(slot, &read->error);
	request->sink = (struct http_sink){.kind = HTTP_SINK_CALLBACK,
		.write = on_write,
		.restart = on_restart,
		.cookie = slot};
	request->bulk = true;
	request->resend_ms = LIMIT_READS_RESEND_MS;
	request->patience_ms = reads->patience_ms;
	request->done = on_done;
	if (r == 0)
		r = fan_submit(slot->fan, request, &slot->op.reply, &slot->flying, &read->error);
	if (r < 0)
		note_lost(slot);
}

static struct slot *free_slot(struct slot *slots, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!atomic_load(&slots[i].flying))
			return &slots[i];
	}
	return NULL;
}

int reads_engine(struct object_reads *reads, struct object_read *items, size_t n, const bool *done,
	const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_free_ struct slot *slots = NULL;
	_cleanup_error_ struct penstock_error ended = PENSTOCK_ERROR_INIT;
	struct fan fan;
	atomic_bool lost = false;
	size_t i = 0, most = 0;

	for (size_t j = 0; j < n; j++)
		most += !done[j];
	if (!most)
		return 0;
	most = most < LIMIT_TRANSFER_AHEAD ? most : LIMIT_TRANSFER_AHEAD;
	slots = calloc(most, sizeof(*slots));
	if (!slots)
		return error_memory(err);
	fan_init(&fan, reads->engine, cancel);
	for (size_t j = 0; j < most; j++) {
		slots[j].fan = &fan;
		slots[j].lost = &lost;
	}
	while (i < n && fan_wait(&fan, (unsigned)most) && !atomic_load(&lost)) {
		if (!done[i])
			start(reads, free_slot(slots, most), &items[i], cancel);
		i++;
	}
	/* The reads from `i` on were not started. */
	fan_finish(&fan, &ended);
	for (; i < n; i++) {
		if (!done[i] && atomic_load(&lost))
			error_set(&items[i].error, PENSTOCK_E_UNAVAILABLE,
				"the store did not answer other reads");
		else if (!done[i])
			error_set(&items[i].error, PENSTOCK_E_CANCELLED, "cancelled");
	}
	for (size_t j = 0; j < most; j++) {
		if (slots[j].used)
			s3_op_release(&slots[j].op);
		checksum_release(&slots[j].flight.sum);
	}
	fan_release(&fan);
	return 0;
}
