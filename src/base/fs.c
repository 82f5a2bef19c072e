#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/banned.h"

char *path_join(const char *dir, const char *name)
{
	size_t len = strlen(dir);
	char *path;

	while (len > 1 && dir[len - 1] == '/')
		len--;
	while (*name == '/')
		name++;
	if (asprintf(&path, "%.*s%s%s", (int)len, dir, len == 1 && dir[0] == '/' ? "" : "/", name) <
		0)
		return NULL;
	return path;
}

int fs_mkdirs(const char *path, mode_t mode, struct penstock_error *err)
{
	_cleanup_free_ char *copy = strdup(path);

	if (!copy)
		return error_memory(err);
	for (char *p = copy + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (mkdir(copy, mode) < 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
			return error_errno(err, errno, "cannot create directory %s", copy);
		*p = '/';
	}
	if (mkdir(copy, mode) < 0 && errno != EEXIST)
		return error_errno(err, errno, "cannot create directory %s", path);
	return 0;
}

int fs_read(const char *path, struct buf *out, struct penstock_error *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return error_errno(err, errno, "cannot open %s", path);
	for (;;) {
		size_t want = out->limit - out->len;
		ssize_t n;
		char *room;

		if (want > 64 * 1024)
			want = 64 * 1024;
		if (want == 0) { /* full: fine at the end of the file, too long otherwise */
			char one;

			n = read(fd, &one, 1);
			if (n == 0)
				return 0;
			return error_set(err, PENSTOCK_E_LIMIT,
				"%s is longer than the limit of %zu bytes", path, out->limit);
		}
		room = buf_reserve(out, want);
		if (!room)
			return buf_error(out, path, err);
		n = read(fd, room, want);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "cannot read %s", path);
		if (n == 0)
			return 0;
		buf_grown(out, (size_t)n);
	}
}

int fs_write_all(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int fs_pwrite_all(int fd, const void *data, size_t len, off_t offset)
{
	const char *p = data;

	while (len) {
		ssize_t n = pwrite(fd, p, len, offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		p += n;
		len -= (size_t)n;
		offset += n;
	}
	return 0;
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

int fs_fsync_dir(const char *path, struct penstock_error *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return error_errno(err, errno, "cannot open directory %s", path);
	if (fsync(fd) < 0 && errno != EINVAL)
		return error_errno(err, errno, "cannot sync directory %s", path);
	return 0;
}

int fs_write_atomic(
	const char *path, const void *data, size_t len, mode_t mode, struct penstock_error *err)
{
	_cleanup_free_ char *temporary = NULL;
	_cleanup_free_ char *dir = strdup(path);
	_cleanup_close_ int fd = -1;
	char *slash;

	if (!dir || asprintf(&temporary, "%s.tmp-XXXXXX", path) < 0)
		return error_memory(err);
	slash = strrchr(dir, '/');
	if (slash)
		slash[slash == dir] = '\0';
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return error_errno(err, errno, "cannot write %s", path);
	if (fs_write_all(fd, data, len) < 0 || fchmod(fd, mode) < 0 || fdatasync(fd) < 0 ||
		rename(temporary, path) < 0) {
		int saved = errno;

		unlink(temporary);
		return error_errno(err, saved, "cannot write %s", path);
	}
	return fs_fsync_dir(slash ? dir : ".", err);
}

static int remove_at(int parent, const char *name, const char *path, struct penstock_error *err);

static int remove_children(
	int parent, const char *name, const char *path, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *dir = NULL;
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r;

	if (fd < 0 && errno == EACCES && fchmodat(parent, name, 0700, 0) == 0)
		fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return error_errno(err, errno, "cannot remove %s", path);
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return error_memory(err);
	}
	for (struct dirent *e; (e = readdir(dir));) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (unlinkat(fd, e->d_name, 0) == 0 || errno == ENOENT)
			continue;
		if (errno == EACCES && fchmod(fd, 0700) == 0 && unlinkat(fd, e->d_name, 0) == 0)
			continue;
		r = remove_at(fd, e->d_name, path, err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int remove_at(int parent, const char *name, const char *path, struct penstock_error *err)
{
	struct stat st;
	int r;

	if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : error_errno(err, errno, "cannot remove %s", path);
	if (S_ISDIR(st.st_mode)) {
		r = remove_children(parent, name, path, err);
		if (r < 0)
			return r;
	}
	if (unlinkat(parent, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0 && errno != ENOENT)
		return error_errno(err, errno, "cannot remove %s", path);
	return 0;
}

int fs_remove_tree(const char *path, struct penstock_error *err)
{
	return remove_at(AT_FDCWD, path, path, err);
}

/* Open file description locks: as flock(), but they can be asked for. */
int fs_lock(int fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
		return 0;
	return errno == EAGAIN || errno == EACCES ? 1 : -1;
}

bool fs_lock_held(int fd)
{
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

int fs_free_bytes(const char *path, uint64_t *bytes, struct penstock_error *err)
{
	struct statvfs st;

	if (statvfs(path, &st) < 0)
		return error_errno(err, errno, "cannot read the free space of %s", path);
	*bytes = (uint64_t)st.f_bavail * st.f_frsize;
	return 0;
}

bool fs_is_network(const char *path)
{
	/* linux/magic.h has only some of these. */
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
