#include "archive/commit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/error.h>

#include "archive/tree.h"
#include "archive/member.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/banned.h"

static int open_below(int dir, const char *name)
{
	return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Opens a separate stream over the directory `fd`, from its start. */
static DIR *list(int fd)
{
	int own = open_below(fd, ".");
	DIR *dir;

	if (own < 0)
		return NULL;
	dir = fdopendir(own);
	if (!dir)
		close(own);
	return dir;
}

static bool is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static int check_entry(int from, int to, const char *name, struct penstock_error *err)
{
	_cleanup_close_ int sub_from = -1;
	_cleanup_close_ int sub_to = -1;
	struct stat new, old;

	if (fstatat(to, name, &old, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : error_errno(err, errno, "cannot stat '%s'", name);
	if (fstatat(from, name, &new, AT_SYMLINK_NOFOLLOW) < 0)
		return error_errno(err, errno, "cannot stat '%s'", name);
	if (S_ISDIR(new.st_mode) != S_ISDIR(old.st_mode))
		return member_error(err, PENSTOCK_E_EXISTS, name,
			S_ISDIR(new.st_mode)
				? "cannot replace the existing file or link by a directory"
				: "cannot replace the existing directory");
	if (!S_ISDIR(new.st_mode))
		return 0;
	sub_from = open_below(from, name);
	sub_to = open_below(to, name);
	if (sub_from < 0 || sub_to < 0)
		return member_error(err, error_code_of_errno(errno), name, "cannot open it: %s",
			strerror(errno));
	return commit_check(sub_from, sub_to, NULL, err);
}

int commit_check(int from, int to, const char *keep, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *dir = list(from);

	if (!dir)
		return error_errno(err, errno, "cannot list the unpacked members");
	for (;;) {
		const struct dirent *e;
		int r;

		errno = 0;
		e = readdir(dir);
		if (!e)
			break;
		if (is_dots(e->d_name))
			continue;
		if (keep && strcmp(e->d_name, keep) == 0)
			return member_error(err, PENSTOCK_E_EXISTS, e->d_name,
				"it has the name of the archive itself and would replace it");
		r = check_entry(from, to, e->d_name, err);
		if (r < 0)
			return r;
	}
	return errno ? error_errno(err, errno, "cannot list the unpacked members") : 0;
}

static int merge_dir(int from, int to, const char *name, struct penstock_error *err)
{
	_cleanup_close_ int sub_from = open_below(from, name);
	_cleanup_close_ int sub_to = open_below(to, name);
	struct timespec times[2];
	struct stat st;
	int r;

	if (sub_from < 0 || sub_to < 0 || fstat(sub_from, &st) < 0)
		return member_error(err, error_code_of_errno(errno), name, "cannot open it: %s",
			strerror(errno));
	r = commit_move(sub_from, sub_to, err);
	if (r < 0)
		return r;
	times[0] = (struct timespec){.tv_nsec = UTIME_OMIT};
	times[1] = st.st_mtim;
	futimens(sub_to, times);
	if (unlinkat(from, name, AT_REMOVEDIR) < 0)
		return error_errno(err, errno, "cannot remove emptied directory '%s'", name);
	return 0;
}

/* One pass; counts the entries in `moved`. */
static int move_pass(int from, int to, size_t *moved, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *dir = list(from);
	const struct dirent *e;

	*moved = 0;
	if (!dir)
		return error_errno(err, errno, "cannot list the unpacked members");
	while ((e = readdir(dir))) {
		if (is_dots(e->d_name))
			continue;
		++*moved;
		if (renameat(from, e->d_name, to, e->d_name) == 0)
			continue;
		if (errno != ENOTEMPTY && errno != EEXIST)
			return member_error(err, error_code_of_errno(errno), e->d_name,
				"cannot move it into place: %s", strerror(errno));
		int r = merge_dir(from, to, e->d_name, err);
		if (r < 0)
			return r;
	}
	return 0;
}

int commit_move(int from, int to, struct penstock_error *err)
{
	size_t moved;

	/* A listing may skip entries while others are removed: repeat until the directory is
	 * empty. */
	do {
		int r = move_pass(from, to, &moved, err);

		if (r < 0)
			return r;
	} while (moved > 0);
	return 0;
}
