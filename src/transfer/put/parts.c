/* Uploads one object in parallel parts: nothing is visible before the last request, and a failure
 * leaves nothing in the store unless the upload can be resumed. */
#include "transfer/put/parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "s3/message/messages.h"
#include "s3/multipart.h"
#include "s3/range.h"

/* A resumable upload has as many parts in flight as take about IN_FLIGHT_MS, but at least
 * IN_FLIGHT_MIN. */
enum { IN_FLIGHT_MS = 4000, IN_FLIGHT_MIN = 4 };

int upload_start(struct upload *u, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	bool sums = u->guard != GUARD_MD5;
	int r;

	s3_op_init(&op, "POST", u->at);
	s3_op_query(&op, "uploads", NULL);
	put_headers(&op, u->options);
	s3_op_header(&op, "x-amz-checksum-algorithm",
		sums ? checksum_name(u->at.client->guard_kind) : NULL);
	s3_op_header(&op, "x-amz-checksum-type", sums ? "FULL_OBJECT" : NULL);
	s3_op_body(&op, NULL, 0);
	put_control(&op, u->options);
	r = s3_op_upload_id(&op, &u->id, err);
	if (r < 0) {
		u->refused = sums && err && put_guard_refused(&op, err);
		return r;
	}
	if (u->guard == GUARD_HEADER && atomic_load(&u->at.client->guard) == GUARD_TRAILER)
		u->guard = GUARD_TRAILER;
	return 0;
}

static void report_upload(const struct upload *u, bool over)
{
	if (u->options->parts)
		u->options->parts(u->options->cookie, u->at.key, u->id, over);
}

/* ---- parts ---- */

static void part_done(void *cookie, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err)
{
	struct part_slot *slot = cookie;

	(void)request;
	(void)reply;
	slot->failed = err != NULL;
	if (!err)
		atomic_fetch_add(&slot->upload->moved, slot->body.length);
	if (!err && !slot->copied && slot->upload->options->sent)
		atomic_fetch_add(slot->upload->options->sent, slot->body.length);
	/* A cancelled or retryable request does not mean that the store cannot copy. */
	slot->uncopied = slot->copied && err && err->code != PENSTOCK_E_CANCELLED &&
			 !error_is_retryable(err);
	slot->refused = err && slot->body.guard != GUARD_MD5 &&
			put_guard_refused(&slot->put.op, err);
	if (slot->failed && slot->body.progress && slot->body.sent)
		slot->body.progress(slot->body.cookie, -(int64_t)slot->body.sent);
	fan_ended(&slot->upload->fan, &slot->flying, err);
}

/* Takes the result of a part that has ended, and frees its slot. */
static int collect(struct upload *u, struct part_slot *slot, struct penstock_error *err)
{
	struct part_result *result;
	const char *echo;
	int r = 0;

	if (!slot->number)
		return 0;
	result = &u->results[slot->number - 1];
	result->length = slot->body.length;
	u->refused = u->refused || slot->refused;
	if (slot->copied) {
		r = put_copy_collect(u, slot, err);
	} else if (!slot->failed) {
		r = put_body_verify(&slot->put.op, &slot->body, err);
		object_etag_copy(result->etag, http_reply_header(&slot->put.op.reply, "ETag"));
		memcpy(result->digest, slot->body.digest, sizeof(result->digest));
		echo = http_reply_header(
			&slot->put.op.reply, checksum_header(u->at.client->guard_kind));
		if (echo && strlen(echo) < sizeof(result->checksum))
			memcpy(result->checksum, echo, strlen(echo) + 1);
		if (r == 0 && !result->etag[0])
			r = error_set(err, PENSTOCK_E_PROTOCOL, "%s: reply without ETag",
				slot->put.op.what);
		if (slot->body.inline_body && slot->body.progress)
			slot->body.progress(slot->body.cookie, (int64_t)slot->body.length);
		result->listed = r == 0;
		if (r == 0)
			put_resume_part(&u->resume, u, slot->number);
	}
	put_request_release(&slot->put);
	put_body_release(&slot->body);
	slot->number = 0;
	return r;
}

