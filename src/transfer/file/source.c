/* The bytes of a file: an object, a web resource, or a local file. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "transfer/client/internal.h"
#include "transfer/file/internal.h"

static int open_local(struct file_source *s, struct penstock_error *err)
{
	struct stat st;

	/* O_NONBLOCK, because opening a pipe would block. */
	s->fd = open(s->key, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (s->fd < 0 || fstat(s->fd, &st) < 0)
		return error_errno(err, errno, "cannot open '%s'", s->key);
	if (!S_ISREG(st.st_mode))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot open '%s': it is not a regular file", s->key);
	s->size = (uint64_t)st.st_size;
	snprintf(s->version, sizeof(s->version), "%" PRId64,
		(int64_t)st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec);
	return 0;
}

static char *display(const struct location *location, const char *url)
{
	_cleanup_(buf_release) struct buf shown = BUF_INIT(LIMIT_STRING);

	if (location->kind != LOCATION_HTTP)
		return strdup(url);
	http_url_display(url, &shown);
	return buf_take(&shown);
}

static int begin(struct file_source *s, const struct file_options *options,
	const struct location *location, struct penstock_error *err)
{
	if (location->kind == LOCATION_STDIO)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot open '%s': expected s3://BUCKET/KEY, gs://BUCKET/KEY, http(s)://… "
			"or a path",
			options->url);
	if (location->kind == LOCATION_OBJECT && !*location->key)
		return error_set(err, PENSTOCK_E_INVALID, "invalid URL '%s': the key is missing",
			options->url);
	s->key = strdup(location->key);
	s->shown = display(location, options->url);
	if (!s->key || !s->shown)
		return error_memory(err);
	if (location->kind == LOCATION_LOCAL)
		return open_local(s, err);
	s->kind = location->kind == LOCATION_OBJECT ? FILE_OBJECT : FILE_WEB;
	memcpy(s->bucket, location->bucket, sizeof(s->bucket));
	return s->kind == FILE_OBJECT
		       ? options->open(options->open_cookie, location->google, &s->client, err)
		       : 0;
}

int file_source_new(
	struct file_source **out, const struct file_options *options, struct penstock_error *err)
{
	_cleanup_(location_release) struct location location = {0};
	struct file_source *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return error_memory(err);
	atomic_init(&s->refs, 1);
	s->fd = -1;
	r = location_parse(&location, options->url, err);
	if (r == 0)
		r = begin(s, options, &location, err);
	if (r < 0) {
		file_source_unref(s);
		return r;
	}
	*out = s;
	return 0;
}

struct file_source *file_source_ref(struct file_source *s)
{
	atomic_fetch_add(&s->refs, 1);
	return s;
}

void file_source_unref(struct file_source *s)
{
	if (!s || atomic_fetch_sub(&s->refs, 1) > 1)
		return;
	if (s->fd >= 0)
		close(s->fd);
	free(s->key);
	free(s->shown);
	free(s);
}

int file_source_find(struct file_source *s, struct http_engine *engine, const atomic_int *cancel,
	struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	_cleanup_(object_info_release) struct object_info info = {0};
	struct web_info found;
	int r;

	if (s->kind == FILE_WEB) {
		r = web_find(engine, s->key, cancel, &found, err);
		if (r < 0)
			return r;
		s->size = found.size;
		memcpy(s->version, found.version, sizeof(s->version));
		return 0;
	}
	r = s3_op_head(
		&op, object_at(s->client, s->bucket, s->key), NULL, false, cancel, &info, err);
	if (r < 0)
		return r;
	s->size = info.size;
	memcpy(s->version, info.etag, sizeof(s->version));
	return 0;
}

struct object_read file_source_read(
	const struct file_source *s, uint64_t offset, size_t length, void *data)
{
	return (struct object_read){.key = s->key,
		.offset = offset,
		.length = length,
		.whole = length == s->size,
		.etag = s->version,
		.data = data};
}

int file_source_pread(const struct file_source *s, uint64_t offset, void *data, size_t size,
	struct penstock_error *err)
{
	ssize_t n = fs_pread_all(s->fd, data, size, (off_t)offset);

	if (n < 0)
		return error_errno(err, errno, "cannot read '%s'", s->key);
	return (size_t)n == size ? 0
				 : error_set(err, PENSTOCK_E_CHANGED,
					   "'%s' was truncated after it was opened", s->key);
}
