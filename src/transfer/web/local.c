/* Inputs that are local files, and file names from URLs. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/uri.h"
#include "transfer/web/internal.h"

#define COPY_STEP   (8 * MIB)
#define NAME_LENGTH 200 /* bytes; leaves room for the suffixes of part files */

char *fetch_local_path(const char *url)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_STRING);
	const char *rest;

	if (!strstr(url, "://"))
		return strdup(url);
	if (!str_starts(url, "file://"))
		return NULL;
	rest = url + strlen("file://");
	if (str_starts(rest, "localhost/"))
		rest += strlen("localhost");
	if (uri_decode(&path, rest, strlen(rest), URI_PLUS_LITERAL) < 0)
		return strdup(rest);
	return buf_take(&path);
}

static int copy_by_hand(struct fetch *f, int from, uint64_t size, struct penstock_error *err)
{
	uint64_t at = 0;

	while (at < size) {
		ssize_t n;

		if (f->options->cancel && atomic_load(f->options->cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
		n = fs_copy_range(from, f->fd, (off_t)at,
			size - at < COPY_STEP ? (size_t)(size - at) : COPY_STEP);
		if (n < 0)
			return error_errno(err, errno, "cannot copy to '%s'", f->part_path);
		if (n == 0)
			return error_set(err, PENSTOCK_E_CHANGED,
				"the file became shorter while it was copied");
		at += (uint64_t)n;
		if (f->options->progress)
			f->options->progress(f->options->cookie, (int64_t)n);
	}
	return 0;
}

int fetch_local(struct fetch *f, const char *path, struct penstock_error *err)
{
	_cleanup_close_ int from = open(
		path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a FIFO does not block */
	struct stat st;
	int r;

	if (from < 0 || fstat(from, &st) < 0)
		return error_errno(err, errno, "cannot open '%s'", path);
	if (!S_ISREG(st.st_mode))
		return error_set(err, PENSTOCK_E_INVALID, "'%s' is not a regular file", path);
	f->size = (uint64_t)st.st_size;
	r = fetch_announce(f, f->size, err);
	if (r < 0)
		return r;
	if (ftruncate(f->fd, 0) < 0)
		return error_errno(err, errno, "cannot write '%s'", f->part_path);
	/* A reflink shares the blocks if the file system supports it. */
	if (ioctl(f->fd, FICLONE, from) == 0) {
		if (f->options->progress)
			f->options->progress(f->options->cookie, (int64_t)f->size);
		return 0;
	}
	return copy_by_hand(f, from, f->size, err);
}

int http_fetch_name(const char *url, struct buf *out)
{
	_cleanup_(buf_release) struct buf name = BUF_INIT(LIMIT_STRING);
	const char *path = strstr(url, "://");
	size_t len;
	const char *last;

	if (path) {
		path += 3;
		path += strcspn(path, "/?#");
	} else {
		path = url;
	}
	len = strcspn(path, path == url ? "" : "?#");
	while (len && path[len - 1] == '/')
		len--;
	last = memrchr(path, '/', len);
	last = last ? last + 1 : path;
	len -= (size_t)(last - path);
	if (path == url || uri_decode(&name, last, len, URI_PLUS_LITERAL) < 0) {
		buf_clear(&name);
		buf_add(&name, last, len);
	}
	for (size_t i = 0; i < name.len; i++) {
		unsigned char c = (unsigned char)name.data[i];

		if (c < 0x20 || c == 0x7f || c == '/')
			name.data[i] = '_';
	}
	if (name.len > NAME_LENGTH) /* keep the end, which has the archive's suffix */
		buf_consume(&name, name.len - NAME_LENGTH);
	if (name.len == 0 || strcmp(name.data, ".") == 0 || strcmp(name.data, "..") == 0)
		return buf_add_str(out, "download");
	return buf_add(out, name.data, name.len);
}
