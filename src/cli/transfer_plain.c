/*
 * The ways that need no tree: standard input and output, and between a web server and something that is no
 * file. What has no length, or no name, on the way is held in an unlinked directory of TMPDIR.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "cli/content_type.h"
#include "cli/transfer.h"
#include "net/http.h"
#include "transfer/http_fetch.h"
#include "base/banned.h"

static bool is_pipe_or_web(const struct place *place)
{
	return place->at.kind == LOCATION_STDIO || place->at.kind == LOCATION_HTTP;
}

bool transfer_is_plain(const struct place *source, const struct place *target)
{
	if (source->at.kind == LOCATION_STDIO || target->at.kind == LOCATION_STDIO)
		return true;
	/* Between files and web servers a bulk knows the way. */
	return (is_pipe_or_web(source) && target->at.kind != LOCATION_LOCAL) ||
	       (target->at.kind == LOCATION_HTTP && source->at.kind != LOCATION_LOCAL);
}

/* ---- a place to hold something ---- */

struct hold {
	char *directory;
	char *path; /* of the one file in it */
};

static void hold_release(struct hold *hold)
{
	if (hold->directory)
		fs_remove_tree(hold->directory, NULL);
	free(hold->directory);
	free(hold->path);
}

static int hold_make(struct hold *hold, struct penstock_error *err)
{
	const char *dir = getenv("TMPDIR");
	char *made = NULL;

	if (asprintf(&made, "%s/penstock-XXXXXX", dir && *dir ? dir : "/var/tmp") < 0)
		return error_memory(err);
	if (!mkdtemp(made)) {
		int r = error_errno(err, errno,
			"cannot hold data in %s; TMPDIR names another place",
			dir && *dir ? dir : "/var/tmp");

		free(made);
		return r;
	}
	hold->directory = made;
	hold->path = path_join(made, "held");
	return hold->path ? 0 : error_memory(err);
}

