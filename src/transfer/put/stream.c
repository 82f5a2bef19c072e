/* Uploads a stream of unknown length: parts that grow, held until they are sent. */
#include "transfer/state/memory_share.h"
#include "transfer/put/parts.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "s3/multipart.h"

/* Parts up to this size wait in memory, larger parts (beyond 8 GB of the stream) in a file. */
#define STREAM_MEMORY_MAX LIMIT_S3_PART_DEFAULT
#define STREAM_BLOCK	  (256 * KIB)
#define STREAM_POLL_MS	  50 /* interval for checking `cancel` while no input arrives */

/* Reads up to `want` bytes; fewer only at end of file. The descriptor may be non-blocking. */
static ssize_t stream_read(struct upload *u, char *out, size_t want, struct penstock_error *err)
{
	const atomic_int *cancel = u->options->cancel;
	const atomic_int *all = http_engine_cancel(u->at.client->engine);
	size_t got = 0;

	while (got < want) {
		struct pollfd p = {.fd = u->fd, .events = POLLIN};
		int ready = poll(&p, 1, STREAM_POLL_MS);
		ssize_t n;

		/* Check the engine's flag too, because there may be no request in flight to obey
		 * it. */
		if ((cancel && atomic_load(cancel)) || (all && atomic_load(all)))
			return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
		if (ready == 0 || (ready < 0 && errno == EINTR))
			continue;
		n = read(u->fd, out + got, want - got);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0)
			return error_errno(err, errno, "cannot read the input");
		if (n == 0) {
			u->ended = true;
			break;
		}
		got += (size_t)n;
	}
	return (ssize_t)got;
}

static int fill_spool(struct upload *u, struct part_slot *slot, uint64_t want, uint64_t *got,
	struct penstock_error *err)
{
	if (slot->spool < 0)
		slot->spool = fs_open_unnamed("a part of the upload", err);
	if (slot->spool < 0)
		return slot->spool;
	for (*got = 0; !u->ended && *got < want;) {
		ssize_t n = stream_read(u, slot->memory, STREAM_BLOCK, err);

		if (n < 0)
			return (int)n;
		if (fs_pwrite_all(slot->spool, slot->memory, (size_t)n, (off_t)*got) < 0)
			return error_errno(
				err, errno, "cannot write a part of the upload to TMPDIR");
		*got += (uint64_t)n;
	}
	return 0;
}

/* Reads the next part of a stream into its slot. Sets `*length` to its size; 0 at the end. */
static int part_fill(struct upload *u, struct part_slot *slot, unsigned number, uint64_t *length,
	struct penstock_error *err)
{
	uint64_t want = u->options->part_size ? u->options->part_size
					      : multipart_growing_size(number);
	bool in_memory = want <= STREAM_MEMORY_MAX;
	ssize_t n;
	int r;

	if (!slot->memory)
		slot->memory = malloc(STREAM_MEMORY_MAX);
	if (!slot->memory)
		return error_memory(err);
	if (in_memory) {
		n = stream_read(u, slot->memory, (size_t)want, err);
		if (n < 0)
			return (int)n;
		*length = (uint64_t)n;
	} else {
		r = fill_spool(u, slot, want, length, err);
		if (r < 0)
			return r;
	}
	slot->body = (struct put_body){.data = in_memory ? slot->memory : NULL,
		.fd = in_memory ? -1 : slot->spool,
		.length = *length};
	return 0;
}

/* Starts the next part. The first part was read before the upload started, because a short stream
 * needs no upload in parts. */
static int stream_part(struct upload *u, struct part_slot *slot, struct penstock_error *err)
{
	uint64_t length = slot->body.length;
	struct part_result *grown;
	int r = 0;

	if (u->parts)
		r = part_fill(u, slot, u->parts + 1, &length, err);
	if (r < 0 || !length)
		return r;
	if (u->parts == LIMIT_S3_PARTS)
		return error_set(err, PENSTOCK_E_LIMIT,
			"the input has more bytes than %d parts hold", LIMIT_S3_PARTS);
	grown = array_grow(u->results, u->parts, sizeof(*grown));
	if (!grown)
		return error_memory(err);
	u->results = grown;
	u->results[u->parts] = (struct part_result){0};
	u->size += length;
	return upload_part_start(u, slot, ++u->parts, err);
}

