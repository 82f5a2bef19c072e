#include "sync/http_output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <archive.h>
#include <archive_entry.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "net/http/http.h"

#define ZIP_BLOCK (256 * KIB)

struct zip {
	struct archive *archive;
	char *block;
	const atomic_int *cancel;
	const char *zip_path; /* for messages */
};

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

/* Every name below `fd`, parents first, in order. Links are not followed. */
static int walk(int fd, const char *path, walk_fn fn, void *cookie, struct penstock_error *err)
{
	struct dirent **names = NULL;
	int n = scandirat(fd, ".", &names, not_dots, by_name), rc = 0;

	if (n < 0)
		return error_errno(err, errno, "cannot read the output directory %s", path);
	for (int i = 0; i < n; i++) {
		_cleanup_free_ char *below = str_printf(
			"%s%s%s", path, *path ? "/" : "", names[i]->d_name);
		struct stat st;

		if (rc == 0 && !below)
			rc = error_memory(err);
		if (rc == 0 && fstatat(fd, names[i]->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			rc = error_errno(err, errno, "cannot read the output %s", below);
		if (rc == 0)
			rc = fn(cookie, fd, names[i]->d_name, below, &st, err);
		if (rc == 0 && S_ISDIR(st.st_mode)) {
			_cleanup_close_ int child = openat(fd, names[i]->d_name,
				O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

			rc = child < 0 ? error_errno(err, errno, "cannot read the output %s", below)
				       : walk(child, below, fn, cookie, err);
		}
		free(names[i]);
	}
	free(names);
	return rc;
}

struct count {
	unsigned files, others;
	char *path; /* of the first file; owned */
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

static int zip_failed(const struct zip *z, struct penstock_error *err)
{
	return error_errno(err, archive_errno(z->archive) > 0 ? archive_errno(z->archive) : EIO,
		"cannot write %s (%s)", z->zip_path, archive_error_string(z->archive));
}

static int zip_data(
	struct zip *z, int fd, uint64_t size, const char *path, struct penstock_error *err)
{
	uint64_t at = 0;

	while (at < size) {
		size_t want = size - at < ZIP_BLOCK ? (size_t)(size - at) : ZIP_BLOCK;
		ssize_t n = fs_pread_all(fd, z->block, want, (off_t)at);

		if (z->cancel && atomic_load(z->cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "the upload was interrupted");
		if (n < 0)
			return error_errno(err, errno, "cannot read the output %s", path);
		if ((size_t)n < want)
			return error_set(err, PENSTOCK_E_CHANGED,
				"the output %s became shorter while it was packed", path);
		if (archive_write_data(z->archive, z->block, want) != (la_ssize_t)want)
			return zip_failed(z, err);
		at += want;
	}
	return 0;
}

static int zip_one(void *cookie, int dir_fd, const char *name, const char *path,
	const struct stat *st, struct penstock_error *err)
{
	_cleanup_free_ char *member = str_printf("%s%s", path, S_ISDIR(st->st_mode) ? "/" : "");
	_cleanup_close_ int fd = -1;
	struct zip *z = cookie;
	struct archive_entry *entry;
	char target[PATH_MAX];
	int rc = 0;

	if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode) && !S_ISLNK(st->st_mode))
		return 0;
	if (S_ISREG(st->st_mode)) {
		fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			return error_errno(err, errno, "cannot read the output %s", path);
	}
	entry = member ? archive_entry_new() : NULL;
	if (!entry)
		return error_memory(err);
	archive_entry_copy_stat(entry, st);
	archive_entry_copy_pathname(entry, member);
	archive_entry_set_uid(entry, 0);
	archive_entry_set_gid(entry, 0);
	if (S_ISLNK(st->st_mode)) {
		ssize_t n = readlinkat(dir_fd, name, target, sizeof(target) - 1);

		target[n > 0 ? n : 0] = '\0';
		archive_entry_copy_symlink(entry, target);
	}
	if (archive_write_header(z->archive, entry) < ARCHIVE_WARN)
		rc = zip_failed(z, err);
	archive_entry_free(entry);
	return rc < 0 || fd < 0 ? rc : zip_data(z, fd, (uint64_t)st->st_size, path, err);
}

/* Packs the whole directory. Returns a descriptor of the zip, which has no name any more. */
static int make_zip(
	int dir_fd, const char *tmp_dir, const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_free_ char *path = NULL, *block = malloc(ZIP_BLOCK);
	_cleanup_close_ int fd = -1;
	struct zip z = {.archive = archive_write_new(), .block = block, .cancel = cancel};
	int rc = fs_mkdirs(tmp_dir, 0700, err);

	if (rc == 0 &&
		(!block || !z.archive || !(path = str_printf("%s/output.zip-XXXXXX", tmp_dir))))
		rc = error_memory(err);
	if (rc == 0) {
		z.zip_path = path;
		fd = mkostemp(path, O_CLOEXEC);
		if (fd < 0)
			rc = error_errno(err, errno, "cannot write %s", path);
		else
			unlink(path);
	}
	if (rc == 0 && (archive_write_set_format_zip(z.archive) < ARCHIVE_WARN ||
			       archive_write_set_options(z.archive, "zip:hdrcharset=UTF-8") <
				       ARCHIVE_FATAL ||
			       archive_write_open_fd(z.archive, fd) < ARCHIVE_WARN))
		rc = zip_failed(&z, err);
	if (rc == 0)
		rc = walk(dir_fd, "", zip_one, &z, err);
	if (rc == 0 && archive_write_close(z.archive) < ARCHIVE_WARN)
		rc = zip_failed(&z, err);
	archive_write_free(z.archive);
	return rc < 0 ? rc : take_fd(fd);
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
		request.sink = (struct http_sink)HTTP_SINK_TO_BUF(reply);
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
		return error_errno(err, errno, "cannot open the output directory %s", dir);
	rc = walk(dir_fd, "", count_one, &count, err);
	if (rc == 0 && count.files + count.others == 1 && count.path) {
		fd = openat(dir_fd, count.path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			rc = error_errno(err, errno, "cannot read the output %s", count.path);
	} else if (rc == 0 && count.files + count.others > 0) {
		fd = make_zip(dir_fd, tmp_dir, cancel, err);
		rc = fd < 0 ? fd : 0;
	}
	free(count.path);
	if (rc < 0 || fd < 0)
		return rc;
	return put_fd(engine, url, fd, cancel, reply, err);
}
