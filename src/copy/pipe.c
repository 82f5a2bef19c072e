/* Standard input and output, and copies between a web server and a store. Data from or for a web
 * server is held in a temporary directory below TMPDIR, else /var/tmp. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "copy/content_type.h"
#include "copy/internal.h"
#include "net/http/http.h"
#include "transfer/http_fetch.h"

enum { POLL_MS = 250 };

bool copy_is_pipe(const struct place *source, const struct place *target)
{
	if (source->kind == LOCATION_STDIO || target->kind == LOCATION_STDIO)
		return true;
	/* A bulk can copy between a web server and a file, but not between a web server and a
	 * store. */
	return (source->kind == LOCATION_HTTP && target->kind != LOCATION_LOCAL) ||
	       (target->kind == LOCATION_HTTP && source->kind != LOCATION_LOCAL);
}

/* ---- a temporary file ---- */

struct hold {
	char *directory;
	char *path; /* the only file in `directory` */
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
	const char *dir = str_env("TMPDIR") ? str_env("TMPDIR") : "/var/tmp";
	_cleanup_free_ char *made = str_printf("%s/penstock-XXXXXX", dir);

	if (!made)
		return error_memory(err);
	if (!mkdtemp(made))
		return error_errno(err, errno,
			"cannot create a temporary directory in '%s'; set TMPDIR to another directory",
			dir);
	hold->directory = take_pointer(made);
	hold->path = path_join(hold->directory, "held");
	return hold->path ? 0 : error_memory(err);
}