int upload_part_start(
	struct upload *u, struct part_slot *slot, unsigned number, struct penstock_error *err)
{
	struct s3_op *op = &slot->put.op;
	char text[RANGE_TEXT_SIZE];
	int r;

	slot->upload = u;
	slot->refused = false;
	slot->copied = u->from.key && (!u->delta || u->delta->plan->spans[number - 1].copy);
	if (!u->stream) {
		const struct delta_span *span = u->delta ? &u->delta->plan->spans[number - 1]
							 : NULL;

		slot->body = (struct put_body){.fd = u->fd};
		if (span) {
			slot->body.offset = span->offset;
			slot->body.length = span->length;
		} else if (!multipart_range(u->size, u->part_size, number, &slot->body.offset,
				   &slot->body.length))
			return error_set(err, PENSTOCK_E_INTERNAL, "invalid part %u of %u", number,
				u->parts);
	}
	slot->body.progress = u->options->progress;
	slot->body.cookie = u->options->cookie;
	snprintf(text, sizeof(text), "%u", number);
	s3_op_init(op, "PUT", u->at);
	slot->number = number;
	slot->failed = true; /* until the request has succeeded */
	put_control(op, u->options);
	s3_op_query(op, "partNumber", text);
	s3_op_query(op, "uploadId", u->id);
	if (slot->copied) {
		slot->body.guard = GUARD_MD5;
		put_copy_part(u, slot);
		r = 0;
	} else {
		r = put_body_attach(op, &slot->body, u->guard, err);
		put_request_hook(&slot->put, &slot->body);
	}
	if (r == 0)
		r = s3_op_ready(op, err);
	if (r < 0)
		return r;
	op->request.done = part_done;
	/* The store needs a while for a copy, and no bytes move here. */
	op->request.bulk = !slot->copied;
	op->request.resend_ms = slot->copied ? 0 : LIMIT_HTTP_RESEND_MS;
	return fan_submit(&u->fan, &op->request, &op->reply, &slot->flying, err);
}

int upload_collect(struct upload *u, struct part_slot **free_slot, struct penstock_error *err)
{
	int r = 0;

	*free_slot = NULL;
	for (unsigned i = 0; r == 0 && i < u->n_slots; i++) {
		if (atomic_load(&u->slots[i].flying))
			continue;
		*free_slot = &u->slots[i];
		r = collect(u, &u->slots[i], err);
	}
	return r;
}

int upload_settle(struct upload *u, struct penstock_error *err)
{
	struct penstock_error own = PENSTOCK_ERROR_INIT;
	struct part_slot *ignored;

	for (unsigned limit = u->n_slots; limit > 0; limit--) {
		fan_wait(&u->fan, limit);
		if (upload_collect(u, &ignored, &own) < 0)
			fan_fail(&u->fan, &own);
	}
	return fan_finish(&u->fan, err);
}

/* Returns true if the file still has the bytes of a part that an earlier call has sent, and reports
 * these bytes as resumed. */
static bool has_same_bytes(struct upload *u, unsigned number)
{
	struct part_result *result = &u->results[number - 1];
	_cleanup_(put_body_release) struct put_body body = {
		.fd = u->fd, .kind = u->at.client->guard_kind};
	bool same;

	if (!multipart_range(u->size, u->part_size, number, &body.offset, &body.length))
		return false;
	if (u->guard == GUARD_MD5)
		same = put_body_has_md5(&body, result->etag);
	else
		same = put_body_sum(&body, body.kind, body.digest, NULL) == 0 &&
		       memcmp(body.digest, result->digest, checksum_size(body.kind)) == 0;
	if (same && u->options->progress)
		u->options->progress(u->options->cookie, (int64_t)body.length);
	if (same && u->options->resumed)
		u->options->resumed(u->options->cookie, body.length);
	return same;
}

/* Parts in flight are lost when a call is interrupted. An upload that may be resumed sends few
 * parts at a time on a slow link: as many as it can send within IN_FLIGHT_MS. */
static unsigned parts_at_a_time(const struct upload *u)
{
	uint64_t ms = (uint64_t)(clock_monotonic_ms() - u->began_ms) + 1;
	uint64_t n = atomic_load(&u->moved) / ms * IN_FLIGHT_MS / u->part_size;

	if (!u->resume.on || n >= u->n_slots || u->n_slots <= IN_FLIGHT_MIN)
		return u->n_slots;
	return n < IN_FLIGHT_MIN ? IN_FLIGHT_MIN : (unsigned)n;
}

