/* Uploads one object in one PUT or in parts: from memory or from a file. */
#include "transfer/put/internal.h"
#include "transfer/put/parts.h"

#include <string.h>
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"

/* Called if a condition failed but an earlier attempt may have been executed: returns true if the
 * object has the sent bytes. */
static bool put_was_done(struct s3_op *op, struct put_body *body)
{
	_cleanup_(s3_op_release) struct s3_op head = {0};
	const struct object_client *client = op->at.client;
	uint8_t stored[CHECKSUM_MAX_SIZE];
	uint8_t sent[CHECKSUM_MAX_SIZE];
	enum put_sum sum = PUT_SUM_UNKNOWN;
	const char *crc;

	if (!op->reply.sent_before || s3_op_head(&head, op->at, NULL, true, NULL, NULL, NULL) < 0 ||
		head.reply.total_size != body->length)
		return false;
	crc = http_reply_header(&head.reply, checksum_header(client->guard_kind));
	if (crc && put_body_sum(body, body->kind, body->digest, NULL) == 0)
		sum = put_compare_sum(client, crc, body->digest);
	if (sum != PUT_SUM_UNKNOWN)
		return sum == PUT_SUM_SAME;
	return object_reply_md5(&head.reply, stored) &&
	       put_body_sum(body, CHECKSUM_MD5, sent, NULL) == 0 && memcmp(stored, sent, 16) == 0;
}

static int put_once(struct object_ref at, struct put_body *body,
	const struct object_put_options *options, enum guard guard, bool *refused,
	struct object_info *info, struct penstock_error *err)
{
	_cleanup_(put_request_release) struct put_request put = {0};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	struct object_info found = {0};
	int r;

	s3_op_init(&put.op, "PUT", at);
	put_headers(&put.op, options);
	put_conditions(&put.op, options);
	r = put_body_attach(&put.op, body, guard, err);
	if (r < 0)
		return r;
	put_control(&put.op, options);
	put.op.request.fresh_connection = options->if_match || options->if_none_match;
	put_request_hook(&put, body);
	r = s3_op_perform(&put.op, &own);
	if (r == 0 && options->sent)
		atomic_fetch_add(options->sent, body->length);
	if (r == -(int)PENSTOCK_E_PRECONDITION && put_was_done(&put.op, body))
		return object_head(at, info, err);
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
	return object_info_pass(r, &found, info);
}

static int put_whole(struct object_ref at, const struct put_body *from,
	const struct object_put_options *options, struct object_info *info,
	struct penstock_error *err)
{
	enum guard guard = (enum guard)atomic_load(&at.client->guard);
	struct object_put_options unconditional;
	bool bare = false; /* the request was retried without the quotes of the ETag */
	bool again = false; /* the object arrived damaged, and was sent once more */

	for (;;) {
		_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
		_cleanup_(put_body_release) struct put_body body = *from;
		bool refused = false;
		int r = put_once(at, &body, options, guard, &refused, info, &own);

		if (r == 0) {
			/* Only a success without a checksum shows that the store refused the
			 * checksum. */
			if (guard == GUARD_MD5)
				atomic_store(&at.client->guard, GUARD_MD5);
			return 0;
		}
		put_body_rewind(&body);
		if (r == -(int)PENSTOCK_E_PRECONDITION && !bare &&
			put_wants_bare_etag(at, options)) {
			bare = true;
			continue;
		}
		/* Ceph 16 refuses every If-Match in a bucket with versioning. */
		if (r == -(int)PENSTOCK_E_PRECONDITION && atomic_load(&at.client->bare_etags) &&
			put_finds_expected(at, options)) {
			unconditional = *options;
			unconditional.if_match = NULL;
			options = &unconditional;
			continue;
		}
		if (bare)
			atomic_store(&at.client->bare_etags, false);
		/* Under a condition the damaged object itself would make the retry fail. */
		if (r == -(int)PENSTOCK_E_CORRUPT && !again && !options->if_match &&
			!options->if_none_match) {
			log_debug("%s; sending it again", own.message);
			again = true;
			continue;
		}
		if (!refused)
			return error_move(err, &own);
		guard = GUARD_MD5;
	}
}

int object_put(struct object_ref at, const void *data, size_t len,
	const struct object_put_options *options, struct object_info *info,
	struct penstock_error *err)
{
	const struct object_put_options *o = options ? options : &(struct object_put_options){0};
	const struct put_body body = {.data = len ? data : "",
		.fd = -1,
		.length = len,
		.last = true,
		.still_valid = o->still_valid,
		.progress = o->progress,
		.cookie = o->cookie};

	return put_whole(at, &body, o, info, err);
}

int put_file(struct object_ref at, int fd, uint64_t size, const struct object_put_options *o,
	struct object_info *info, struct penstock_error *err)
{
	const struct put_body body = {.fd = fd,
		.length = size,
		.last = true,
		.still_valid = o->still_valid,
		.progress = o->progress,
		.cookie = o->cookie};

	if (size > (o->part_size ? o->part_size : LIMIT_PUT_SINGLE) &&
		!put_needs_one_request(at.client, o))
		return put_in_parts(at, fd, size, o, info, err);
	return put_whole(at, &body, o, info, err);
}
