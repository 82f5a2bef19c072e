#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"

#define LOCK_POLL_MS 20

char *path_join(const char *dir, const char *name)
{
	size_t len = strlen(dir);

	while (len > 1 && dir[len - 1] == '/')
		len--;
	while (*name == '/')
		name++;
	return str_printf("%.*s%s%s", (int)len, dir, len == 1 && dir[0] == '/' ? "" : "/", name);
}

const char *path_last(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

char *home_path(void)
{
	const char *own = getenv("PENSTOCK_HOME");
	const char *data = getenv("XDG_DATA_HOME");
	const char *user = getenv("HOME");

	if (own && *own) {
		if (own[0] == '/')
			return strdup(own);
		_cleanup_free_ char *cwd = getcwd(NULL, 0);
		return cwd ? path_join(cwd, own) : NULL;
	}
	if (data && data[0] == '/')
		return path_join(data, "penstock");
	return path_join(user && *user ? user : "/root", ".local/share/penstock");
}

int fs_mkdirs(const char *path, mode_t mode, struct penstock_error *err)
{
	_cleanup_free_ char *copy = strdup(path);
	struct stat st;

	if (!copy)
		return error_memory(err);
	for (char *p = copy; *p; p++) {
		if (*p != '/' || p == copy)
			continue;
		*p = '\0';
		if (mkdir(copy, mode) < 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
			return error_errno(err, errno, "cannot create directory '%s'", copy);
		*p = '/';
	}
	if (mkdir(copy, mode) == 0)
		return 0;
	if (errno == EEXIST && (stat(copy, &st) < 0 || !S_ISDIR(st.st_mode)))
		errno = ENOTDIR;
	return errno == EEXIST ? 0 : error_errno(err, errno, "cannot create directory '%s'", path);
}

int fs_check_private(const char *path, struct penstock_error *err)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return error_errno(err, errno, "cannot read '%s'", path);
	if (!(st.st_mode & (S_IRWXG | S_IRWXO)))
		return 0;
	return error_set(err, PENSTOCK_E_INVALID,
		"cannot use '%s': other users may read its secrets; run 'chmod 600 %s'", path,
		path);
}

static int read_whole(int fd, const char *path, struct buf *out, struct penstock_error *err)
{
	for (;;) {
		size_t want = out->limit - out->len;
		char one, *room = &one;
		ssize_t n;

		if (want > 64 * 1024)
			want = 64 * 1024;
		/* At the limit, a read of one more byte shows whether the file ends there. */
		if (want > 0)
			room = buf_reserve(out, want);
		if (!room)
			return buf_error(out, path, err);
		n = read(fd, room, want > 0 ? want : 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "cannot read '%s'", path);
		if (n == 0)
			return 0;
		if (want == 0)
			return error_set(err, PENSTOCK_E_LIMIT,
				"cannot read '%s': longer than the limit of %zu bytes", path,
				out->limit);
		buf_grown(out, (size_t)n);
	}
}

int fs_read(const char *path, struct buf *out, struct penstock_error *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? error_errno(err, errno, "cannot open '%s'", path)
		      : read_whole(fd, path, out, err);
}

int fs_open_plain(const char *path, int flags, mode_t mode, struct penstock_error *err)
{
	_cleanup_close_ int fd = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode);
	struct stat st;

	/* ENXIO: a FIFO without a reader. */
	if (fd < 0 && errno != ELOOP && errno != ENXIO && errno != EISDIR)
		return error_errno(err, errno, "cannot open '%s'", path);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot open '%s': it is not a regular file; remove the link, FIFO or "
			"directory that a step may have created there",
			path);
	return take_fd(fd);
}

void fs_warn_readable(const char *path)
{
	struct stat st;

	if (stat(path, &st) == 0 && (st.st_mode & S_IROTH))
		log_warn("the mode of '%s' lets every user of this machine read its secrets; run "
			 "'chmod 600 %s'",
			path, path);
}

int fs_read_plain(const char *path, struct buf *out, struct penstock_error *err)
{
	_cleanup_close_ int fd = fs_open_plain(path, O_RDONLY, 0, err);

	return fd < 0 ? fd : read_whole(fd, path, out, err);
}

/* Writes at the offset *at, or at the descriptor's offset if `at` is NULL. */
static int write_all(int fd, const char *p, size_t len, off_t *at)
{
	while (len) {
		ssize_t n = at ? pwrite(fd, p, len, *at) : write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		p += n;
		len -= (size_t)n;
		if (at)
			*at += n;
	}
	return 0;
}

