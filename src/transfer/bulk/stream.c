/* Copies an object of one store through this machine into another, without touching the disk. */
#include "transfer/bulk/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/thread.h"
#include "transfer/state/memory_share.h"
#include "transfer/put/internal.h"

/* Limit of pieces in memory on each side (download and upload); 1 if memory is short. */
#define STREAM_PARALLEL 2
#define STREAM_PIECES	((size_t)LIMIT_STREAM_RANGE + LIMIT_S3_PART_DEFAULT)

struct stream {
	struct bulk_task *task;
	struct object_put_options options;
	int in, out; /* the write end and the read end of the pipe */
	uint64_t came; /* bytes written to the pipe */
	atomic_bool whole; /* all bytes were received and verified */
	int result; /* result of the upload */
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

	s->result = object_put_stream(item->to, s->out, &s->options, &s->info, &s->error);
	/* If the download still writes, its next write fails with EPIPE. */
	close(s->out);
	return NULL;
}

static int to_pipe(void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct stream *s = cookie;

	if (fs_write_all(s->in, data, len) < 0)
		return error_errno(err, errno, "cannot pass bytes to the upload");
	s->came += len;
	return 0;
}

/* Runs download and upload at the same time, with a pipe between them. */
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
		return error_errno(err, errno, "cannot create a pipe");
	s->out = fds[0];
	s->in = fds[1];
	r = thread_start(&thread, "upload", upload_main, s, err);
	if (r < 0) {
		close(s->in);
		close(s->out);
		return r;
	}
	r = object_get_stream(item->from, &get, to_pipe, s, NULL, &own);
	/* The upload is abandoned if the download is incomplete. */
	if (r == 0 && s->came != source->size)
		r = object_error(&own, PENSTOCK_E_CHANGED, "GET", item->from,
			"%" PRIu64 " bytes received of %" PRIu64, s->came, source->size);
	atomic_store(&s->whole, r == 0);
	close(s->in);
	pthread_join(thread, NULL);
	/* Report the cause: an upload that failed first, else the failed download. */
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
	int r = object_get(item->from, &get, &data, &came, err);

	if (r == -(int)PENSTOCK_E_PRECONDITION ||
		(r == 0 && (data.len != source->size || strcmp(came.etag, source->etag) != 0)))
		r = object_replaced(item->from, err);
	return r < 0 ? r
		     : object_put(item->to, buf_str(&data), data.len, &s->options, &s->info, err);
}

/* Refuses a move if the target has the size, ETag and time of the source. Two addresses may lead to
 * one store, and a move would then overwrite the object with itself and delete it. `source` must
 * come from a HEAD, as the target does. */
static int check_itself(
	const struct bulk_task *task, const struct object_info *source, struct penstock_error *err)
{
	const struct bulk_item *item = &task->item;
	_cleanup_(object_info_release) struct object_info there = {0};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r;

	if (!item->remove_source || strcmp(item->from.key, item->to.key) != 0)
		return 0;
	r = object_head(item->to, &there, &own);
	if (r == -(int)PENSTOCK_E_NOT_FOUND)
		return 0;
	if (r < 0)
		return error_move(err, &own);
	if (there.size != source->size || there.modified_ns != source->modified_ns ||
		strcmp(there.etag, source->etag) != 0)
		return 0;
	return object_error(err, PENSTOCK_E_INVALID, "COPY", item->from,
		"the target seems to be the same object under another address, and a move would "
		"lose it; if it is a copy in another store, remove the source with 'penstock rm'");
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
	int r = s3_op_head(&head, item->from, NULL, false, &task->bulk->stop, &source, err);

	if (r < 0)
		return r;
	if (item->known && item->known->etag[0] && strcmp(item->known->etag, source.etag) != 0)
		return object_replaced(item->from, err);
	r = check_itself(task, &source, err);
	if (r < 0)
		return r;
	bulk_put_options(task,
		task->bulk->put.metadata ? task->bulk->put.metadata : &source.metadata, &s.options);
	if (!s.options.content_type)
		s.options.content_type = http_reply_header(&head.reply, "Content-Type");
	r = put_properties(item->from.client, &head.reply, &properties, err);
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
	return object_info_pass(r, &s.info, &task->info);
}