static int hold_stdin(struct copy *c, const struct hold *hold, struct penstock_error *err)
{
	_cleanup_close_ int fd = open(hold->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
	char data[64 * 1024];
	ssize_t n;

	if (fd < 0)
		return error_errno(err, errno, "cannot create '%s'", hold->path);
	while ((n = read(STDIN_FILENO, data, sizeof(data))) != 0) {
		if (copy_is_cancelled(c))
			return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
		if (n < 0 && errno == EAGAIN)
			poll(&p, 1, POLL_MS);
		else if (n < 0 && errno != EINTR)
			return error_errno(err, errno, "cannot read standard input");
		if (n > 0 && fs_write_all(fd, data, (size_t)n) < 0)
			return error_errno(err, errno,
				"cannot write standard input to '%s'; set TMPDIR to another directory",
				hold->directory);
		if (n > 0 && c->o.report.moved)
			c->o.report.moved(c->o.report.cookie, n);
	}
	return 0;
}

/* ---- standard output ---- */

/* Checks the cancel flag between two writes: the reader may be slow or stopped, and a signal must
 * end the wait. */
int copy_to_stdout(void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
	const atomic_int *const *cancel = cookie;
	const char *from = data;

	while (len) {
		ssize_t n = write(STDOUT_FILENO, from, len);

		if (n < 0 && errno == EAGAIN)
			poll(&p, 1, POLL_MS);
		else if (n < 0 && errno != EINTR)
			return error_errno(err, errno, "cannot write to standard output");
		if (n > 0) {
			from += n;
			len -= (size_t)n;
		}
		if (len && cancel && *cancel && atomic_load(*cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
	}
	return 0;
}

static int fetch_to_stdout(
	struct copy *c, const struct place *source, uint64_t *size, struct penstock_error *err)
{
	_cleanup_(hold_release) struct hold hold = {0};
	_cleanup_(http_fetch_result_release) struct http_fetch_result result = {0};
	int r = hold_make(&hold, err);

	if (r == 0)
		r = http_fetch(c->o.engine, source->url,
			&(struct http_fetch_options){.directory = hold.directory,
				.name = "held",
				.parallel = c->o.parallel,
				.no_sync = true,
				.consume = copy_to_stdout,
				.cookie = &c->o.cancel,
				.cancel = c->o.cancel},
			&result, err);
	*size = result.size;
	return r;
}

static int get_to_stdout(struct copy *c, const struct place *source, struct object_info *info,
	struct penstock_error *err)
{
	int r = object_get_stream(place_object(source, c->o.from),
		&(struct object_get_options){.parallel = c->o.parallel, .cancel = c->o.cancel},
		copy_to_stdout, &c->o.cancel, info, err);

	return r < 0 ? copy_explain_missing(place_object(source, c->o.from), source->text, err) : 0;
}

/* ---- standard input; copies through a file ---- */

static int put_stdin(struct copy *c, const struct place *place, const struct target *target,
	struct object_info *info, struct penstock_error *err)
{
	struct object_put_options put = c->o.put;
	int r;

	put.if_none_match |= c->o.no_clobber;
	put.cancel = c->o.cancel;
	put.parallel = c->o.parallel;
	if (!put.content_type)
		put.content_type = content_type_of(target->key);
	r = object_put_stream(
		object_at(c->o.to, place->bucket, target->key), STDIN_FILENO, &put, info, err);
	if (r == -(int)PENSTOCK_E_PRECONDITION && put.if_none_match)
		return error_set(err, PENSTOCK_E_PRECONDITION, "%s://%s/%s exists already",
			object_client_scheme(c->o.to), place->bucket, target->key);
	return r;
}

/* Submits an item that is not reported, and waits for it. */
static int run_step(struct copy *c, const struct bulk_item *item, struct object_info *info,
	struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r;

	c->unreported_info = info;
	c->unreported = &own;
	r = copy_push(c, item, 0, err);
	if (r == 0)
		r = copy_finish(c, err);
	c->unreported = NULL;
	c->unreported_info = NULL;
	return r == 0 && own.code ? error_move(err, &own) : r;
}

/* Copies into a temporary file, and from the file to a target that needs the length. */
static int through_file(struct copy *c, const struct place *source, const struct place *place,
	const struct target *target, struct object_info *info, struct penstock_error *err)
{
	_cleanup_(hold_release) struct hold hold = {0};
	struct bulk_item down = {.kind = BULK_DOWNLOAD}, up = {.kind = BULK_UPLOAD};
	int r = hold_make(&hold, err);

	if (r < 0)
		return r;
	down.path = hold.path;
	if (source->kind == LOCATION_HTTP)
		down.from_url = source->url;
	else if (place_is_object(source))
		down.from = place_object(source, c->o.from);
	r = source->kind == LOCATION_STDIO ? hold_stdin(c, &hold, err)
					   : run_step(c, &down, info, err);
	if (r < 0)
		return r;
	copy_item_target(c, target, place, &up);
	up.path = hold.path;
	up.if_none_match = c->o.no_clobber;
	return run_step(c, &up, info, err);
}

static int transmit(struct copy *c, const struct place *source, const struct place *place,
	const struct target *target, struct object_info *info, struct penstock_error *err)
{
	if (place->kind == LOCATION_STDIO)
		return place_is_object(source) ? get_to_stdout(c, source, info, err)
					       : fetch_to_stdout(c, source, &info->size, err);
	if (source->kind == LOCATION_STDIO && place_is_object(place))
		return put_stdin(c, place, target, info, err);
	return through_file(c, source, place, target, info, err);
}

int copy_pipe(struct copy *c, const struct place *source, const struct place *target,
	const char *name, struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info info = {0};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	_cleanup_(target_release) struct target resolved = {0};
	_cleanup_(buf_release) struct buf from = BUF_INIT(LIMIT_STRING),
					  to = BUF_INIT(LIMIT_STRING);
	struct copy_item item = {.action = "copy"};
	int r = target_resolve(&resolved, target, name, &own);

	http_url_display(source->text, &from);
	if (resolved.key && place_is_object(target))
		buf_printf(&to, "%s://%s/%s", object_client_scheme(c->o.to), target->bucket,
			resolved.key);
	else
		http_url_display(resolved.url ? resolved.url : target->text, &to);
	item.from = buf_str(&from);
	item.to = buf_str(&to);
	c->found++;
	if (c->o.report.found)
		c->o.report.found(c->o.report.cookie, 0);
	if (r == 0 && !c->o.dry_run)
		r = transmit(c, source, target, &resolved, &info, &own);
	if (r == -(int)PENSTOCK_E_CANCELLED)
		return error_move(err, &own);
	item.size = info.size;
	item.etag = info.etag;
	if (r == 0)
		copy_report(c, c->o.report.done, &item);
	else if (r == -(int)PENSTOCK_E_PRECONDITION && c->o.no_clobber)
		copy_report(c, c->o.report.skipped, &item);
	else
		copy_report_failed(c, &item, &own);
	return 0;
}
