#include "archive/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"

/* Refuses a link that leads out of the tree. A relative target may start with ".." components that
 * stay inside the tree. A ".." after a name is refused, because the name could be a link, too. */
static int check_target(const struct member_place *place, const char *name, const char *target,
	struct penstock_error *err)
{
	size_t depth = 0;
	bool descended = false;

	for (size_t i = 0; i < place->len; i++)
		depth += place->text[i] == '/';
	if (target[0] == '\0' || target[0] == '/')
		return member_error(err, PENSTOCK_E_INVALID, name,
			"the target of the symbolic link is empty or absolute");
	while (*target) {
		size_t n = strcspn(target, "/");

		if (n == 2 && target[0] == '.' && target[1] == '.') {
			if (descended || depth == 0)
				return member_error(err, PENSTOCK_E_INVALID, name,
					"the symbolic link leads out of the directory");
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

/* ---- the tree ---- */

static int replace_earlier(
	struct members *m, struct member_place *place, struct penstock_error *err)
{
	struct stat st;

	(void)m;
	if (fstatat(place->parent, place->base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return member_errno(err, place->text, "cannot stat the earlier member");
	if (S_ISDIR(st.st_mode))
		return member_error(err, PENSTOCK_E_INVALID, place->text,
			"the archive has a directory and another member of this name");
	if (unlinkat(place->parent, place->base, 0) < 0)
		return member_errno(err, place->text, "cannot replace the earlier member");
	return 0;
}

static const struct member_policy policy = {.dir_mode = 0777, .replace = replace_earlier};

static int make_stage(struct tree *t, const char *dir, struct penstock_error *err)
{
	_cleanup_free_ char *template = path_join(dir, TREE_PREFIX "XXXXXX");
	struct stat st;

	if (!template)
		return error_memory(err);
	if (!mkdtemp(template))
		return error_errno(err, errno, "cannot write to '%s'", dir);
	t->stage = take_pointer(template);
	t->members.root_fd = open(t->stage, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (t->members.root_fd < 0)
		return error_errno(err, errno, "cannot open '%s'", t->stage);
	/* Read the umask from the mode of a new directory: umask() would change it for all
	 * threads. */
	if (mkdirat(t->members.root_fd, "umask", 0777) < 0 ||
		fstatat(t->members.root_fd, "umask", &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		unlinkat(t->members.root_fd, "umask", AT_REMOVEDIR) < 0)
		return error_errno(err, errno, "cannot write to '%s'", t->stage);
	t->umask = ~st.st_mode & 0777;
	return 0;
}

int tree_init(struct tree *t, const char *dir, const struct tree_options *options,
	struct penstock_error *err)
{
	int r;

	*t = (struct tree){.options = *options, .dir_fd = -1, .fd = -1};
	t->members = (struct members){.root_fd = -1,
		.policy = &policy,
		.max = options->max_members,
		.later = BUF_INIT(LIMIT_ARCHIVE_DIRS)};
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
	members_release(&t->members);
	if (t->members.root_fd >= 0)
		close(t->members.root_fd);
	if (t->dir_fd >= 0)
		close(t->dir_fd);
	if (t->stage) {
		fs_remove_tree(t->stage, NULL);
		/* Removed bytes return to the shared budget. */
		if (t->options.budget)
			atomic_fetch_add(t->options.budget, (long long)t->bytes);
	}
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

int tree_directory(struct tree *t, const char *name, mode_t mode, const struct timespec *mtime,
	struct penstock_error *err)
{
	struct member_place place;
	int fd, r = members_place(&t->members, &place, name, err);

	if (r < 0 || place.len == 0) /* "./" */
		return r;
	mode = (mode & 0777) | 0700;
	r = members_mkdir(&t->members, &place, mode, err);
	if (r < 0)
		return r;
	if (r == 1) {
		fd = members_open(&t->members, place.text, place.len, false);
		if (fd < 0 || fchmod(fd, mode & ~t->umask) < 0)
			return member_errno(err, name, "cannot set the mode");
	}
	if (mtime)
		members_later(&t->members, &place, (mode_t)-1, mtime);
	return 0;
}

int tree_check_link(const char *name, const char *target, struct penstock_error *err)
{
	struct member_place place;
	int r = member_split(&place, name, false, err);

	return r < 0 ? r : check_target(&place, name, target, err);
}

int tree_symlink(struct tree *t, const char *name, const char *target, const struct timespec *mtime,
	struct penstock_error *err)
{
	struct member_place place;
	int r = members_place(&t->members, &place, name, err);

	if (r == 0)
		r = check_target(&place, name, target, err);
	if (r == 0)
		r = members_create(
			&t->members, &place, &(struct member_new){S_IFLNK, 0, target, -1}, err);
	if (r == 0 && mtime) {
		const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, *mtime};

		/* A failure is ignored: the time may be outside of the file system's range. */
		utimensat(place.parent, place.base, times, AT_SYMLINK_NOFOLLOW);
	}
	return r;
}

int tree_hardlink(struct tree *t, const char *name, const char *target, struct penstock_error *err)
{
	struct member_place place;
	int r = members_place(&t->members, &place, name, err);

	return r < 0 ? r : members_link(&t->members, &place, target, err);
}

/* ---- files ---- */

int tree_file_begin(struct tree *t, const char *name, mode_t mode, struct penstock_error *err)
{
	struct member_place place;
	int r = members_place(&t->members, &place, name, err);

	if (r == 0)
		r = members_create(&t->members, &place,
			&(struct member_new){S_IFREG, (mode & 0777) | 0600, NULL, -1}, err);
	if (r < 0)
		return r;
	t->fd = r;
	t->end = t->position = 0;
	return 0;
}

/* Counts `n` more bytes. Refuses decompression bombs, and bytes beyond a limit. */
static int charge(struct tree *t, const char *name, uint64_t n, struct penstock_error *err)
{
	char size[STR_SIZE_SIZE], from[STR_SIZE_SIZE];
	uint64_t packed = t->options.packed
				  ? atomic_load_explicit(t->options.packed, memory_order_relaxed)
				  : UINT64_MAX;

	if (t->bytes + n >= LIMIT_ARCHIVE_RATIO_FROM &&
		(t->bytes + n) / t->options.max_ratio > packed) {
		str_format_size(t->bytes + n, size);
		str_format_size(packed, from);
		return member_error(err, PENSTOCK_E_LIMIT, name,
			"possible decompression bomb: %s of the archive unpack to %s, more than "
			"%llu times as much; if this is intended, set PENSTOCK_UNPACK_RATIO to a "
			"higher number",
			from, size, (unsigned long long)t->options.max_ratio);
	}
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
		return member_error(err, PENSTOCK_E_CORRUPT, name, "invalid offset");
	if (offset + len > t->end) {
		r = charge(t, name, offset + len - t->end, err);
		if (r < 0)
			return r;
		t->end = offset + len;
	}
	if (offset == t->position ? fs_write_all(t->fd, data, len)
				  : fs_pwrite_all(t->fd, data, len, (off_t)offset))
		return member_errno(err, name, "cannot write the file");
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
			return member_error(err, PENSTOCK_E_CORRUPT, name, "invalid size");
		r = charge(t, name, size - t->end, err);
		if (r < 0)
			return r;
		if (ftruncate(fd, (off_t)size) < 0)
			return member_errno(err, name, "cannot write the file");
	}
	if (mtime) {
		const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, *mtime};

		/* A failure is ignored: the time may be outside of the file system's range. */
		futimens(fd, times);
	}
	/* Network file systems report failed writes here. */
	if (close(take_fd(fd)) < 0 && errno != EINTR)
		return member_errno(err, name, "cannot write the file");
	return 0;
}

/* Replaces a file with a link if the contents of the file are the target of the link. Returns 1 if
 * the file has other contents. */
static int amend_link(int parent, const struct member_place *place, const char *name,
	const char *target, struct penstock_error *err)
{
	_cleanup_close_ int fd = openat(parent, place->base, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char text[PATH_MAX];
	ssize_t n = fd < 0 ? -1 : fs_pread_all(fd, text, sizeof(text), 0);
	int r;

	if (n < 0)
		return member_errno(err, name, "cannot read the file");
	if ((size_t)n != strlen(target) || memcmp(text, target, (size_t)n) != 0)
		return 1;
	r = check_target(place, name, target, err);
	if (r < 0)
		return r;
	if (unlinkat(parent, place->base, 0) < 0 || symlinkat(target, parent, place->base) < 0)
		return member_errno(err, name, "cannot create the symbolic link");
	return 0;
}

int tree_amend(struct tree *t, const char *name, mode_t type, mode_t mode, uint64_t size,
	const char *target, struct penstock_error *err)
{
	struct member_place place;
	struct stat st;
	int parent, r = member_split(&place, name, false, err);

	if (r < 0)
		return r;
	if (place.len == 0)
		return S_ISDIR(type) ? 0 : 1;
	parent = members_open(&t->members, place.text, place.parent_len, false);
	if (parent < 0 || fstatat(parent, place.base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP
			       ? 1
			       : member_errno(err, name, "cannot stat the member");
	if (S_ISDIR(type) != S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode))
		return 1;
	if (target)
		return amend_link(parent, &place, name, target, err);
	if (!S_ISDIR(type) && (!S_ISREG(type) || (uint64_t)st.st_size != size))
		return 1;
	mode = ((mode & 0777) | (S_ISDIR(type) ? 0700 : 0600)) & ~t->umask;
	if ((st.st_mode & 0777) != mode && fchmodat(parent, place.base, mode, 0) < 0)
		return member_errno(err, name, "cannot set the mode");
	return 0;
}

/* ---- moving into place ---- */

static int open_below(int dir, const char *name)
{
	return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int check_move(int from, int to, const char *keep, struct penstock_error *err);

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
				? "cannot replace the existing file or link with a directory"
				: "cannot replace the existing directory");
	if (!S_ISDIR(new.st_mode))
		return 0;
	sub_from = open_below(from, name);
	sub_to = open_below(to, name);
	if (sub_from < 0 || sub_to < 0)
		return member_errno(err, name, "cannot open the directory");
	return check_move(sub_from, sub_to, NULL, err);
}

/* Verifies that everything below `from` can be moved into `to`: no file replaces a directory, no
 * directory replaces anything else, and no entry of `from` itself is called `keep`. */
static int check_move(int from, int to, const char *keep, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *dir = fs_list_at(from, ".");
	const struct dirent *e;

	if (!dir)
		return error_errno(err, errno, "cannot list the unpacked members");
	while ((e = fs_next_entry(dir))) {
		int r;

		if (keep && strcmp(e->d_name, keep) == 0)
			return member_error(err, PENSTOCK_E_EXISTS, e->d_name,
				"the member has the name of the archive and would replace the archive");
		r = check_entry(from, to, e->d_name, err);
		if (r < 0)
			return r;
	}
	return errno ? error_errno(err, errno, "cannot list the unpacked members") : 0;
}

static int move_entries(struct tree *t, int from, int to, struct penstock_error *err);

static int merge_dir(struct tree *t, int from, int to, const char *name, struct penstock_error *err)
{
	_cleanup_close_ int sub_from = open_below(from, name);
	_cleanup_close_ int sub_to = open_below(to, name);
	struct timespec times[2];
	struct stat st;
	int r;

	if (sub_from < 0 || sub_to < 0 || fstat(sub_from, &st) < 0)
		return member_errno(err, name, "cannot open the directory");
	r = move_entries(t, sub_from, sub_to, err);
	if (r < 0)
		return r;
	times[0] = (struct timespec){.tv_nsec = UTIME_OMIT};
	times[1] = st.st_mtim;
	futimens(sub_to, times);
	if (unlinkat(from, name, AT_REMOVEDIR) < 0)
		return error_errno(err, errno, "cannot remove emptied directory '%s'", name);
	return 0;
}

/* Returns the bytes that become free when the file `name` is replaced. An interrupted staging has
 * left the file, so the budget does not contain these bytes yet. */
static int64_t bytes_there(int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
		st.st_nlink > 1)
		return 0;
	return st.st_size < st.st_blocks * 512 ? st.st_size : st.st_blocks * 512;
}

/* Moves the entries, and merges directories of the same name; `from` is empty afterwards. */
static int move_entries(struct tree *t, int from, int to, struct penstock_error *err)
{
	bool moved;

	/* A listing may skip entries while other entries are moved: repeat until the directory is
	 * empty. */
	do {
		_cleanup_closedir_ DIR *dir = fs_list_at(from, ".");
		const struct dirent *e;

		moved = false;
		if (!dir)
			return error_errno(err, errno, "cannot list the unpacked members");
		while ((e = fs_next_entry(dir))) {
			int64_t freed = t->options.budget ? bytes_there(to, e->d_name) : 0;
			int r;

			moved = true;
			if (renameat(from, e->d_name, to, e->d_name) == 0) {
				if (freed)
					atomic_fetch_add(t->options.budget, freed);
				continue;
			}
			if (errno != ENOTEMPTY && errno != EEXIST)
				return member_errno(
					err, e->d_name, "cannot move the member into place");
			r = merge_dir(t, from, to, e->d_name, err);
			if (r < 0)
				return r;
		}
		if (errno)
			return error_errno(err, errno, "cannot list the unpacked members");
	} while (moved);
	return 0;
}

int tree_commit(struct tree *t, struct penstock_error *err)
{
	int r = members_finish(&t->members, err);

	members_forget(&t->members);
	if (r == 0)
		r = check_move(t->members.root_fd, t->dir_fd, t->options.archive, err);
	if (r == 0)
		r = move_entries(t, t->members.root_fd, t->dir_fd, err);
	if (r < 0)
		return r;
	if (rmdir(t->stage) < 0)
		return error_errno(err, errno, "cannot remove '%s'", t->stage);
	free(t->stage);
	t->stage = NULL;
	return 0;
}
