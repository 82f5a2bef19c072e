#include "archive/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/commit.h"
#include "archive/member.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "base/banned.h"

/* A member's name without empty and "." components; below the tree unless `len` is 0. */
struct place {
	char text[PATH_MAX];
	size_t len;
	size_t parent_len; /* of the part before the last '/'; 0: the tree itself */
	const char *base;
};

/* A directory whose time is set once its members are written; its name follows. */
struct tree_time {
	struct timespec mtime;
	size_t len;
};

static int member_errno(struct penstock_error *err, int errnum, const char *name, const char *what)
{
	/* strerror of glibc is safe to call from several threads since 2.32. */
	return member_error(
		err, error_code_of_errno(errnum), name, "%s: %s", what, strerror(errnum));
}

/* ---- names ---- */

static int place_member(struct place *place, const char *name, struct penstock_error *err)
{
	size_t depth = 0;

	place->len = place->parent_len = 0;
	if (name[0] == '/')
		return member_error(err, PENSTOCK_E_INVALID, name,
			"absolute name; only names below the input directory are unpacked");
	while (*name) {
		size_t n = strcspn(name, "/");

		if (n == 2 && name[0] == '.' && name[1] == '.')
			return member_error(err, PENSTOCK_E_INVALID, name,
				"its name has '..' and could leave the directory");
		if (n > NAME_MAX)
			return member_error(err, PENSTOCK_E_INVALID, name,
				"a component of its name is longer than %d bytes", NAME_MAX);
		if (n > 0 && !(n == 1 && name[0] == '.')) {
			if (place->len + n + 2 > sizeof(place->text) ||
				++depth > LIMIT_ARCHIVE_DEPTH)
				return member_error(err, PENSTOCK_E_LIMIT, name,
					"its name is longer than %d bytes or deeper than %d "
					"directories",
					PATH_MAX, LIMIT_ARCHIVE_DEPTH);
			place->parent_len = place->len;
			if (place->len)
				place->text[place->len++] = '/';
			memcpy(place->text + place->len, name, n);
			place->len += n;
		}
		name += n;
		while (*name == '/')
			name++;
	}
	place->text[place->len] = '\0';
	place->base = place->text + place->parent_len + (place->parent_len ? 1 : 0);
	return 0;
}

/* A link must resolve inside the tree: a relative target may start with "..", no higher than the
 * tree, but must not have ".." after a name, which could itself be a link. */
static int check_target(
	const struct place *place, const char *name, const char *target, struct penstock_error *err)
{
	size_t depth = 0;
	bool descended = false;

	for (size_t i = 0; i < place->len; i++)
		depth += place->text[i] == '/';
	if (target[0] == '\0' || target[0] == '/')
		return member_error(err, PENSTOCK_E_INVALID, name,
			"a symbolic link to an absolute path, outside of the directory");
	while (*target) {
		size_t n = strcspn(target, "/");

		if (n == 2 && target[0] == '.' && target[1] == '.') {
			if (descended || depth == 0)
				return member_error(err, PENSTOCK_E_INVALID, name,
					"a symbolic link that leaves the directory");
			depth--;
		} else if (n > 0 && !(n == 1 && target[0] == '.')) {
			descended = true;
		}
		target += n;
		while (*target == '/')
			target++;
	}
	return 0;
}

/* ---- directories ---- */