static int hold_stdin(const struct transfer *t, const struct hold *hold, struct penstock_error *err)
{
	_cleanup_close_ int fd = open(hold->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	char data[64 * 1024];
	ssize_t n;

	if (fd < 0)
		return error_errno(err, errno, "cannot make %s", hold->path);
	while ((n = read(STDIN_FILENO, data, sizeof(data))) != 0) {
		if (remote_interrupted())
			return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return error_errno(err, errno, "cannot read standard input");
		if (n > 0 && fs_write_all(fd, data, (size_t)n) < 0)
			return error_errno(err, errno,
				"cannot hold standard input in %s; TMPDIR names another place",
				hold->directory);
		if (n > 0)
			report_moved((struct report *)&t->report, n);
	}
	return 0;
}

/* ---- steps ---- */

/* A step of a bulk that nobody is told of. */
static int step(struct transfer *t, const struct bulk_item *item, struct penstock_error *err)
{
	struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r;

	t->aside = &own;
	r = transfer_push(t, item, 0, err);
	if (r == 0)
		r = transfer_finish(t, err);
	t->aside = NULL;
	if (r == 0 && own.code)
		return error_move(err, &own);
	penstock_error_release(&own);
	return r;
}

static int fetch_to_stdout(
	struct transfer *t, const struct place *source, uint64_t *size, struct penstock_error *err)
{
	_cleanup_(hold_release) struct hold hold = {0};
	_cleanup_(http_fetch_result_release) struct http_fetch_result result = {0};
	int r = hold_make(&hold, err);

	if (r == 0)
		r = http_fetch(t->remote.engine, source->at.key,
			&(struct http_fetch_options){.directory = hold.directory,
				.name = "held",
				.parallel = t->parallel,
				.no_sync = true,
				.consume = remote_to_stdout,
				.cancel = t->remote.cancel},
			&result, err);
	*size = result.size;
	return r;
}

static int get_to_stdout(struct transfer *t, const struct place *source, struct object_info *info,
	struct penstock_error *err)
{
	int r = object_get_stream(t->from, source->at.bucket, source->at.key,
		&(struct object_get_options){.parallel = t->parallel, .cancel = t->remote.cancel},
		remote_to_stdout, NULL, info, err);

	return r < 0 ? remote_missing(t->source.client ? &t->source : &t->remote, &source->at, err)
		     : 0;
}

static int put_stdin(struct transfer *t, const struct place *target, const struct aim *aim,
	struct object_info *info, struct penstock_error *err)
{
	struct object_put_options put = t->put;
	int r;

	put.if_none_match |= t->no_clobber;
	put.cancel = t->remote.cancel;
	put.parallel = t->parallel;
	if (!put.content_type)
		put.content_type = content_type_of(aim->key);
	r = object_put_stream(t->to, target->at.bucket, aim->key, STDIN_FILENO, &put, info, err);
	if (r == -(int)PENSTOCK_E_PRECONDITION && put.if_none_match)
		return error_set(err, PENSTOCK_E_PRECONDITION, "s3://%s/%s is there already",
			target->at.bucket, aim->key);
	return r;
}

/* From anywhere into a file, and from there to where no stream can go. */
static int through_file(struct transfer *t, const struct place *source, const struct place *target,
	const struct aim *aim, struct penstock_error *err)
{
	_cleanup_(hold_release) struct hold hold = {0};
	struct bulk_item down = {.kind = BULK_DOWNLOAD}, up = {.kind = BULK_UPLOAD};
	int r = hold_make(&hold, err);

	if (r < 0)
		return r;
	down.path = hold.path;
	if (source->at.kind == LOCATION_HTTP) {
		down.from_url = source->at.key;
	} else {
		down.from_client = t->from;
		down.from_bucket = source->at.bucket;
		down.from_key = source->at.key;
	}
	r = source->at.kind == LOCATION_STDIO ? hold_stdin(t, &hold, err) : step(t, &down, err);
	if (r < 0)
		return r;
	aim_item(t, aim, target, &up);
	up.path = hold.path;
	up.if_none_match = t->no_clobber;
	return step(t, &up, err);
}

static int go(struct transfer *t, const struct place *source, const struct place *target,
	const struct aim *aim, struct object_info *info, struct penstock_error *err)
{
	bool from_object = source->at.kind == LOCATION_OBJECT;

	if (target->at.kind == LOCATION_STDIO)
		return from_object ? get_to_stdout(t, source, info, err)
				   : fetch_to_stdout(t, source, &info->size, err);
	if (source->at.kind == LOCATION_STDIO && target->at.kind == LOCATION_OBJECT)
		return put_stdin(t, target, aim, info, err);
	return through_file(t, source, target, aim, err);
}

int transfer_plain(struct transfer *t, const struct place *source, const struct place *target,
	const char *name, struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info info = {0};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	_cleanup_(aim_release) struct aim aim = {0};
	_cleanup_(buf_release) struct buf from = BUF_INIT(LIMIT_STRING),
					  to = BUF_INIT(LIMIT_STRING);
	struct report_item item = {.action = "copy"};
	int r = aim_at(&aim, target, name, &own);

	http_url_display(source->at.text, &from);
	http_url_display(aim.url ? aim.url : target->at.text, &to);
	item.from = buf_str(&from);
	item.to = buf_str(&to);
	report_found(&t->report, 0);
	if (r == 0 && !t->dry_run)
		r = go(t, source, target, &aim, &info, &own);
	if (r == -(int)PENSTOCK_E_CANCELLED)
		return error_move(err, &own);
	item.size = info.size;
	item.etag = info.etag;
	if (r == 0)
		report_done(&t->report, &item);
	else if (r == -(int)PENSTOCK_E_PRECONDITION && t->no_clobber)
		report_skipped(&t->report, &item);
	else {
		t->failed++;
		report_failed(&t->report, &item, &own);
	}
	return 0;
}