int fs_write_all(int fd, const void *data, size_t len)
{
	return write_all(fd, data, len, NULL);
}

int fs_pwrite_all(int fd, const void *data, size_t len, off_t offset)
{
	return write_all(fd, data, len, &offset);
}

ssize_t fs_pread_all(int fd, void *data, size_t len, off_t offset)
{
	char *p = data;
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, p + done, len - done, offset + (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

ssize_t fs_copy_range(int from, int to, off_t at, size_t len)
{
	off_t in = at, out = at;
	char chunk[64 * 1024];
	ssize_t n;

	do
		n = copy_file_range(from, &in, to, &out, len, 0);
	while (n < 0 && errno == EINTR);
	if (n >= 0 || (errno != EXDEV && errno != EINVAL && errno != EOPNOTSUPP && errno != ENOSYS))
		return n;
	n = fs_pread_all(from, chunk, len < sizeof(chunk) ? len : sizeof(chunk), at);
	return n > 0 && fs_pwrite_all(to, chunk, (size_t)n, at) < 0 ? -1 : n;
}

int fs_fsync_dir(const char *path, struct penstock_error *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return error_errno(err, errno, "cannot open directory '%s'", path);
	if (fsync(fd) < 0 && errno != EINVAL)
		return error_errno(err, errno, "cannot sync directory '%s'", path);
	return 0;
}

int fs_write_atomic(
	const char *path, const void *data, size_t len, mode_t mode, struct penstock_error *err)
{
	_cleanup_free_ char *temporary = NULL;
	_cleanup_free_ char *dir = strdup(path);
	_cleanup_close_ int fd = -1;
	char *slash;

	temporary = str_printf("%s.tmp-XXXXXX", path);
	if (!dir || !temporary)
		return error_memory(err);
	slash = strrchr(dir, '/');
	if (slash)
		slash[slash == dir] = '\0';
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return error_errno(err, errno, "cannot write '%s'", path);
	if (fs_write_all(fd, data, len) < 0 || fchmod(fd, mode) < 0 || fdatasync(fd) < 0 ||
		rename(temporary, path) < 0) {
		int saved = errno;

		unlink(temporary);
		return error_errno(err, saved, "cannot write '%s'", path);
	}
	return fs_fsync_dir(slash ? dir : ".", err);
}

int fs_open_in_root(int root, const char *path, int flags)
{
	struct open_how how = {
		.flags = (unsigned)flags,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};

	return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

struct dirent *fs_next_entry(DIR *dir)
{
	struct dirent *e;

	errno = 0;
	do {
		e = readdir(dir);
	} while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
	return e;
}

DIR *fs_list_at(int dir, const char *name)
{
	_cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);

	if (list)
		fd = -1;
	return list;
}

/* A removal in progress. At most REMOVE_DEPTH descriptors in addition to `top` are open, regardless
 * of the depth of the tree. */
struct removal {
	const char *path; /* for messages */
	int top; /* root of the tree; directories that are too deep are moved here */
	uint64_t moved;
	struct penstock_error *err;
};
enum { REMOVE_DEPTH = 32, REMOVE_PASSES = 100 };

static int raise_removal(const struct removal *removal)
{
	return error_errno(removal->err, errno, "cannot remove '%s'", removal->path);
}

/* Opens a directory. If we own the directory and cannot read it, makes it accessible first. */
static DIR *open_for_removal(int parent, const char *name)
{
	DIR *dir = fs_list_at(parent, name);
	_cleanup_close_ int fd = -1;

	if (dir || errno != EACCES)
		return dir;
	/* fchmodat() would follow a symbolic link that has replaced the directory. */
	fd = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	if (chmod(fs_fd_path(fd).text, 0700) == 0)
		return fs_list_at(fd, ".");
	/* Without /proc, chmod() has set ENOENT, which the callers take for a missing tree. */
	errno = EACCES;
	return NULL;
}

static int move_up(struct removal *removal, int dir, const char *name)
{
	char to[64];

	snprintf(to, sizeof(to), ".penstock-removing-%d-%llu", (int)getpid(),
		(unsigned long long)removal->moved++);
	return renameat(dir, name, removal->top, to) < 0 ? raise_removal(removal) : 0;
}

static int remove_children(struct removal *removal, DIR *dir, int depth);

/* Removes an entry that unlink() cannot remove: a directory, or an entry of an unwritable
 * directory. */
static int remove_hard(struct removal *removal, int dir, const char *name, int depth)
{
	_cleanup_closedir_ DIR *inner = NULL;
	struct stat st;
	int r;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : raise_removal(removal);
	if (!S_ISDIR(st.st_mode)) {
		if (fchmod(dir, 0700) == 0 && (unlinkat(dir, name, 0) == 0 || errno == ENOENT))
			return 0;
		return raise_removal(removal);
	}
	if (depth == REMOVE_DEPTH)
		return move_up(removal, dir, name);
	inner = open_for_removal(dir, name);
	if (!inner)
		return errno == ENOENT ? 0 : raise_removal(removal);
	r = remove_children(removal, inner, depth + 1);
	if (r < 0 || unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return r;
	if (errno == EACCES && fchmod(dir, 0700) == 0 && unlinkat(dir, name, AT_REMOVEDIR) == 0)
		return 0;
	/* If the directory is not empty, the next pass removes the rest: some file systems skip
	 * entries in a listing while other entries are removed. */
	return errno == ENOTEMPTY || errno == EEXIST ? 0 : raise_removal(removal);
}

static int remove_children(struct removal *removal, DIR *dir, int depth)
{
	for (struct dirent *e; (e = fs_next_entry(dir));) {
		int r;

		if (unlinkat(dirfd(dir), e->d_name, 0) == 0 || errno == ENOENT)
			continue;
		r = remove_hard(removal, dirfd(dir), e->d_name, depth);
		if (r < 0)
			return r;
	}
	return 0;
}

int fs_remove_tree_at(int parent, const char *name, const char *shown, struct penstock_error *err)
{
	struct removal removal = {.path = shown, .err = err};
	_cleanup_closedir_ DIR *dir = NULL;

	if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
		return 0;
	dir = open_for_removal(parent, name);
	if (!dir)
		return errno == ENOENT ? 0 : raise_removal(&removal);
	removal.top = dirfd(dir);
	for (int pass = 0; pass < REMOVE_PASSES; pass++) {
		int r = remove_children(&removal, dir, 0);

		if (r < 0 || unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			return r;
		if (errno != ENOTEMPTY && errno != EEXIST)
			return raise_removal(&removal);
		rewinddir(dir);
	}
	return error_set(err, PENSTOCK_E_EXISTS,
		"cannot remove '%s': another process keeps writing to it", shown);
}

int fs_remove_tree(const char *path, struct penstock_error *err)
{
	return fs_remove_tree_at(AT_FDCWD, path, path, err);
}

struct fs_fd_path fs_fd_path(int fd)
{
	struct fs_fd_path path;

	snprintf(path.text, sizeof(path.text), "/proc/self/fd/%d", fd);
	return path;
}

bool fs_is_named(int fd, const char *path)
{
	struct stat open_one, named;

	return fstat(fd, &open_one) == 0 && lstat(path, &named) == 0 &&
	       open_one.st_ino == named.st_ino && open_one.st_dev == named.st_dev;
}

/* Open file description locks: like flock(), but they can be queried. */
static int set_lock(int fd, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET};

	if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
		return 0;
	return errno == EAGAIN || errno == EACCES ? 1 : -1;
}

/* Returns true if another lock conflicts with a lock of this type, or if the query failed. */
static bool is_excluded(int fd, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET};

	return fcntl(fd, F_OFD_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

int fs_lock(int fd)
{
	return set_lock(fd, F_WRLCK);
}

void fs_unlock(int fd)
{
	set_lock(fd, F_UNLCK);
}

int fs_lock_shared(int fd)
{
	return set_lock(fd, F_RDLCK);
}

bool fs_lock_in_use(int fd)
{
	return is_excluded(fd, F_WRLCK);
}

bool fs_lock_held(int fd)
{
	return is_excluded(fd, F_RDLCK);
}

int fs_lock_wait(int fd, const atomic_int *cancel)
{
	for (;;) {
		int r = fs_lock(fd);

		if (r <= 0 || (cancel && atomic_load(cancel)))
			return r;
		clock_sleep_ms(LOCK_POLL_MS);
	}
}

int fs_lock_file(const char *path, struct penstock_error *err)
{
	_cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0 || fs_lock_wait(fd, NULL) < 0)
		return error_errno(err, errno, "cannot lock '%s'", path);
	return take_fd(fd);
}

static int open_one(int dir, const char *name, bool make)
{
	const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(dir, name, flags);

	if (fd >= 0 || errno != ENOENT || !make)
		return fd;
	/* Another process may create the directory at the same time. */
	if (mkdirat(dir, name, 0777) < 0 && errno != EEXIST)
		return -1;
	return openat(dir, name, flags);
}

int fs_open_below(int root, const char *path, size_t len, bool make, size_t *at)
{
	_cleanup_close_ int fd = openat(root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	size_t from = 0;

	*at = 0;
	while (fd >= 0) {
		char name[NAME_MAX + 1];
		size_t n;
		int next;

		while (from < len && path[from] == '/')
			from++;
		if (from == len)
			return take_fd(fd);
		for (n = 0; from + n < len && path[from + n] != '/';)
			n++;
		*at = from + n;
		if (n > NAME_MAX) {
			errno = ENAMETOOLONG;
			return -1;
		}
		memcpy(name, path + from, n);
		name[n] = '\0';
		if (strcmp(name, "..") == 0) {
			errno = EINVAL;
			return -1;
		}
		next = open_one(fd, name, make);
		close(fd);
		fd = next;
		from += n;
	}
	return -1;
}

int fs_rename_new(const char *from, const char *to)
{
	struct stat st;

	if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
		return -1;
	if (link(from, to) == 0)
		return unlink(from);
	if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK)
		return -1;
	if (lstat(to, &st) == 0) {
		errno = EEXIST;
		return -1;
	}
	return rename(from, to);
}

int fs_free_bytes(const char *path, uint64_t *bytes, struct penstock_error *err)
{
	struct statvfs st;

	if (statvfs(path, &st) < 0)
		return error_errno(err, errno, "cannot determine the free space of '%s'", path);
	*bytes = (uint64_t)st.f_bavail * st.f_frsize;
	return 0;
}

bool fs_is_network(const char *path)
{
	/* linux/magic.h has only some of these numbers. */
	static const unsigned long magics[] = {0x6969 /* NFS */, 0x517B /* SMB */,
		0xFF534D42 /* CIFS */, 0xFE534D42 /* SMB2 */, 0x0BD00BD0 /* Lustre */,
		0x65735546 /* FUSE */, 0x47504653 /* GPFS */, 0x00C36400 /* Ceph */,
		0x5346414F /* AFS */, 0x01021997 /* 9P */, 0x19830326 /* BeeGFS */};
	struct statfs st;

	if (statfs(path, &st) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(magics); i++) {
		if (((unsigned long)st.f_type & 0xFFFFFFFF) == magics[i])
			return true;
	}
	return false;
}

char *fs_find_program(const char *path, const char *name)
{
	while (path && *path) {
		size_t len = strcspn(path, ":");
		_cleanup_free_ char *dir = strndup(path, len);
		char *file = dir && *dir == '/' ? path_join(dir, name) : NULL;
		struct stat st;

		if (file && stat(file, &st) == 0 && S_ISREG(st.st_mode) && access(file, X_OK) == 0)
			return file;
		free(file);
		path += len + (path[len] == ':');
	}
	return NULL;
}

char *fs_find_tool(const char *name)
{
	char *found = fs_find_program(str_env("PATH"), name);

	return found ? found
		     : fs_find_program(
			       "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			       name);
}

int fs_open_unnamed(const char *what, struct penstock_error *err)
{
	const char *dir = str_env("TMPDIR");
	int fd;

	if (!dir)
		dir = "/var/tmp";
	fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	return fd >= 0 ? fd
		       : error_errno(err, errno,
				 "cannot create a file in '%s' for %s; set TMPDIR to another "
				 "directory",
				 dir, what);
}

int fs_write_text_at(int dir, const char *name, const char *text, mode_t mode)
{
	_cleanup_close_ int fd = -1;
	char fresh[32];

	/* Several threads may write at the same time. */
	snprintf(fresh, sizeof(fresh), ".new-%d", (int)gettid());
	unlinkat(dir, fresh, 0);
	fd = openat(dir, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0)
		return -1;
	if (fs_write_all(fd, text, strlen(text)) < 0 || renameat(dir, fresh, dir, name) < 0) {
		int saved = errno;

		unlinkat(dir, fresh, 0);
		errno = saved;
		return -1;
	}
	return 0;
}

uint64_t fs_disk_bytes(const char *path)
{
	char *const paths[] = {(char *)(uintptr_t)path, NULL};
	FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	uint64_t bytes = 0;
	FTSENT *e;

	while (fts && (e = fts_read(fts))) {
		if (e->fts_info != FTS_DP && e->fts_statp)
			bytes += (uint64_t)e->fts_statp->st_blocks * 512 /
				 (e->fts_info == FTS_F ? e->fts_statp->st_nlink : 1);
	}
	if (fts)
		fts_close(fts);
	return bytes;
}
