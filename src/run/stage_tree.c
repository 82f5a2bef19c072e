/* Inputs of many files: what lies below an S3 prefix, or in a directory of this machine. */
#include "run/stage_input.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/error.h>

#include "archive/unpack.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "transfer/tree.h"
#include "base/banned.h"

/* ---- S3 ---- */

struct download {
	struct stage_input *in;
	struct strlist names; /* of the objects, where they are to be unpacked */
	bool failed;	      /* no memory for a name */
};

static int know_size(void *cookie, uint64_t objects, uint64_t bytes, struct penstock_error *err)
{
	struct download *d = cookie;

	(void)objects;
	atomic_store(&d->in->total, bytes);
	return stage_input_reserve(d->in, bytes, err);
}

static void downloaded_some(void *cookie, int64_t bytes)
{
	struct download *d = cookie;

	stage_input_moved(d->in, bytes);
}

static void note_object(void *cookie, const char *path, const struct object_info *info)
{
	struct download *d = cookie;

	(void)info;
	if (!d->in->input->unpack.value || d->failed)
		return;
	d->failed = d->names.n >= LIMIT_STAGE_UNPACK || strlist_add(&d->names, path) < 0;
}

/* Each of the files that is an archive, beside itself. */
static int unpack_each(
	const struct stage_input *in, const struct strlist *names, struct penstock_error *err)
{
	for (size_t i = 0; i < names->n; i++) {
		_cleanup_free_ char *path = path_join(in->dir, names->items[i]);
		_cleanup_free_ char *dir = path ? strdup(path) : NULL;
		const struct unpack_options options = {
			.max_bytes = INT64_MAX, .budget = in->space, .cancel = in->cancel};
		int r;

		if (!dir)
			return error_memory(err);
		*strrchr(dir, '/') = '\0';
		r = unpack_file(path, dir, &options, NULL, err);
		if (r < 0)
			return r;
	}
	return 0;
}

int stage_download_prefix(
	struct stage_input *in, struct stage_mark *mark, struct penstock_error *err)
{
	static const char *const exclude[] = {".penstock/", NULL};
	struct download d = {.in = in};
	const struct tree_download_options options = {.exclude = exclude,
		.on_size = know_size,
		.progress = downloaded_some,
		.on_object = note_object,
		.cookie = &d,
		.cancel = in->cancel};
	struct tree_download_stats stats = {0};
	struct run_store *store;
	int r = stores_open(
		in->options->stores, in->options->workflow, &in->input->s3, &store, err);

	if (r == 0)
		r = transfer_download_tree(store->client, store->bucket, store->prefix, in->dir,
			&options, &stats, err);
	if (r == 0 && stats.objects == 0 && stats.directories == 0)
		r = error_set(err, PENSTOCK_E_NOT_FOUND, "there is no object below this path");
	if (r == 0 && d.failed)
		r = error_set(err, PENSTOCK_E_LIMIT,
			"more than %d objects are to be unpacked; leave out unpack, or put them "
			"into fewer archives",
			LIMIT_STAGE_UNPACK);
	if (r == 0)
		r = unpack_each(in, &d.names, err);
	strlist_release(&d.names);
	mark->bytes = stats.bytes;
	mark->files = stats.objects;
	return r;
}

/* ---- a directory ---- */

struct copy {
	struct stage_input *in;
	struct stage_mark *mark;
	struct strlist names; /* of the files, where they are to be unpacked */
	char path[4096];      /* of the entry at work, below the source */
};

static int check_cancel(const struct stage_input *in, struct penstock_error *err)
{
	if (in->cancel && atomic_load(in->cancel))
		return error_set(err, PENSTOCK_E_CANCELLED, "staging was cancelled");
	return 0;
}

/* The kernel copies, by sharing extents where the file system can; -1: errno. */
static ssize_t copy_some(int from, int to)
{
	static const size_t step = 8 * MIB;
	char chunk[64 * 1024];
	ssize_t n = copy_file_range(from, NULL, to, NULL, step, 0);

	if (n >= 0 || (errno != EXDEV && errno != EINVAL && errno != EOPNOTSUPP && errno != ENOSYS))
		return n;
	n = read(from, chunk, sizeof(chunk));
	if (n > 0 && fs_write_all(to, chunk, (size_t)n) < 0)
		return -1;
	return n;
}

static int copy_contents(struct copy *c, int from, int to, struct penstock_error *err)
{
	for (;;) {
		ssize_t n = copy_some(from, to);
		int r;

		if (n == 0)
			return 0;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "cannot copy %s", c->path);
		c->mark->bytes += (uint64_t)n;
		stage_input_moved(c->in, n);
		r = check_cancel(c->in, err);
		if (r < 0)
			return r;
	}
}