static int upload_parts(struct upload *u, struct penstock_error *err)
{
	struct penstock_error own = PENSTOCK_ERROR_INIT;
	unsigned next = 1;
	int r = 0;

	u->began_ms = clock_monotonic_ms();
	while (r == 0 && next <= u->parts && fan_wait(&u->fan, parts_at_a_time(u))) {
		struct part_slot *slot;

		r = upload_collect(u, &slot, &own);
		if (r < 0 || !slot)
			continue;
		if (!(u->results[next - 1].listed && has_same_bytes(u, next)))
			r = upload_part_start(u, slot, next, &own);
		next++;
	}
	if (r < 0)
		fan_fail(&u->fan, &own);
	return upload_settle(u, err);
}

/* ---- the Complete ---- */

static int complete_body(struct upload *u, struct penstock_error *err)
{
	struct s3_part *parts = calloc(u->parts, sizeof(*parts));
	struct s3_complete complete = {.parts = parts, .n = u->parts};

	if (!parts)
		return error_memory(err);
	buf_clear(&u->complete);
	for (unsigned i = 0; i < u->parts; i++) {
		parts[i].number = i + 1;
		parts[i].etag = u->results[i].etag;
		if (u->results[i].checksum[0])
			parts[i].checksums[u->at.client->guard_kind] = u->results[i].checksum;
	}
	s3_complete_write(&u->complete, &complete);
	free(parts);
	return 0;
}

static void whole_digest(struct upload *u)
{
	memcpy(u->digest, u->results[0].digest, sizeof(u->digest));
	for (unsigned i = 1; i < u->parts; i++)
		checksum_combine(u->at.client->guard_kind, u->digest, u->results[i].digest,
			u->results[i].length);
}

/* Computes the ETag that the object must get if the parts' ETags are MD5s; returns false if the
 * parts have other ETags. */
static bool expected_etag(const struct upload *u, char etag[static MULTIPART_ETAG_SIZE])
{
	uint8_t(*md5)[16] = calloc(u->parts, sizeof(*md5));
	bool known = md5 != NULL;

	for (unsigned i = 0; known && i < u->parts; i++)
		known = object_etag_md5(u->results[i].etag, md5[i]);
	known = known && multipart_etag((const uint8_t(*)[16])md5, u->parts, etag, NULL) == 0;
	free(md5);
	return known;
}

/* Compares the checksum of the whole object, if the upload had one. */
static enum put_sum whole_sum(const struct upload *u, const char *checksum)
{
	return u->guard == GUARD_MD5 ? PUT_SUM_UNKNOWN
				     : put_compare_sum(u->at.client, checksum, u->digest);
}

static int verify_object(
	struct upload *u, const char *etag, const char *checksum, struct penstock_error *err)
{
	enum put_sum sum = whole_sum(u, checksum);
	char expected[MULTIPART_ETAG_SIZE];

	if (sum == PUT_SUM_SAME ||
		(sum == PUT_SUM_UNKNOWN &&
			(u->guard != GUARD_MD5 || u->fd < 0 || !etag || !strchr(etag, '-') ||
				!expected_etag(u, expected) || strcmp(etag, expected) == 0)))
		return 0;
	return object_error(err, PENSTOCK_E_CORRUPT, "PUT", u->at,
		"the assembled object differs from the bytes that were sent");
}

/* Called if the reply to the Complete was lost or is unclear: returns true if the object exists and
 * has the sent bytes. */
static bool complete_was_done(struct upload *u, struct object_info *info)
{
	_cleanup_(s3_op_release) struct s3_op head = {0};
	char expected[MULTIPART_ETAG_SIZE];
	const char *etag;
	enum put_sum sum;

	if (s3_op_head(&head, u->at, NULL, true, NULL, NULL, NULL) < 0 ||
		head.reply.total_size != u->size)
		return false;
	etag = http_reply_header(&head.reply, "ETag");
	sum = whole_sum(
		u, http_reply_header(&head.reply, checksum_header(u->at.client->guard_kind)));
	if (sum == PUT_SUM_DIFFERS ||
		(sum == PUT_SUM_UNKNOWN &&
			(!etag || !expected_etag(u, expected) || strcmp(etag, expected) != 0)))
		return false;
	return object_info_from_reply(&head.reply, info, NULL) == 0;
}

