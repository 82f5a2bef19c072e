#include "run/stage/copy_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"

#define COPY_STEP (8 * MIB)

struct copy {
	const struct copy_tree *options;
	char path[4096]; /* path of the current entry */
};

static int check_cancel(const struct copy *c, struct penstock_error *err)
{
	if (c->options->cancel && atomic_load(c->options->cancel))
		return error_set(err, PENSTOCK_E_CANCELLED, "%s was cancelled", c->options->what);
	return 0;
}

static int copy_contents(struct copy *c, int from, int to, struct penstock_error *err)
{
	for (off_t at = 0;;) {
		ssize_t n = fs_copy_range(from, to, at, COPY_STEP);
		int r = 0;

		if (n == 0)
			return 0;
		if (n < 0)
			return error_errno(err, errno, "cannot copy '%s'", c->path);
		at += n;
		if (c->options->moved)
			r = c->options->moved(c->options->cookie, (size_t)n, err);
		if (r == 0)
			r = check_cancel(c, err);
		if (r < 0)
			return r;
	}
}

/* Returns true if there are no files below the directory, except in `__pycache__` directories. */
static bool has_no_file(int dir, const char *name, size_t depth)
{
	_cleanup_closedir_ DIR *list = depth < LIMIT_ARCHIVE_DEPTH ? fs_list_at(dir, name) : NULL;
	const struct dirent *e;

	while (list && (e = fs_next_entry(list))) {
		if (strcmp(e->d_name, "__pycache__") != 0 &&
			!has_no_file(dirfd(list), e->d_name, depth + 1))
			return false;
	}
	return list && !errno;
}

static int remove_existing(
	const struct copy *c, int dir, const char *name, struct penstock_error *err)
{
	if (!c->options->replace || unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR)
		return error_errno(err, errno, "cannot replace '%s'", c->path);
	if (!has_no_file(dir, name, 0))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot replace the directory '%s' with a file: it has other files; move "
			"them to another directory",
			c->path);
	return fs_remove_tree_at(dir, name, c->path, err);
}

static int copy_file(struct copy *c, int from_dir, int to_dir, const char *name,
	const struct stat *st, struct penstock_error *err)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, st->st_mtim};
	_cleanup_close_ int from = openat(
		from_dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	_cleanup_close_ int to = -1;
	int r = 0;

	if (from < 0)
		return error_errno(err, errno, "cannot open '%s'", c->path);
	if (c->options->file)
		r = c->options->file(c->options->cookie, c->path, st, err);
	if (r == 0)
		r = remove_existing(c, to_dir, name, err);
	if (r < 0)
		return r;
	to = openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		(st->st_mode & 0777) | 0600);
	if (to < 0)
		return error_errno(err, errno, "cannot create '%s'", c->path);
	r = copy_contents(c, from, to, err);
	if (r == 0 && futimens(to, times) < 0)
		r = error_errno(err, errno, "cannot set the time of '%s'", c->path);
	return r;
}

static int copy_link(
	const struct copy *c, int from, int to, const char *name, struct penstock_error *err)
{
	char target[4096];
	ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);
	int r;

	if (n < 0)
		return error_errno(err, errno, "cannot read the link '%s'", c->path);
	target[n] = '\0';
	r = remove_existing(c, to, name, err);
	if (r == 0 && symlinkat(target, to, name) < 0)
		r = error_errno(err, errno, "cannot create the link '%s'", c->path);
	return r;
}

static int copy_dir(struct copy *c, int from, int to, size_t depth, struct penstock_error *err);

static int copy_entry(struct copy *c, int from, int to, const char *name, size_t depth,
	struct penstock_error *err)
{
	const struct copy_tree *options = c->options;
	_cleanup_close_ int sub_from = -1;
	_cleanup_close_ int sub_to = -1;
	struct stat st;
	int r = 0;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return error_errno(err, errno, "cannot get the status of '%s'", c->path);
	if (options->leave_out && options->leave_out(options->cookie, c->path, &st))
		return 0;
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
		return options->special ? options->special(options->cookie, c->path, err) : 0;
	if (options->seen && !S_ISDIR(st.st_mode))
		r = options->seen(options->cookie, from, name, c->path, &st, err);
	if (r < 0 || (to < 0 && !S_ISDIR(st.st_mode)))
		return r;
	if (S_ISREG(st.st_mode))
		return copy_file(c, from, to, name, &st, err);
	if (S_ISLNK(st.st_mode))
		return copy_link(c, from, to, name, err);
	if (to >= 0 && mkdirat(to, name, (st.st_mode & 0777) | 0700) < 0 &&
		(!options->replace || errno != EEXIST))
		return error_errno(err, errno, "cannot create '%s'", c->path);
	sub_from = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (to >= 0)
		sub_to = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (sub_from < 0 || (to >= 0 && sub_to < 0))
		return error_errno(err, errno, "cannot open '%s'", c->path);
	return copy_dir(c, sub_from, sub_to, depth + 1, err);
}

static int copy_entries(
	struct copy *c, DIR *list, int from, int to, size_t depth, struct penstock_error *err)
{
	size_t len = strlen(c->path);
	const struct dirent *e;
	int r = 0;

	while (r == 0 && (e = fs_next_entry(list))) {
		if (len + strlen(e->d_name) + 2 > sizeof(c->path))
			return error_set(err, PENSTOCK_E_LIMIT,
				"cannot copy '%s': a path below it is too long",
				len ? c->path : ".");
		if (len)
			c->path[len] = '/';
		memcpy(c->path + len + (len ? 1 : 0), e->d_name, strlen(e->d_name) + 1);
		r = check_cancel(c, err);
		if (r == 0)
			r = copy_entry(c, from, to, e->d_name, depth, err);
		c->path[len] = '\0';
	}
	if (r == 0 && errno)
		r = error_errno(err, errno, "cannot list directory '%s'", len ? c->path : ".");
	return r;
}

static int copy_dir(struct copy *c, int from, int to, size_t depth, struct penstock_error *err)
{
	const struct copy_tree *options = c->options;
	_cleanup_closedir_ DIR *list = fs_list_at(from, ".");
	int r = 0;

	if (!list)
		return error_errno(
			err, errno, "cannot list directory '%s'", *c->path ? c->path : ".");
	if (depth > LIMIT_ARCHIVE_DEPTH)
		return error_set(err, PENSTOCK_E_LIMIT,
			"cannot copy '%s': it is deeper than %d directories",
			*c->path ? c->path : ".", LIMIT_ARCHIVE_DEPTH);
	if (options->enter)
		r = options->enter(options->cookie, from, c->path, err);
	if (r == 0)
		r = copy_entries(c, list, from, to, depth, err);
	if (options->leave)
		options->leave(options->cookie);
	return r;
}

int copy_tree(const struct copy_tree *options, int from, int to, struct penstock_error *err)
{
	struct copy c = {.options = options};

	return copy_dir(&c, from, to, 0, err);
}
