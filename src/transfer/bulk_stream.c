/* An object of one store through this machine into another: nothing of it touches the disk. */
#include "transfer/bulk_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "transfer/memory_share.h"
#include "transfer/put_internal.h"
#include "base/banned.h"

/* Both sides hold so many pieces at most, and one where there is no memory for more. */
#define STREAM_PARALLEL 2
#define STREAM_PIECES	((size_t)LIMIT_STREAM_RANGE + LIMIT_S3_PART_DEFAULT)

struct stream {
	struct bulk_task *task;
	struct object_put_options options;
	int in, out;	   /* of the pipe */
	uint64_t came;	   /* bytes that went into it */
	atomic_bool whole; /* all bytes came, and are verified */
	int result;	   /* of the upload */
	struct penstock_error error;
	struct object_info info;
};

static bool is_whole(void *cookie)
{
	struct stream *s = cookie;

	return atomic_load(&s->whole);
}

static void *upload_main(void *arg)
{
	struct stream *s = arg;
	const struct bulk_item *item = &s->task->item;

	s->result = object_put_stream(item->to_client, item->to_bucket, item->to_key, s->out,
		&s->options, &s->info, &s->error);
	/* Whoever still writes learns that nobody reads. */
	close(s->out);
	return NULL;
}

static int to_pipe(void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct stream *s = cookie;

	if (fs_write_all(s->in, data, len) < 0)
		return error_errno(err, errno, "the other store takes no more");
	s->came += len;
	return 0;
}

/* Source and destination at the same time, a pipe between them. */
static int through_pipe(
	struct stream *s, const struct object_info *source, struct penstock_error *err)
{
	const struct bulk_item *item = &s->task->item;
	const struct bulk_options *o = &s->task->bulk->options;
	const struct object_get_options get = {.known = source,
		.parallel = s->options.parallel,
		.progress = o->progress,
		.cookie = o->cookie,
		.cancel = &s->task->bulk->stop};
	struct penstock_error own = PENSTOCK_ERROR_INIT;
	pthread_t thread;
	int fds[2], r;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return error_errno(err, errno, "cannot make a pipe");
	s->out = fds[0];
	s->in = fds[1];
	r = pthread_create(&thread, NULL, upload_main, s);
	if (r) {
		close(s->in);
		close(s->out);
		return error_errno(err, r, "cannot start a thread");
	}
	r = object_get_stream(
		item->from_client, item->from_bucket, item->from_key, &get, to_pipe, s, NULL, &own);
	/* What is not becomes no object. */
	if (r == 0 && s->came != source->size)
		r = error_set(&own, PENSTOCK_E_CHANGED,
			"s3://%s/%s: %" PRIu64 " bytes came of %" PRIu64, item->from_bucket,
			item->from_key, s->came, source->size);
	atomic_store(&s->whole, r == 0);
	close(s->in);
	pthread_join(thread, NULL);
	/* Of the two the cause: an upload that ended first, else what stopped the source. */
	if (s->result < 0 && (r == 0 || s->error.code != PENSTOCK_E_CHANGED)) {
		penstock_error_release(&own);
		return error_move(err, &s->error);
	}
	penstock_error_release(&s->error);
	return r < 0 ? error_move(err, &own) : 0;
}

static int through_memory(
	struct stream *s, const struct object_info *source, struct penstock_error *err)
{
	const struct bulk_item *item = &s->task->item;
	_cleanup_(buf_release) struct buf data = BUF_INIT(LIMIT_S3_PART_DEFAULT);
	_cleanup_(object_info_release) struct object_info came = {0};
	const struct object_get_options get = {
		.if_match = source->etag, .cancel = &s->task->bulk->stop};
	int r = object_get(
		item->from_client, item->from_bucket, item->from_key, &get, &data, &came, err);