static bool upload_is_there(struct upload *u, struct object_info *info)
{
	/* The file may have changed since an earlier call sent its parts. */
	for (unsigned i = 1; i <= u->parts; i++) {
		if (!has_same_bytes(u, i))
			return false;
	}
	if (u->guard != GUARD_MD5)
		whole_digest(u);
	return complete_was_done(u, info);
}

/* Gets the ETag of the object by a HEAD, and checks that the object is the sent one: Ceph before 17
 * confirms the Complete without an ETag. */
static int etag_of_object(struct upload *u, struct object_info *info, struct penstock_error *err)
{
	char expected[MULTIPART_ETAG_SIZE];
	int r = object_head(u->at, info, err);

	if (r < 0)
		return r;
	if (info->size == u->size &&
		(!expected_etag(u, expected) || strcmp(info->etag, expected) == 0))
		return 0;
	object_info_release(info);
	return object_error(err, PENSTOCK_E_PRECONDITION, "PUT", u->at,
		"the object is not the one that was sent");
}

/* Verifies size and checksum by a HEAD, and takes the ETag from its reply. */
static int look_at_object(struct upload *u, struct object_info *info, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op head = {0};
	int r = s3_op_head(&head, u->at, NULL, false, NULL, NULL, err);

	if (r < 0)
		return r;
	if (head.reply.total_size != u->size ||
		whole_sum(u, http_reply_header(&head.reply,
				     checksum_header(u->at.client->guard_kind))) == PUT_SUM_DIFFERS)
		return object_error(err, PENSTOCK_E_CORRUPT, "PUT", u->at,
			"the object differs from the bytes that were sent");
	return object_info_from_reply(&head.reply, info, err);
}

static int complete_perform(struct upload *u, struct put_request *put, struct object_info *info,
	struct penstock_error *err)
{
	_cleanup_(s3_reply_release) struct s3_reply reply = {0};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	const char *checksum;
	int r = s3_op_perform(&put->op, &own);

	if (r < 0 && put->op.reply.sent_before &&
		(put->op.error == S3_E_NO_SUCH_UPLOAD || r == -(int)PENSTOCK_E_PRECONDITION) &&
		complete_was_done(u, info))
		return 0;
	if (r < 0) {
		put_nothing_to_match(&put->op, u->options, &own);
		return error_move(err, &own);
	}
	r = s3_reply_parse(put->op.document.data, put->op.document.len, &reply, &own);
	/* The reply is unclear: the object itself shows whether the Complete was done. */
	if ((r < 0 || reply.kind != S3_REPLY_COMPLETE) && complete_was_done(u, info))
		return 0;
	if (r < 0)
		return error_prefix(&own, "%s", put->op.what), error_move(err, &own);
	if (reply.kind != S3_REPLY_COMPLETE)
		return error_set(err, PENSTOCK_E_PROTOCOL,
			"%s: the store did not confirm the complete upload", put->op.what);
	/* Google's reply has neither the checksum nor the generation. */
	if (u->at.client->google)
		return look_at_object(u, info, err);
	if (!reply.etag || !*reply.etag)
		return etag_of_object(u, info, err);
	checksum = reply.checksums[u->at.client->guard_kind];
	r = verify_object(u, reply.etag, checksum, err);
	if (r == 0)
		r = object_info_from_reply(&put->op.reply, info, err);
	object_etag_copy(info->etag, reply.etag);
	return r;
}

/* Takes the ETag of a part in the store's list. A part may have been sent twice because a reply was
 * lost, and the store kept the first one. If the store's ETags are not made of the bytes, the kept
 * part has another ETag; its checksum shows that the bytes are the same. */
static void take_etag(struct upload *u, const struct s3_part *part)
{
	struct part_result *result = part->number >= 1 && part->number <= u->parts
					     ? &u->results[part->number - 1]
					     : NULL;

	if (result && part->size == result->length &&
		put_compare_sum(u->at.client, part->checksums[u->at.client->guard_kind],
			result->digest) == PUT_SUM_SAME)
		object_etag_copy(result->etag, part->etag);
}

