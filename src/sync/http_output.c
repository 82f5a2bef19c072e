#include "sync/http_output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/pack.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "net/http/http.h"
#include "sync/record/names.h"

typedef int (*walk_fn)(void *cookie, int dir_fd, const char *name, const char *path,
	const struct stat *st, struct penstock_error *err);

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_dots(const struct dirent *d)
{
	return strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0;
}

/* Calls `fn` for every name below `fd`, parents first, sorted by name. Links are not followed. */
static int walk(int fd, const char *path, walk_fn fn, void *cookie, struct penstock_error *err)
{
	struct dirent **names = NULL;
	int n = scandirat(fd, ".", &names, not_dots, by_name), rc = 0;

	if (n < 0)
		return error_errno(
			err, errno, "cannot read the output directory '%s'", *path ? path : ".");
	for (int i = 0; i < n; i++) {
		_cleanup_free_ char *below = str_printf(
			"%s%s%s", path, *path ? "/" : "", names[i]->d_name);
		struct stat st;

		if (rc == 0 && !below)
			rc = error_memory(err);
		if (rc == 0 && fstatat(fd, names[i]->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			rc = error_errno(err, errno, "cannot read the output '%s'", below);
		if (rc == 0)
			rc = fn(cookie, fd, names[i]->d_name, below, &st, err);
		if (rc == 0 && S_ISDIR(st.st_mode)) {
			_cleanup_close_ int child = openat(fd, names[i]->d_name,
				O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

			rc = child < 0
				     ? error_errno(err, errno, "cannot read the output '%s'", below)
				     : walk(child, below, fn, cookie, err);
		}
		free(names[i]);
	}
	free(names);
	return rc;
}

struct count {
	unsigned files, others;
	char *path; /* path of the first file; owned */
};

static int count_one(void *cookie, int dir_fd, const char *name, const char *path,
	const struct stat *st, struct penstock_error *err)
{
	struct count *c = cookie;

	(void)dir_fd;
	(void)name;
	if (S_ISREG(st->st_mode) && c->files++ == 0) {
		c->path = strdup(path);
		return c->path ? 0 : error_memory(err);
	}
	c->others += S_ISLNK(st->st_mode);
	return 0;
}

static int pack_one(void *cookie, int dir_fd, const char *name, const char *path,
	const struct stat *st, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf member = BUF_INIT(LIMIT_SYNC_NAME);

	if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode) && !S_ISLNK(st->st_mode))
		return 0;
	/* Names in a zip must be UTF-8, so the name is encoded as in the key of an object. */
	names_key(&member, path);
	if (buf_failed(&member))
		return buf_error(&member, "the name of a file", err);
	return packer_add(cookie, &(struct packer_member){dir_fd, name, buf_str(&member), st}, err);
}

/* Packs the whole directory. Returns a descriptor of the zip, a file without a name. */
static int make_zip(
	int dir_fd, const char *tmp_dir, const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_(packer_freep) struct packer *packer = NULL;
	int rc = packer_new(&packer, tmp_dir, cancel, err);

	if (rc == 0)
		rc = walk(dir_fd, "", pack_one, packer, err);
	return rc < 0 ? rc : packer_finish(packer, err);
}

/* Keeps the beginning of the reply. The output is already stored when the reply arrives, so a long
 * reply is not an error. */
static enum http_take keep_head(
	void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	struct buf *reply = cookie;
	size_t room = reply->limit - reply->len;

	(void)err;
	buf_add(reply, data, len < room ? len : room);
	return HTTP_TAKEN;
}

static int restart_reply(void *cookie)
{
	buf_clear(cookie);
	return 0;
}

static int put_fd(struct http_engine *engine, const char *url, int fd, const atomic_int *cancel,
	struct buf *reply, struct penstock_error *err)
{
	struct http_request request = {
		.method = "PUT", .url = url, .cancel = cancel, .sink = {.kind = HTTP_SINK_DISCARD}};
	struct stat st;
	int rc = 0;

	if (fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot read the output");
	request.source = (struct http_source){
		.kind = HTTP_SOURCE_FD, .fd = fd, .length = (uint64_t)st.st_size};
	if (reply)
		request.sink = (struct http_sink){.kind = HTTP_SINK_CALLBACK,
			.write = keep_head,
			.restart = restart_reply,
			.cookie = reply};
	if (http_request_header(&request, "Content-Type", "application/octet-stream") < 0)
		rc = error_memory(err);
	if (rc == 0)
		rc = http_perform(engine, &request, NULL, err);
	strlist_release(&request.headers);
	return rc;
}

int sync_http_output(struct http_engine *engine, const char *url, const char *dir,
	const char *tmp_dir, const atomic_int *cancel, struct buf *reply,
	struct penstock_error *err)
{
	_cleanup_close_ int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_close_ int fd = -1;
	struct count count = {0};
	int rc;

	if (dir_fd < 0)
		return error_errno(err, errno, "cannot open the output directory '%s'", dir);
	rc = walk(dir_fd, "", count_one, &count, err);
	if (rc == 0 && count.files + count.others == 1 && count.path) {
		fd = openat(dir_fd, count.path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			rc = error_errno(err, errno, "cannot read the output '%s'", count.path);
	} else if (rc == 0 && count.files + count.others > 0) {
		fd = make_zip(dir_fd, tmp_dir, cancel, err);
		rc = fd < 0 ? fd : 0;
	}
	free(count.path);
	if (rc < 0 || fd < 0)
		return rc;
	return put_fd(engine, url, fd, cancel, reply, err);
}