	if (r == -(int)PENSTOCK_E_PRECONDITION ||
		(r == 0 && (data.len != source->size || strcmp(came.etag, source->etag) != 0)))
		r = error_set(err, PENSTOCK_E_CHANGED,
			"s3://%s/%s: the object was replaced meanwhile", item->from_bucket,
			item->from_key);
	return r < 0 ? r
		     : object_put(item->to_client, item->to_bucket, item->to_key, buf_str(&data),
			       data.len, &s->options, &s->info, err);
}

static int source_headers(void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	return s3_op_check_etag(cookie, reply, err);
}

/*
 * Two addresses may lead to one store. What is moved would then be written over itself and removed: where the target
 * has what looks like the very object, down to its time, nothing is done. `source` is from a HEAD, too.
 */
static int check_itself(
	const struct bulk_task *task, const struct object_info *source, struct penstock_error *err)
{
	const struct bulk_item *item = &task->item;
	_cleanup_(object_info_release) struct object_info there = {0};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r;

	if (!item->remove_source || strcmp(item->from_key, item->to_key) != 0)
		return 0;
	r = object_head(item->to_client, item->to_bucket, item->to_key, &there, &own);
	if (r == -(int)PENSTOCK_E_NOT_FOUND)
		return 0;
	if (r < 0)
		return error_move(err, &own);
	if (there.size != source->size || there.modified_ns != source->modified_ns ||
		strcmp(there.etag, source->etag) != 0)
		return 0;
	return error_set(err, PENSTOCK_E_INVALID,
		"s3://%s/%s: the target looks like this very object by another address, and moving "
		"it there would lose it; if it is a copy in another store, remove the source with "
		"'penstock rm'",
		item->from_bucket, item->from_key);
}

int bulk_stream(struct bulk_task *task, struct penstock_error *err)
{
	const struct bulk_item *item = &task->item;
	_cleanup_(s3_op_release) struct s3_op head = {0};
	_cleanup_(object_info_release) struct object_info source = {0};
	_cleanup_(strlist_release) struct strlist properties = {0};
	struct stream s = {.task = task};
	size_t least, bytes;
	bool small;
	int r = s3_op_init(
		&head, item->from_client, "HEAD", item->from_bucket, item->from_key, err);

	if (r < 0)
		return r;
	head.request.on_headers = source_headers;
	s3_op_cancel(&head, &task->bulk->stop);
	r = s3_op_perform(&head, err);
	if (r == 0)
		r = object_info_from_reply(&head.reply, &source, err);
	if (r < 0)
		return r;
	if (item->known && item->known->etag[0] && strcmp(item->known->etag, source.etag) != 0)
		return error_set(err, PENSTOCK_E_CHANGED,
			"s3://%s/%s: the object was replaced meanwhile", item->from_bucket,
			item->from_key);
	r = check_itself(task, &source, err);
	if (r < 0)
		return r;
	bulk_put_options(task,
		task->bulk->put.metadata ? task->bulk->put.metadata : &source.metadata, &s.options);
	if (!s.options.content_type)
		s.options.content_type = http_reply_header(&head.reply, "Content-Type");
	r = put_properties(item->from_client, &head.reply, &properties, err);
	if (r < 0)
		return r;
	s.options.properties = &properties;
	s.options.still_valid = is_whole;
	s.options.cookie = &s;
	small = source.size <= LIMIT_S3_PART_DEFAULT;
	least = small ? (size_t)source.size + 1 : STREAM_PIECES;
	bytes = memory_turn_take(
		least, small ? least : STREAM_PARALLEL * STREAM_PIECES, &task->bulk->stop);
	if (!bytes)
		return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
	s.options.parallel = small ? 0 : (unsigned)(bytes / STREAM_PIECES);
	atomic_store(&s.whole, small);
	r = small ? through_memory(&s, &source, err) : through_pipe(&s, &source, err);
	memory_turn_give(bytes);
	if (r == 0)
		task->info = s.info;
	else
		object_info_release(&s.info);
	return r;
}