static int copy_file(struct copy *c, int from_dir, int to_dir, const char *name,
	const struct stat *st, struct penstock_error *err)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, st->st_mtim};
	_cleanup_close_ int from = openat(from_dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_close_ int to = -1;
	int r;

	if (from < 0)
		return error_errno(err, errno, "cannot open %s", c->path);
	r = stage_input_reserve(c->in, (uint64_t)st->st_size, err);
	if (r < 0)
		return r;
	if (unlinkat(to_dir, name, 0) < 0 && errno != ENOENT)
		return error_errno(err, errno, "cannot replace %s", c->path);
	to = openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		(st->st_mode & 0777) | 0600);
	if (to < 0)
		return error_errno(err, errno, "cannot create %s", c->path);
	r = copy_contents(c, from, to, err);
	if (r == 0 && futimens(to, times) < 0)
		r = error_errno(err, errno, "cannot set the time of %s", c->path);
	if (r == 0 && c->in->input->unpack.given && c->in->input->unpack.value) {
		if (c->names.n >= LIMIT_STAGE_UNPACK)
			return error_set(err, PENSTOCK_E_LIMIT,
				"more than %d files are to be unpacked; leave out unpack",
				LIMIT_STAGE_UNPACK);
		if (strlist_add(&c->names, c->path) < 0)
			return error_memory(err);
	}
	return r;
}

static int copy_link(
	struct copy *c, int from_dir, int to_dir, const char *name, struct penstock_error *err)
{
	char target[4096];
	ssize_t n = readlinkat(from_dir, name, target, sizeof(target) - 1);

	if (n < 0)
		return error_errno(err, errno, "cannot read the link %s", c->path);
	target[n] = '\0';
	if (unlinkat(to_dir, name, 0) < 0 && errno != ENOENT)
		return error_errno(err, errno, "cannot replace %s", c->path);
	if (symlinkat(target, to_dir, name) < 0)
		return error_errno(err, errno, "cannot create the link %s", c->path);
	return 0;
}

static int copy_dir(struct copy *c, int from, int to, size_t depth, struct penstock_error *err);

static int copy_entry(struct copy *c, int from, int to, const char *name, size_t depth,
	struct penstock_error *err)
{
	_cleanup_close_ int sub_from = -1;
	_cleanup_close_ int sub_to = -1;
	struct stat st;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return error_errno(err, errno, "cannot look at %s", c->path);
	c->mark->files++;
	if (S_ISREG(st.st_mode))
		return copy_file(c, from, to, name, &st, err);
	if (S_ISLNK(st.st_mode))
		return copy_link(c, from, to, name, err);
	if (!S_ISDIR(st.st_mode))
		return error_set(err, PENSTOCK_E_INVALID,
			"%s is a device, FIFO or socket; only files, directories and links are "
			"staged",
			c->path);
	if (mkdirat(to, name, (st.st_mode & 0777) | 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "cannot create %s", c->path);
	sub_from = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	sub_to = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (sub_from < 0 || sub_to < 0)
		return error_errno(err, errno, "cannot open %s", c->path);
	return copy_dir(c, sub_from, sub_to, depth + 1, err);
}

static int copy_dir(struct copy *c, int from, int to, size_t depth, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *list = NULL;
	size_t len = strlen(c->path);
	int own = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct dirent *e;
	int r = 0;

	list = own >= 0 ? fdopendir(own) : NULL;
	if (!list) {
		r = error_errno(err, errno, "cannot list %s", c->path);
		if (own >= 0)
			close(own);
		return r;
	}
	if (depth > LIMIT_ARCHIVE_DEPTH)
		return error_set(err, PENSTOCK_E_LIMIT, "%s is deeper than %d directories", c->path,
			LIMIT_ARCHIVE_DEPTH);
	while (r == 0 && (e = readdir(list))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (len + strlen(e->d_name) + 2 > sizeof(c->path))
			return error_set(err, PENSTOCK_E_LIMIT, "a path below %s is too long",
				c->in->source);
		c->path[len] = '/';
		memcpy(c->path + len + (len ? 1 : 0), e->d_name, strlen(e->d_name) + 1);
		r = check_cancel(c->in, err);
		if (r == 0)
			r = copy_entry(c, from, to, e->d_name, depth, err);
		c->path[len] = '\0';
	}
	return r;
}

int stage_copy_tree(struct stage_input *in, struct stage_mark *mark, struct penstock_error *err)
{
	_cleanup_close_ int from = open(in->local, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int to = open(in->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct copy c = {.in = in, .mark = mark};
	int r;

	if (from < 0 || to < 0)
		return error_errno(err, errno, "cannot open %s", from < 0 ? in->local : in->dir);
	r = copy_dir(&c, from, to, 0, err);
	if (r == 0)
		r = unpack_each(in, &c.names, err);
	strlist_release(&c.names);
	return r;
}
