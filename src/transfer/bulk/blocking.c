/* Transfers one large or unusual item with the blocking calls of objects.h. */
#include "transfer/bulk/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "transfer/client/internal.h"
#include "transfer/http_fetch.h"

/* Ranges in flight of one HTTP input; several inputs may be in flight. For objects the engine
 * adapts the number. */
#define FETCH_PARALLEL 4

/* ---- upload ---- */

void bulk_source_progress(void *cookie, int64_t bytes)
{
	const struct upload_source *source = cookie;
	const struct bulk_options *o = &source->task->bulk->options;

	if (o->progress)
		o->progress(o->cookie, bytes);
}

static void source_kept(void *cookie, uint64_t bytes)
{
	const struct upload_source *source = cookie;
	const struct bulk_options *o = &source->task->bulk->options;

	if (o->kept)
		o->kept(o->cookie, bytes);
}

static void source_resumed(void *cookie, uint64_t bytes)
{
	struct upload_source *source = cookie;
	const struct bulk_options *o = &source->task->bulk->options;

	source->resumed += bytes;
	if (o->resumed)
		o->resumed(o->cookie, bytes);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

bool bulk_source_valid(void *cookie)
{
	const struct upload_source *source = cookie;
	struct stat now;

	return fstat(source->fd, &now) == 0 && same_file(&source->st, &now);
}

int bulk_source_open(struct upload_source *source, struct penstock_error *err)
{
	const char *path = source->task->item.path;
	/* O_NONBLOCK, because opening a pipe in place of a file would block. */
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return error_errno(err, errno, "cannot open '%s'", path);
	if (fstat(fd, &source->st) < 0)
		return error_errno(err, errno, "cannot read '%s'", path);
	if (!S_ISREG(source->st.st_mode))
		return error_set(err, PENSTOCK_E_INVALID, "'%s' is not a regular file", path);
	source->fd = take_fd(fd);
	return 0;
}

/* Uploads a link as an object that holds the target of the link. */
static int upload_link(struct bulk_task *task, const struct stat *st, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist metadata = {0};
	struct object_put_options options;
	char target[PATH_MAX];
	ssize_t n = readlink(task->item.path, target, sizeof(target));
	int r;

	if (n < 0 || (size_t)n >= sizeof(target))
		return error_errno(err, n < 0 ? errno : ENAMETOOLONG, "cannot read link '%s'",
			task->item.path);
	r = bulk_file_metadata(task, st, &metadata, err);
	if (r < 0)
		return r;
	bulk_put_options(task, &metadata, &options);
	task->bytes = (uint64_t)n;
	return object_put(task->item.to, target, (size_t)n, &options, &task->info, err);
}

/* Uploads a file to a web server with PUT. */
static int upload_url(struct upload_source *source, struct penstock_error *err)
{
	struct bulk_task *task = source->task;
	struct object_put_options options;
	struct http_request request = {.method = "PUT",
		.url = task->item.to_url,
		.source = {.kind = HTTP_SOURCE_FD,
			.fd = source->fd,
			.length = (uint64_t)source->st.st_size},
		.cancel = &task->bulk->stop};
	int r;

	bulk_put_options(task, NULL, &options);
	r = http_request_header(&request, "Content-Type",
		options.content_type ? options.content_type : "application/octet-stream");
	if (r == 0 && options.if_none_match)
		r = http_request_header(&request, "If-None-Match", "*");
	r = r < 0 ? error_memory(err) : http_perform(task->bulk->engine, &request, NULL, err);
	strlist_release(&request.headers);
	if (r == 0 && !bulk_source_valid(source))
		r = error_set(
			err, PENSTOCK_E_CHANGED, "'%s' changed while it was sent", task->item.path);
	return r;
}

static int upload_object(struct upload_source *source, struct penstock_error *err)
{
	struct bulk_task *task = source->task;
	_cleanup_(strlist_release) struct strlist metadata = {0};
	const uint64_t size = (uint64_t)source->st.st_size;
	struct object_put_options options;
	atomic_ullong sent = 0;
	int r = bulk_file_metadata(task, &source->st, &metadata, err);

	if (r < 0)
		return r;
	bulk_put_options(task, &metadata, &options);
	options.sent = &sent;
	options.progress = bulk_source_progress;
	options.still_valid = bulk_source_valid;
	options.kept = source_kept;
	options.resumed = source_resumed;
	options.cookie = source;
	r = object_put_file(task->item.to, source->fd, size, &options, &task->info, err);
	/* The store already had the remaining bytes: parts that a delta copied. */
	if (r == 0 && options.delta_dir && size > sent + source->resumed)
		source_resumed(source, size - sent - source->resumed);
	return r;
}

static int upload(struct bulk_task *task, struct penstock_error *err)
{
	const struct bulk_options *o = &task->bulk->options;
	struct upload_source source = {.task = task, .fd = -1};
	int r;

	if (o->preserve && o->symlinks && lstat(task->item.path, &source.st) == 0 &&
		S_ISLNK(source.st.st_mode) && !task->item.to_url) {
		r = upload_link(task, &source.st, err);
	} else {
		r = bulk_source_open(&source, err);
		if (r < 0)
			return r;
		task->bytes = (uint64_t)source.st.st_size;
		r = task->item.to_url ? upload_url(&source, err) : upload_object(&source, err);
		close(source.fd);
	}
	task->has_info = r == 0 && !task->item.to_url;
	return r < 0 ? error_prefix(err, "%s", task->item.path) : bulk_source_done(&source, err);
}

int bulk_source_done(const struct upload_source *source, struct penstock_error *err)
{
	const char *path = source->task->item.path;
	const struct stat *sent = &source->st;
	struct stat now;

	if (!source->task->item.remove_source)
		return 0;
	if ((S_ISLNK(sent->st_mode) ? lstat(path, &now) : stat(path, &now)) < 0 ||
		now.st_dev != sent->st_dev || now.st_ino != sent->st_ino || !same_file(&now, sent))
		return error_set(err, PENSTOCK_E_CHANGED,
			"copied '%s' but did not remove it: it was changed or replaced "
			"meanwhile; move it again",
			path);
	if (unlink(path) < 0)
		return error_errno(err, errno, "cannot remove '%s' after the copy", path);
	return 0;
}

/* ---- download ---- */

static bool is_new_only(const struct bulk_task *task)
{
	return task->item.if_none_match || task->bulk->put.if_none_match;
}

static int download_url(struct bulk_task *task, const char *path, struct penstock_error *err)
{
	_cleanup_(http_fetch_result_release) struct http_fetch_result result = {0};
	_cleanup_free_ char *dir = strdup(path);
	_cleanup_free_ char *base = strdup(path);
	int r;

	if (!dir || !base)
		return error_memory(err);
	r = http_fetch(task->bulk->engine, task->item.from_url,
		&(struct http_fetch_options){.directory = dirname(dir),
			.name = basename(base),
			.parallel = FETCH_PARALLEL,
			.no_sync = true,
			.if_none_match = is_new_only(task),
			.cancel = &task->bulk->stop},
		&result, err);
	if (r == 0)
		task->bytes = result.size;
	return r;
}

static int download_object(struct bulk_task *task, const char *path, struct penstock_error *err)
{
	const struct bulk_options *o = &task->bulk->options;
	const struct object_get_options options = {.known = task->item.known,
		.parallel = o->parallel,
		.relaxed = true,
		.if_none_match = is_new_only(task),
		.resume = o->resume,
		.kept = o->kept,
		.resumed = o->resumed,
		.progress = o->progress,
		.cookie = o->cookie,
		.cancel = &task->bulk->stop};
	int r = object_get_file(task->item.from, path, &options, &task->info, err);

	if (r == 0) {
		task->has_info = true;
		task->bytes = task->info.size;
	}
	return r;
}

/* Returns 1 if the object is a link, which was created; 0 if it must be downloaded as a file. */
static int download_link(
	struct bulk_task *task, const struct bulk_dir *dir, struct penstock_error *err)
{
	const struct bulk_item *item = &task->item;
	_cleanup_(object_info_release) struct object_info info = {0};
	_cleanup_(buf_release) struct buf target = BUF_INIT(PATH_MAX);
	int r;

	if (item->from_url || !task->bulk->options.preserve || !task->bulk->options.symlinks ||
		(item->known && item->known->size >= PATH_MAX))
		return 0;
	r = object_head(item->from, &info, err);
	/* If the object was replaced, the download as a file reports that. */
	if (r < 0 || !bulk_file_is_link(task, &info) ||
		(item->known && strcmp(item->known->etag, info.etag) != 0))
		return r;
	r = object_get(item->from,
		&(struct object_get_options){.if_match = info.etag, .cancel = &task->bulk->stop},
		&target, &task->info, err);
	if (r == -(int)PENSTOCK_E_PRECONDITION)
		return object_replaced(item->from, err);
	if (r == 0)
		r = bulk_file_make_link(
			task, dir, buf_str(&target), target.len, is_new_only(task), err);
	if (r == 0)
		r = bulk_note_dir(task->bulk, dir, err);
	task->has_info = r == 0;
	task->bytes = target.len;
	return r < 0 ? r : 1;
}

static int download_into(struct bulk_task *task, const struct bulk_dir *dir, const char *path,
	struct penstock_error *err)
{
	_cleanup_close_ int fd = -1;
	int r = download_link(task, dir, err);

	if (r)
		return r < 0 ? r : 0;
	r = task->item.from_url ? download_url(task, path, err) : download_object(task, path, err);
	if (r < 0)
		return r;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return error_errno(err, errno, "cannot open '%s'", task->item.path);
	r = bulk_file_times(task, fd, &task->info, err);
	if (r == 0)
		r = bulk_note_device(task->bulk, fd, err);
	if (r == 0 && task->bulk->put.delta_dir && !task->item.from_url)
		object_remember(task->item.from, task->info.etag, fd, task->info.size,
			task->bulk->put.delta_dir, &task->bulk->stop);
	return r;
}

static int download(struct bulk_task *task, struct penstock_error *err)
{
	_cleanup_free_ char *path = NULL;
	struct bulk_dir *dir = NULL;
	int r = bulk_dir_open(task, &dir, err);

	if (r == 0)
		r = bulk_dir_path(task, dir, &path, err);
	if (r == 0 && download_into(task, dir, path, err) < 0)
		r = bulk_dir_named(dir, err);
	bulk_dir_close(task->bulk, dir);
	return r;
}

/* ---- copy ---- */

/* Looks up the ETag of the source of a move unless the ETag is known, so that only this object is
 * copied and deleted. */
static int know_source(struct bulk_task *task, struct penstock_error *err)
{
	struct bulk_item *item = &task->item;
	_cleanup_(object_info_release) struct object_info info = {0};
	int r;

	if (!item->remove_source || task->known.etag[0])
		return 0;
	r = object_head(item->from, &info, err);
	if (r < 0)
		return r;
	task->known.size = info.size;
	task->known.modified_ns = info.modified_ns;
	memcpy(task->known.etag, info.etag, sizeof(info.etag));
	item->known = &task->known;
	return 0;
}

/* Called after a condition of a copy failed. Reports a replaced source, because the error would
 * otherwise look as if the target existed. */
static int condition_error(
	const struct bulk_item *item, const char *if_match, struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info now = {0};
	int r = object_head(item->from, &now, NULL);

	if (r == -(int)PENSTOCK_E_NOT_FOUND || (r == 0 && strcmp(now.etag, if_match) != 0))
		return object_replaced(item->from, err);
	return -(int)PENSTOCK_E_PRECONDITION;
}

static int copy(struct bulk_task *task, struct penstock_error *err)
{
	const struct bulk_item *item = &task->item;
	int known = know_source(task, err);
	const struct object_copy_options options = {.put = &task->bulk->put,
		.cancel = &task->bulk->stop,
		.if_match = item->known && item->known->etag[0] ? item->known->etag : NULL,
		.if_none_match = task->bulk->put.if_none_match || item->if_none_match};
	int r;

	if (known < 0)
		return known;
	if (item->from.client != item->to.client)
		r = bulk_stream(task, err);
	else
		r = object_copy(item->from,
			object_at(item->from.client, item->to.bucket, item->to.key), &options,
			&task->info, err);
	if (r == -(int)PENSTOCK_E_PRECONDITION && options.if_match &&
		item->from.client == item->to.client)
		r = condition_error(item, options.if_match, err);
	if (r == 0) {
		task->has_info = true;
		task->bytes = task->info.size;
	}
	return r;
}

int bulk_run(struct bulk_task *task, struct penstock_error *err)
{
	switch (task->item.kind) {
	case BULK_UPLOAD:
		return upload(task, err);
	case BULK_DOWNLOAD:
		return download(task, err);
	case BULK_COPY:
		return copy(task, err);
	case BULK_DELETE:
		break;
	}
	return 0;
}