/* Opens one component; `cookie` says whether to create a missing one. */
static int open_one(void *cookie, int parent, const char *name, const char *path, size_t len)
{
	const bool *create = cookie;
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	(void)path;
	(void)len;
	if (fd >= 0 || errno != ENOENT || !*create)
		return fd;
	if (mkdirat(parent, name, 0777) < 0 && errno != EEXIST)
		return -1;
	return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* The descriptor of the directory path[0, len), kept open by the tree. With `create`, missing ones
 * are made. Returns -1 with errno, ELOOP or ENOTDIR if a component is a link or a file. */
static int open_dir(struct tree *t, const char *path, size_t len, bool create)
{
	return dir_cache_open(&t->dirs, t->stage_fd, path, len, open_one, &create);
}

/* Counts the member, and opens its parent directory. */
static int enter_member(struct tree *t, struct place *place, const char *name, int *parent,
	struct penstock_error *err)
{
	int r = place_member(place, name, err);

	if (r < 0)
		return r;
	if (++t->members > t->options.max_members)
		return error_set(err, PENSTOCK_E_LIMIT, "more than the limit of %llu members",
			(unsigned long long)t->options.max_members);
	*parent = open_dir(t, place->text, place->parent_len, true);
	if (*parent >= 0)
		return 0;
	if (errno == ELOOP || errno == ENOTDIR)
		return member_error(err, PENSTOCK_E_INVALID, name,
			"it is below a symbolic link or a file of the same archive");
	return member_errno(err, errno, name, "cannot create its directory");
}

/* Removes an earlier member of the same name. */
static int replace_earlier(
	int parent, const char *base, const char *name, struct penstock_error *err)
{
	struct stat st;

	if (fstatat(parent, base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return member_errno(err, errno, name, "cannot create it");
	if (S_ISDIR(st.st_mode))
		return member_error(err, PENSTOCK_E_INVALID, name,
			"the archive has a directory and another member of this name");
	if (unlinkat(parent, base, 0) < 0)
		return member_errno(err, errno, name, "cannot replace the earlier member");
	return 0;
}

/* ---- the tree ---- */

static int make_stage(struct tree *t, const char *dir, struct penstock_error *err)
{
	_cleanup_free_ char *template = path_join(dir, TREE_PREFIX "XXXXXX");
	struct stat st;

	if (!template)
		return error_memory(err);
	if (!mkdtemp(template))
		return error_errno(err, errno, "cannot write to '%s'", dir);
	t->stage = take_pointer(template);
	t->stage_fd = open(t->stage, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (t->stage_fd < 0)
		return error_errno(err, errno, "cannot open '%s'", t->stage);
	/* The umask cannot be read without setting it for all threads; a new directory shows it. */
	if (mkdirat(t->stage_fd, "umask", 0777) < 0 ||
		fstatat(t->stage_fd, "umask", &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		unlinkat(t->stage_fd, "umask", AT_REMOVEDIR) < 0)
		return error_errno(err, errno, "cannot write to '%s'", t->stage);
	t->umask = ~st.st_mode & 0777;
	return 0;
}

int tree_init(struct tree *t, const char *dir, const struct tree_options *options,
	struct penstock_error *err)
{
	int r;

	*t = (struct tree){.options = *options, .dir_fd = -1, .stage_fd = -1, .fd = -1};
	buf_init(&t->times, LIMIT_ARCHIVE_DIRS);
	t->dir = strdup(dir);
	if (!t->dir)
		return error_memory(err);
	t->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (t->dir_fd < 0) {
		r = error_errno(err, errno, "cannot open directory '%s'", dir);
	} else {
		r = make_stage(t, dir, err);
		if (r == 0)
			return 0;
	}
	tree_release(t);
	return r;
}

void tree_release(struct tree *t)
{
	if (!t->dir)
		return;
	if (t->fd >= 0)
		close(t->fd);
	dir_cache_release(&t->dirs);
	if (t->stage_fd >= 0)
		close(t->stage_fd);
	if (t->dir_fd >= 0)
		close(t->dir_fd);
	if (t->stage) {
		fs_remove_tree(t->stage, NULL);
		/* Removed bytes return to the shared budget. */
		if (t->options.budget)
			atomic_fetch_add(t->options.budget, (long long)t->bytes);
	}
	buf_release(&t->times);
	free(t->stage);
	free(t->dir);
	t->dir = t->stage = NULL;
}

int tree_restart(struct tree *t, struct penstock_error *err)
{
	_cleanup_free_ char *dir = strdup(t->dir);
	struct tree_options options = t->options;

	tree_release(t);
	return dir ? tree_init(t, dir, &options, err) : error_memory(err);
}

static void note_time(struct tree *t, const struct place *place, const struct timespec *mtime)
{
	struct tree_time note = {.mtime = *mtime, .len = place->len};

	/* Beyond the limit, directories keep the time of their creation. */
	if (t->times.len + sizeof(note) + place->len + 1 > t->times.limit)
		return;
	buf_add(&t->times, &note, sizeof(note));
	buf_add(&t->times, place->text, place->len + 1);
}

int tree_directory(struct tree *t, const char *name, mode_t mode, const struct timespec *mtime,
	struct penstock_error *err)
{
	struct place place;
	int parent = -1, fd, r;

	r = enter_member(t, &place, name, &parent, err);
	if (r < 0)
		return r;
	if (place.len == 0) /* "./" */
		return 0;
	mode = (mode & 0777) | 0700;
	if (mkdirat(parent, place.base, mode) < 0) {
		if (errno != EEXIST)
			return member_errno(err, errno, name, "cannot create the directory");
		fd = open_dir(t, place.text, place.len, false);
		if (fd >= 0) {
			if (fchmod(fd, mode & ~t->umask) < 0)
				return member_errno(err, errno, name, "cannot set its mode");
		} else {
			r = replace_earlier(parent, place.base, name, err);
			if (r < 0)
				return r;
			if (mkdirat(parent, place.base, mode) < 0)
				return member_errno(
					err, errno, name, "cannot create the directory");
		}
	}
	if (mtime)
		note_time(t, &place, mtime);
	return 0;
}

int tree_symlink(struct tree *t, const char *name, const char *target, const struct timespec *mtime,
	struct penstock_error *err)
{
	struct place place;
	int parent = -1, r;

	r = enter_member(t, &place, name, &parent, err);
	if (r < 0)
		return r;
	if (place.len == 0)
		return member_error(err, PENSTOCK_E_INVALID, name, "a link has no name");
	r = check_target(&place, name, target, err);
	if (r < 0)
		return r;
	if (symlinkat(target, parent, place.base) < 0) {
		if (errno != EEXIST)
			return member_errno(err, errno, name, "cannot create the symbolic link");
		r = replace_earlier(parent, place.base, name, err);
		if (r < 0)
			return r;
		if (symlinkat(target, parent, place.base) < 0)
			return member_errno(err, errno, name, "cannot create the symbolic link");
	}
	if (mtime) {
		const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, *mtime};

		utimensat(parent, place.base, times, AT_SYMLINK_NOFOLLOW);
	}
	return 0;
}

int tree_hardlink(struct tree *t, const char *name, const char *target, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
	_cleanup_close_ int from = -1;
	struct place place, to;
	struct stat st;
	int parent = -1, r;

	if (place_member(&to, target, &why) < 0 || to.len == 0)
		return member_error(err, PENSTOCK_E_INVALID, name,
			"a hard link to a name outside of the archive");
	r = enter_member(t, &place, name, &parent, err);
	if (r < 0)
		return r;
	if (place.len == 0)
		return member_error(err, PENSTOCK_E_INVALID, name, "a link has no name");
	if (strcmp(place.text, to.text) == 0)
		return 0;
	/* A separate descriptor: opening one directory may close the other's slot. */
	from = fcntl(open_dir(t, to.text, to.parent_len, false), F_DUPFD_CLOEXEC, 0);
	if (from < 0 || fstatat(from, to.base, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode))
		return member_error(err, PENSTOCK_E_INVALID, name,
			"a hard link to a file that is not in the archive before it");
	parent = open_dir(t, place.text, place.parent_len, true);
	if (parent < 0)
		return member_errno(err, errno, name, "cannot open its directory");
	if (linkat(from, to.base, parent, place.base, 0) == 0)
		return 0;
	if (errno != EEXIST)
		return member_errno(err, errno, name, "cannot create the hard link");
	r = replace_earlier(parent, place.base, name, err);
	if (r == 0 && linkat(from, to.base, parent, place.base, 0) < 0)
		r = member_errno(err, errno, name, "cannot create the hard link");
	return r;
}

/* ---- files ---- */

int tree_file_begin(struct tree *t, const char *name, mode_t mode, struct penstock_error *err)
{
	const int flags = O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC;
	struct place place;
	int parent = -1, r;

	r = enter_member(t, &place, name, &parent, err);
	if (r < 0)
		return r;
	if (place.len == 0)
		return member_error(err, PENSTOCK_E_INVALID, name, "a file has no name");
	mode = (mode & 0777) | 0600;
	t->fd = openat(parent, place.base, flags, mode);
	if (t->fd < 0 && errno == EEXIST) {
		r = replace_earlier(parent, place.base, name, err);
		if (r < 0)
			return r;
		t->fd = openat(parent, place.base, flags, mode);
	}
	if (t->fd < 0)
		return member_errno(err, errno, name, "cannot create it");
	t->end = t->position = 0;
	return 0;
}

/* Refuses decompression bombs. */
static int check_ratio(
	const struct tree *t, const char *name, uint64_t bytes, struct penstock_error *err)
{
	uint64_t packed;
	char size[STR_SIZE_SIZE], from[STR_SIZE_SIZE];

	if (!t->options.packed || bytes < LIMIT_ARCHIVE_RATIO_FROM)
		return 0;
	packed = atomic_load_explicit(t->options.packed, memory_order_relaxed);
	if (bytes / t->options.max_ratio <= packed)
		return 0;
	str_format_size(bytes, size);
	str_format_size(packed, from);
	return member_error(err, PENSTOCK_E_LIMIT, name,
		"decompression bomb? %s of the archive unpack to %s, more than %llu times as "
		"much; if intended, set PENSTOCK_UNPACK_RATIO to a higher number",
		from, size, (unsigned long long)t->options.max_ratio);
}

static int charge(struct tree *t, const char *name, uint64_t n, struct penstock_error *err)
{
	char size[STR_SIZE_SIZE];
	int r = check_ratio(t, name, t->bytes + n, err);

	if (r < 0)
		return r;

	if (n > t->options.max_bytes - t->bytes) {
		str_format_size(t->options.max_bytes, size);
		return member_error(err, PENSTOCK_E_LIMIT, name,
			"the unpacked data exceeds the limit of %s (%llu bytes)", size,
			(unsigned long long)t->options.max_bytes);
	}
	t->bytes += n;
	if (t->options.budget && atomic_fetch_sub(t->options.budget, (long long)n) < (long long)n)
		return member_error(err, PENSTOCK_E_NO_SPACE, name,
			"the unpacked inputs together exceed the free space");
	return 0;
}

int tree_file_write(struct tree *t, const char *name, const void *data, size_t len, uint64_t offset,
	struct penstock_error *err)
{
	int r;

	if (len == 0)
		return 0;
	if (offset > (uint64_t)INT64_MAX - len)
		return member_error(err, PENSTOCK_E_CORRUPT, name, "damaged");
	if (offset + len > t->end) {
		r = charge(t, name, offset + len - t->end, err);
		if (r < 0)
			return r;
		t->end = offset + len;
	}
	if (offset == t->position ? fs_write_all(t->fd, data, len)
				  : fs_pwrite_all(t->fd, data, len, (off_t)offset))
		return member_errno(err, errno, name, "cannot write it");
	if (offset == t->position)
		t->position += len;
	return 0;
}

int tree_file_end(struct tree *t, const char *name, uint64_t size, const struct timespec *mtime,
	struct penstock_error *err)
{
	_cleanup_close_ int fd = take_fd(t->fd);
	int r;

	if (size > t->end) {
		if (size > INT64_MAX)
			return member_error(err, PENSTOCK_E_CORRUPT, name, "damaged");
		r = charge(t, name, size - t->end, err);
		if (r < 0)
			return r;
		if (ftruncate(fd, (off_t)size) < 0)
			return member_errno(err, errno, name, "cannot write it");
	}
	if (mtime) {
		const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, *mtime};

		/* Times out of the file system's range are ignored. */
		futimens(fd, times);
	}
	/* Network file systems report failed writes here. */
	if (close(take_fd(fd)) < 0 && errno != EINTR)
		return member_errno(err, errno, name, "cannot write it");
	return 0;
}

/* The file's contents are the target of the link. */
static int amend_link(int parent, const struct place *place, const char *name, const char *target,
	struct penstock_error *err)
{
	_cleanup_close_ int fd = openat(parent, place->base, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char text[PATH_MAX];
	ssize_t n = fd < 0 ? -1 : fs_pread_all(fd, text, sizeof(text), 0);
	int r;

	if (n < 0)
		return member_errno(err, errno, name, "cannot read it");
	if ((size_t)n != strlen(target) || memcmp(text, target, (size_t)n) != 0)
		return 1;
	r = check_target(place, name, target, err);
	if (r < 0)
		return r;
	if (unlinkat(parent, place->base, 0) < 0 || symlinkat(target, parent, place->base) < 0)
		return member_errno(err, errno, name, "cannot create the symbolic link");
	return 0;
}

int tree_amend(struct tree *t, const char *name, mode_t type, mode_t mode, uint64_t size,
	const char *target, struct penstock_error *err)
{
	struct place place;
	struct stat st;
	int parent = -1, r;

	r = place_member(&place, name, err);
	if (r < 0)
		return r;
	if (place.len == 0)
		return S_ISDIR(type) ? 0 : 1;
	parent = open_dir(t, place.text, place.parent_len, false);
	if (parent < 0 || fstatat(parent, place.base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP
			       ? 1
			       : member_errno(err, errno, name, "cannot stat it");
	if (S_ISDIR(type) != S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode))
		return 1;
	if (target)
		return amend_link(parent, &place, name, target, err);
	if (!S_ISDIR(type) && (!S_ISREG(type) || (uint64_t)st.st_size != size))
		return 1;
	mode = ((mode & 0777) | (S_ISDIR(type) ? 0700 : 0600)) & ~t->umask;
	if ((st.st_mode & 0777) != mode && fchmodat(parent, place.base, mode, 0) < 0)
		return member_errno(err, errno, name, "cannot set its mode");
	return 0;
}

/* ---- the end ---- */

static void set_times(struct tree *t)
{
	for (size_t at = 0; at < t->times.len;) {
		struct tree_time note;
		const char *path;
		int fd;

		memcpy(&note, t->times.data + at, sizeof(note));
		path = t->times.data + at + sizeof(note);
		at += sizeof(note) + note.len + 1;
		fd = open_dir(t, path, note.len, false);
		if (fd >= 0) {
			const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, note.mtime};

			futimens(fd, times);
		}
	}
}

int tree_commit(struct tree *t, struct penstock_error *err)
{
	int r;

	set_times(t);
	dir_cache_release(&t->dirs);
	r = commit_check(t->stage_fd, t->dir_fd, t->options.archive, err);
	if (r == 0)
		r = commit_move(t->stage_fd, t->dir_fd, err);
	if (r < 0)
		return r;
	if (rmdir(t->stage) < 0)
		return error_errno(err, errno, "cannot remove '%s'", t->stage);
	free(t->stage);
	t->stage = NULL;
	return 0;
}