static int complete_once(
	struct upload *u, struct object_info *info, enum s3_error *why, struct penstock_error *err)
{
	_cleanup_(put_request_release) struct put_request put = {0};
	struct put_body gate = {.fd = -1,
		.inline_body = true,
		.last = true,
		.still_valid = u->options->still_valid,
		.cookie = u->options->cookie};
	char text[CHECKSUM_TEXT_SIZE], size[24];
	int r = complete_body(u, err);

	if (r < 0)
		return r;
	s3_op_init(&put.op, "POST", u->at);
	s3_op_query(&put.op, "uploadId", u->id);
	s3_op_xml(&put.op, &u->complete, "the list of parts");
	put_conditions(&put.op, u->options);
	if (u->guard != GUARD_MD5) {
		whole_digest(u);
		checksum_format(u->at.client->guard_kind, u->digest, text);
		snprintf(size, sizeof(size), "%" PRIu64, u->size);
		s3_op_header(&put.op, checksum_header(u->at.client->guard_kind), text);
		s3_op_header(&put.op, "x-amz-checksum-type", "FULL_OBJECT");
		s3_op_header(&put.op, "x-amz-mp-object-size", size);
	}
	s3_op_wants_document(&put.op);
	put_request_hook(&put, &gate);
	put_control(&put.op, u->options);
	put.op.request.stall_timeout_ms = PUT_STALL_MS;
	put.op.request.fresh_connection = true;
	r = complete_perform(u, &put, info, err);
	*why = put.op.error;
	return r;
}

int upload_complete(struct upload *u, struct object_info *info, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	enum s3_error why = S3_OK;
	int r = complete_once(u, info, &why, &own);

	if (r < 0 && why == S3_E_INVALID_PART && u->guard != GUARD_MD5 &&
		upload_list_parts(u, take_etag, NULL) == 0) {
		log_debug("%s; retrying with the parts that the store lists", own.message);
		penstock_error_release(&own);
		r = complete_once(u, info, &why, &own);
	}
	return r < 0 ? error_move(err, &own) : 0;
}

/* ---- the whole upload ---- */

void upload_release(struct upload *u)
{
	put_resume_end(&u->resume, true);
	fan_release(&u->fan);
	buf_release(&u->complete);
	free(u->id);
	free(u->results);
	for (unsigned i = 0; u->slots && i < u->n_slots; i++) {
		free(u->slots[i].memory);
		if (u->slots[i].spool >= 0)
			close(u->slots[i].spool);
	}
	free(u->slots);
}

/* Starts an upload, or resumes the upload of an earlier call. Returns 1 if the object already
 * exists. */
static int upload_begin(struct upload *u, struct object_info *info, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r = u->id ? put_resume_take(&u->resume, u, upload_is_there, info, err) : 0;

	if (r || u->id)
		return r;
	report_upload(u, false);
	r = upload_start(u, &own);
	/* A store that replied with an error has not started an upload; a store that did not reply
	 * may have started one. */
	if (r < 0 && own.http_status)
		report_upload(u, true);
	if (r < 0)
		return error_move(err, &own);
	put_resume_started(&u->resume, u);
	report_upload(u, false);
	return 0;
}

/* Returns true if a later call may resume after this failure. */
static bool worth_resuming(const struct upload *u, const struct penstock_error *err)
{
	return u->resume.on && u->id &&
	       (err->code == PENSTOCK_E_CANCELLED || err->code == PENSTOCK_E_PERMISSION ||
		       (error_is_retryable(err) && err->code != PENSTOCK_E_CHANGED));
}

static void report_kept(const struct upload *u)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < u->parts; i++)
		bytes += u->results[i].listed ? u->results[i].length : 0;
	if (u->options->kept && bytes)
		u->options->kept(u->options->cookie, bytes);
}