static int upload_stream(struct upload *u, struct penstock_error *err)
{
	struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r = stream_part(u, &u->slots[0], &own);

	while (r == 0 && !u->ended && fan_wait(&u->fan, u->n_slots)) {
		struct part_slot *slot;

		r = upload_collect(u, &slot, &own);
		if (r == 0 && slot)
			r = stream_part(u, slot, &own);
	}
	if (r < 0)
		fan_fail(&u->fan, &own);
	return upload_settle(u, err);
}

static int stream_run(struct upload *u, struct object_info *info, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r = upload_start(u, &own);

	/* Retry now, while nothing was sent: a stream cannot be sent twice. */
	if (r < 0 && u->refused && u->guard != GUARD_MD5) {
		u->guard = GUARD_MD5;
		penstock_error_release(&own);
		r = upload_start(u, &own);
	}
	if (r == 0)
		r = upload_stream(u, &own);
	if (r == 0)
		r = upload_complete(u, info, &own);
	if (r == 0)
		return 0;
	upload_abort(u);
	return error_move(err, &own);
}

/* Sends the stream to a temporary name; a conditional copy within the store then gives the object
 * its final name. Google supports no condition on a multipart upload. */
static int stream_aside(struct upload *u, struct object_info *info, struct penstock_error *err)
{
	struct object_put_options plain = *u->options;
	_cleanup_free_ char *aside = NULL;
	const struct object_put_options *asked = u->options;
	const char *key = u->at.key;
	uint64_t random = 0;
	int r;

	if (asked->if_match)
		return object_error(err, PENSTOCK_E_UNSUPPORTED, "PUT", u->at,
			"Google Cloud Storage cannot replace an object with a stream under a "
			"condition; write the stream to a file first");
	if (getrandom(&random, sizeof(random), 0) < 0)
		random = (uint64_t)clock_wall_ns();
	aside = str_printf("%s.penstock-%016" PRIx64, key, random);
	if (!aside)
		return error_memory(err);
	plain.if_none_match = false;
	u->options = &plain;
	u->at.key = aside;
	r = stream_run(u, info, err);
	u->options = asked;
	u->at.key = key;
	if (r < 0)
		return r;
	object_info_release(info);
	r = object_copy(object_at(u->at.client, u->at.bucket, aside),
		object_at(u->at.client, u->at.bucket, key),
		&(struct object_copy_options){.if_none_match = true, .cancel = asked->cancel}, info,
		err);
	object_delete(object_at(u->at.client, u->at.bucket, aside), NULL, NULL);
	return r;
}

int object_put_stream(struct object_ref at, int fd, const struct object_put_options *options,
	struct object_info *info, struct penstock_error *err)
{
	struct object_info found = {0};
	struct upload u = {.at = at,
		.fd = fd,
		.stream = true,
		.options = options ? options : &(struct object_put_options){0},
		.guard = (enum guard)atomic_load(&at.client->guard)};
	uint64_t length;
	unsigned held = memory_share_take(
		u.options->parallel ? u.options->parallel : STREAM_PARALLEL, STREAM_MEMORY_MAX);
	int r = upload_init(&u, held, err);

	if (r == 0)
		r = part_fill(&u, &u.slots[0], 1, &length, err);
	if (r == 0 && u.ended) {
		const struct put_body *body = &u.slots[0].body;

		/* The first part is the whole stream. */
		r = body->data ? object_put(at, body->data, length, u.options, &found, err)
			       : object_put_file(at, body->fd, length, u.options, &found, err);
	} else if (r == 0) {
		r = put_needs_one_request(at.client, u.options) ? stream_aside(&u, &found, err)
								: stream_run(&u, &found, err);
		found.size = u.size;
	}
	upload_release(&u);
	memory_share_give(held, STREAM_MEMORY_MAX);
	return object_info_pass(r, &found, info);
}