/* Returns true for a failure that would also occur if all parts were sent and none copied. */
static bool would_come_again(const struct penstock_error *err)
{
	return err->code == PENSTOCK_E_CANCELLED || err->code == PENSTOCK_E_CHANGED ||
	       err->code == PENSTOCK_E_PRECONDITION || err->code == PENSTOCK_E_PERMISSION ||
	       (error_is_retryable(err) && err->code != PENSTOCK_E_CORRUPT);
}

static int upload_run(struct upload *u, struct object_info *info, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r = upload_begin(u, info, &own);

	if (r == 0)
		r = upload_parts(u, &own);
	else if (r > 0)
		return put_resume_end(&u->resume, false), 0;
	if (r == 0)
		r = upload_complete(u, info, &own);
	if (r == -(int)PENSTOCK_E_PRECONDITION && put_wants_bare_etag(u->at, u->options)) {
		penstock_error_release(&own);
		r = upload_complete(u, info, &own);
		if (r < 0)
			atomic_store(&u->at.client->bare_etags, false);
	}
	if (r < 0 && u->delta && !would_come_again(&own))
		u->delta->failed = true;
	if (r < 0 && worth_resuming(u, &own)) {
		put_resume_end(&u->resume, true);
		report_kept(u);
		return error_move(err, &own);
	}
	if (u->id && (r == 0 || upload_abort(u)))
		report_upload(u, true);
	put_resume_end(&u->resume, false);
	return r < 0 ? error_move(err, &own) : 0;
}

int upload_init(struct upload *u, unsigned slots, struct penstock_error *err)
{
	u->n_slots = slots;
	u->slots = calloc(slots, sizeof(*u->slots));
	for (unsigned i = 0; u->slots && i < slots; i++)
		u->slots[i].spool = -1;
	buf_init(&u->complete, LIMIT_XML_BODY);
	fan_init(&u->fan, u->at.client->engine, u->options->cancel);
	return u->slots ? 0 : error_memory(err);
}

static int put_parts_once(struct upload *u, struct object_info *info, struct penstock_error *err)
{
	unsigned slots;
	int r = multipart_part_size(u->size, u->options->part_size, &u->part_size, err);

	if (r == 0)
		r = put_resume_find(&u->resume, u, err);
	if (r < 0)
		return r;
	u->parts = u->delta ? u->delta->plan->n : (unsigned)multipart_count(u->size, u->part_size);
	slots = u->options->parallel ? u->options->parallel : LIMIT_TRANSFER_AHEAD;
	u->results = calloc(u->parts, sizeof(*u->results));
	r = upload_init(u, slots < u->parts ? slots : u->parts, err);
	if (r == 0)
		r = u->results ? upload_run(u, info, err) : error_memory(err);
	upload_release(u);
	return r;
}

int put_parts_copied(struct object_ref at, uint64_t size, const struct object_put_options *options,
	struct object_ref from, const char *etag, struct object_info *info,
	struct penstock_error *err)
{
	struct upload u = {.at = at,
		.fd = -1,
		.size = size,
		.options = options,
		.from = from,
		.from_etag = etag,
		.guard = GUARD_MD5};

	return put_parts_once(&u, info, err);
}

int put_parts_of(struct object_ref at, int fd, uint64_t size,
	const struct object_put_options *options, struct put_delta *delta, struct object_info *info,
	struct penstock_error *err)
{
	enum guard guard = (enum guard)atomic_load(&at.client->guard);

	for (;;) {
		_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
		struct object_info found = {0};
		struct upload u = {.at = at,
			.fd = fd,
			.size = size,
			.options = options,
			.delta = delta,
			.from = delta ? at : (struct object_ref){0},
			.from_etag = delta ? delta->etag : NULL,
			.guard = guard};
		int r = put_parts_once(&u, &found, &own);

		found.size = size;
		object_info_pass(r, &found, info);
		if (r == 0 && guard == GUARD_MD5)
			atomic_store(&at.client->guard, GUARD_MD5);
		if (r == 0)
			return 0;
		if (!u.refused || guard == GUARD_MD5)
			return error_move(err, &own);
		guard = GUARD_MD5;
	}
}

int put_in_parts(struct object_ref at, int fd, uint64_t size,
	const struct object_put_options *options, struct object_info *info,
	struct penstock_error *err)
{
	return put_parts_of(at, fd, size, options, NULL, info, err);
}
