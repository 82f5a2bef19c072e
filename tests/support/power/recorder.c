/* See log.h. The functions of this file record the calls of the program and pass them on to
 * libc. */
/* This file defines both names of each function, with and without the suffix 64. */
#undef _FILE_OFFSET_BITS
#include "log.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define FDS    65536

/* Calls libc's function of that name. */
#define NEXT(name)                                                                                 \
	({                                                                                         \
		static __typeof__(&(name)) next_;                                                  \
		if (!next_)                                                                        \
			*(void **)&next_ = dlsym(RTLD_NEXT, #name);                                \
		next_;                                                                             \
	})

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_len;
static int log_fd = -1;
static struct power_faults *faults;
static uint8_t fd_class[FDS]; /* 0 if not below the root */
static uint64_t fd_ino[FDS];
static dev_t device; /* the device of the root */
static atomic_ullong syncs;
static uint32_t process;

/* --- the log ------------------------------------------------------------------------------- */

static void emit(enum record_type type, uint64_t ino, uint64_t other, uint64_t offset,
	const void *name, size_t name_len, const void *data, size_t data_len)
{
	struct record r = {.type = type,
		.name_len = (uint32_t)name_len,
		.data_len = (uint32_t)data_len,
		.process = process,
		.ino = ino,
		.other = other,
		.offset = offset};
	static const char padding[RECORD_ALIGN];
	size_t len = sizeof(r) + name_len + data_len;
	size_t pad = (RECORD_ALIGN - len % RECORD_ALIGN) % RECORD_ALIGN;
	struct iovec iov[] = {{&r, sizeof(r)}, {(void *)name, name_len}, {(void *)data, data_len},
		{(void *)padding, pad}};

	if (log_fd >= 0 && syscall(SYS_writev, log_fd, iov, 4) != (ssize_t)(len + pad))
		abort();
}

static void emit_unknown(const char *what)
{
	pthread_mutex_lock(&lock);
	emit(RECORD_UNKNOWN, 0, 0, 0, what, strlen(what), NULL, 0);
	pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void start(void)
{
	const char *top = getenv("POWER_ROOT"), *path = getenv("POWER_LOG");
	const char *control = getenv("POWER_FAULTS");
	struct stat st;

	if (!top || strlen(top) >= sizeof(root) || stat(top, &st) < 0)
		return;
	root_len = strlen(top);
	memcpy(root, top, root_len + 1);
	process = (uint32_t)getpid();
	device = st.st_dev;
	if (path) {
		int fd = (int)syscall(SYS_openat, AT_FDCWD, path,
			O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

		log_fd = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 700);
		syscall(SYS_close, fd);
		if (log_fd < 0)
			abort();
		emit(RECORD_ROOT, st.st_ino, 0, 0, NULL, 0, NULL, 0);
	}
	if (control) {
		int fd = (int)syscall(SYS_openat, AT_FDCWD, control, O_RDWR | O_CLOEXEC, 0);
		void *map = (void *)syscall(SYS_mmap, NULL, sizeof(*faults), PROT_READ | PROT_WRITE,
			MAP_SHARED, fd, 0L);

		syscall(SYS_close, fd);
		if (map == MAP_FAILED)
			abort();
		faults = map;
	}
}

/* A program that sends no replies acknowledges its changes by its exit. */
__attribute__((destructor)) static void end(void)
{
	char name[32];
	int len = snprintf(name, sizeof(name), "exit-%u", process);

	pthread_mutex_lock(&lock);
	emit(RECORD_REPLY, 0, 0, 0, name, (size_t)len, NULL, 0);
	pthread_mutex_unlock(&lock);
}

/* --- what is below the root ---------------------------------------------------------------- */

static bool ends_with(const char *path, const char *end)
{
	size_t len = strlen(path), end_len = strlen(end);

	return len >= end_len && strcmp(path + len - end_len, end) == 0;
}

static uint8_t class_of_path(const char *path, bool directory)
{
	if (strncmp(path, root, root_len) != 0 || (path[root_len] && path[root_len] != '/'))
		return 0;
	if (directory)
		return FAULT_DIRECTORY;
	if (strstr(path + root_len, "/data/"))
		return FAULT_DATA;
	if (ends_with(path, "-wal"))
		return FAULT_WAL;
	return ends_with(path, "/meta.db") ? FAULT_DATABASE : FAULT_OTHER;
}

/* Returns the class of an open descriptor, and sets its inode. */
static uint8_t classify(int fd, uint64_t *ino)
{
	char link[48], path[PATH_MAX];
	struct stat st;
	ssize_t len;

	if (!root_len || fd < 0)
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path) - 1);
	if (len <= 0 || fstat(fd, &st) < 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
		return 0;
	path[len] = '\0';
	*ino = st.st_ino;
	return class_of_path(path, S_ISDIR(st.st_mode));
}

/* Some functions of libc close a descriptor internally, so its number may refer to another file
 * now. */
static uint8_t tracked(int fd)
{
	struct stat st;

	if (fd < 0 || fd >= FDS || !fd_class[fd])
		return 0;
	return fstat(fd, &st) == 0 && st.st_ino == fd_ino[fd] && st.st_dev == device ? fd_class[fd]
										     : 0;
}

static void track(int fd, uint8_t class, uint64_t ino)
{
	if (fd < 0 || fd >= FDS)
		return;
	fd_class[fd] = class;
	fd_ino[fd] = ino;
}

static uint64_t inode(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

/* The directory and the last component of a path. */
struct place {
	uint64_t dir;
	const char *name;
	bool inside;
};

static struct place place_of(int dirfd, const char *path)
{
	const char *slash = strrchr(path, '/');
	struct place p = {.name = slash ? slash + 1 : path};
	char parent[PATH_MAX];
	int fd;

	if (!root_len)
		return p;
	snprintf(parent, sizeof(parent), "%.*s",
		slash == path ? 1 : (int)(slash ? slash - path : 1), slash ? path : ".");
	fd = (int)syscall(SYS_openat, dirfd, parent, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	p.inside = classify(fd, &p.dir) != 0;
	if (fd >= 0)
		syscall(SYS_close, fd);
	return p;
}

/* --- faults -------------------------------------------------------------------------------- */

static bool faulty(enum fault_op op, uint8_t class)
{
	if (!faults || !(faults->ops & op) || !(faults->classes & class))
		return false;
	faults->hits++;
	errno = faults->error;
	return true;
}

/* Returns the number of bytes that a write or a read may still transfer before the simulated fault.
 * If that is 0, sets errno. */
static size_t room_for(enum fault_op op, int fd, size_t len)
{
	int64_t room;

	if (!faults || !(faults->ops & op) || !(faults->classes & tracked(fd)))
		return len;
	room = faults->allow_bytes;
	if (room >= (int64_t)len) {
		faults->allow_bytes -= (int64_t)len;
		return len;
	}
	faults->allow_bytes = 0;
	faults->hits++;
	errno = faults->error;
	return room > 0 ? (size_t)room : 0;
}

/* --- files --------------------------------------------------------------------------------- */

static int open_recorded(int dirfd, const char *path, int flags, mode_t mode)
{
	__typeof__(&openat) next = NEXT(openat);
	bool existed = true;
	struct place at;
	struct stat st;
	uint64_t ino = 0;
	uint8_t class;
	int fd;

	if (!root_len || (flags & O_ACCMODE) == O_RDONLY) {
		fd = next(dirfd, path, flags, mode);
		class = classify(fd, &ino);
		track(fd, class, ino);
		return fd;
	}
	pthread_mutex_lock(&lock);
	if (flags & O_CREAT) {
		existed = fstatat(dirfd, path, &st, 0) == 0;
		at = place_of(dirfd, path);
		if (!existed && at.inside && faulty(FAULT_CREATE, FAULT_DIRECTORY)) {
			pthread_mutex_unlock(&lock);
			return -1;
		}
	}
	fd = next(dirfd, path, flags, mode);
	class = classify(fd, &ino);
	track(fd, class, ino);
	if (class && (flags & O_TMPFILE) == O_TMPFILE)
		emit(RECORD_UNKNOWN, 0, 0, 0, "O_TMPFILE", 9, NULL, 0);
	if (class && !existed)
		emit(RECORD_CREATE, at.dir, ino, 0, at.name, strlen(at.name), NULL, 0);
	else if (class && (flags & O_TRUNC))
		emit(RECORD_TRUNCATE, ino, 0, 0, NULL, 0, NULL, 0);
	pthread_mutex_unlock(&lock);
	return fd;
}

static mode_t mode_argument(int flags, va_list ap)
{
	return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(ap, mode_t) : 0;
}

#define OPEN_BODY(dirfd)                                                                           \
	va_list ap;                                                                                \
	mode_t mode;                                                                               \
	va_start(ap, flags);                                                                       \
	mode = mode_argument(flags, ap);                                                           \
	va_end(ap);                                                                                \
	return open_recorded(dirfd, path, flags, mode)

EXPORT int open(const char *path, int flags, ...)
{
	OPEN_BODY(AT_FDCWD);
}

int open64(const char *path, int flags, ...);
EXPORT int open64(const char *path, int flags, ...)
{
	OPEN_BODY(AT_FDCWD);
}

EXPORT int openat(int dirfd, const char *path, int flags, ...)
{
	OPEN_BODY(dirfd);
}

int openat64(int dirfd, const char *path, int flags, ...);
EXPORT int openat64(int dirfd, const char *path, int flags, ...)
{
	OPEN_BODY(dirfd);
}

/* libc opens the file internally, without a call of openat(). */
EXPORT int mkostemp(char *template, int flags)
{
	struct place at;
	uint64_t ino = 0;
	uint8_t class;
	int fd;

	pthread_mutex_lock(&lock);
	fd = NEXT(mkostemp)(template, flags);
	class = classify(fd, &ino);
	if (class) {
		at = place_of(AT_FDCWD, template);
		emit(RECORD_CREATE, at.dir, ino, 0, at.name, strlen(at.name), NULL, 0);
	}
	track(fd, class, ino);
	pthread_mutex_unlock(&lock);
	return fd;
}

EXPORT int mkostemp64(char *template, int flags)
{
	return mkostemp(template, flags);
}

EXPORT int close(int fd)
{
	if (fd >= 0 && fd < FDS)
		fd_class[fd] = 0;
	return NEXT(close)(fd);
}

/* Records the bytes in the caller's memory; the offset is that of the descriptor. */
EXPORT ssize_t write(int fd, const void *data, size_t len)
{
	ssize_t n = -1;

	if (!tracked(fd))
		return NEXT(write)(fd, data, len);
	pthread_mutex_lock(&lock);
	len = len ? room_for(FAULT_WRITE, fd, len) : 0;
	if (len)
		n = NEXT(write)(fd, data, len);
	if (n > 0)
		emit(RECORD_WRITE, inode(fd), 0, (uint64_t)lseek(fd, 0, SEEK_CUR) - (uint64_t)n,
			NULL, 0, data, (size_t)n);
	pthread_mutex_unlock(&lock);
	return n;
}

static ssize_t pwrite_recorded(int fd, const void *data, size_t len, off_t offset)
{
	ssize_t n = -1;

	if (!tracked(fd))
		return syscall(SYS_pwrite64, fd, data, len, offset);
	pthread_mutex_lock(&lock);
	len = len ? room_for(FAULT_WRITE, fd, len) : 0;
	if (len)
		n = syscall(SYS_pwrite64, fd, data, len, offset);
	if (n > 0)
		emit(RECORD_WRITE, inode(fd), 0, (uint64_t)offset, NULL, 0, data, (size_t)n);
	pthread_mutex_unlock(&lock);
	return n;
}

EXPORT ssize_t pwrite(int fd, const void *data, size_t len, off_t offset)
{
	return pwrite_recorded(fd, data, len, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t len, off_t offset);
EXPORT ssize_t pwrite64(int fd, const void *data, size_t len, off_t offset)
{
	return pwrite_recorded(fd, data, len, offset);
}

static ssize_t pread_faulty(int fd, void *data, size_t len, off_t offset)
{
	size_t n = len ? room_for(FAULT_READ, fd, len) : 0;

	return n || !len ? syscall(SYS_pread64, fd, data, n, offset) : -1;
}

EXPORT ssize_t pread(int fd, void *data, size_t len, off_t offset)
{
	return pread_faulty(fd, data, len, offset);
}

ssize_t pread64(int fd, void *data, size_t len, off_t offset);
EXPORT ssize_t pread64(int fd, void *data, size_t len, off_t offset)
{
	return pread_faulty(fd, data, len, offset);
}

static int truncate_recorded(int fd, off_t size)
{
	int rc;

	if (!tracked(fd))
		return (int)syscall(SYS_ftruncate, fd, size);
	pthread_mutex_lock(&lock);
	rc = (int)syscall(SYS_ftruncate, fd, size);
	if (rc == 0)
		emit(RECORD_TRUNCATE, inode(fd), 0, (uint64_t)size, NULL, 0, NULL, 0);
	pthread_mutex_unlock(&lock);
	return rc;
}

EXPORT int ftruncate(int fd, off_t size)
{
	return truncate_recorded(fd, size);
}

int ftruncate64(int fd, off_t size);
EXPORT int ftruncate64(int fd, off_t size)
{
	return truncate_recorded(fd, size);
}

static int allocate_recorded(int fd, int mode, off_t offset, off_t len)
{
	int rc;

	if (!tracked(fd))
		return (int)syscall(SYS_fallocate, fd, mode, offset, len);
	if (mode)
		emit_unknown("fallocate with a mode");
	pthread_mutex_lock(&lock);
	rc = room_for(FAULT_WRITE, fd, (size_t)len) < (size_t)len
		     ? -1
		     : (int)syscall(SYS_fallocate, fd, mode, offset, len);
	if (rc == 0)
		emit(RECORD_EXTEND, inode(fd), 0, (uint64_t)(offset + len), NULL, 0, NULL, 0);
	pthread_mutex_unlock(&lock);
	return rc;
}

EXPORT int fallocate(int fd, int mode, off_t offset, off_t len)
{
	return allocate_recorded(fd, mode, offset, len);
}

int fallocate64(int fd, int mode, off_t offset, off_t len);
EXPORT int fallocate64(int fd, int mode, off_t offset, off_t len)
{
	return allocate_recorded(fd, mode, offset, len);
}

EXPORT int posix_fallocate(int fd, off_t offset, off_t len)
{
	return allocate_recorded(fd, 0, offset, len) < 0 ? errno : 0;
}

int posix_fallocate64(int fd, off_t offset, off_t len);
EXPORT int posix_fallocate64(int fd, off_t offset, off_t len)
{
	return allocate_recorded(fd, 0, offset, len) < 0 ? errno : 0;
}

/* --- names --------------------------------------------------------------------------------- */

static int mkdir_recorded(int dirfd, const char *path, mode_t mode)
{
	struct place at;
	struct stat st;
	int rc;

	pthread_mutex_lock(&lock);
	at = place_of(dirfd, path);
	rc = at.inside && faulty(FAULT_CREATE, FAULT_DIRECTORY)
		     ? -1
		     : (int)syscall(SYS_mkdirat, dirfd, path, mode);
	if (rc == 0 && at.inside && fstatat(dirfd, path, &st, 0) == 0)
		emit(RECORD_MKDIR, at.dir, st.st_ino, 0, at.name, strlen(at.name), NULL, 0);
	pthread_mutex_unlock(&lock);
	return rc;
}

EXPORT int mkdir(const char *path, mode_t mode)
{
	return mkdir_recorded(AT_FDCWD, path, mode);
}

EXPORT int mkdirat(int dirfd, const char *path, mode_t mode)
{
	return mkdir_recorded(dirfd, path, mode);
}

static int unlink_recorded(int dirfd, const char *path, int flags)
{
	struct place at;
	int rc;

	pthread_mutex_lock(&lock);
	at = place_of(dirfd, path);
	rc = (int)syscall(SYS_unlinkat, dirfd, path, flags);
	if (rc == 0 && at.inside)
		emit(RECORD_UNLINK, at.dir, 0, 0, at.name, strlen(at.name), NULL, 0);
	pthread_mutex_unlock(&lock);
	return rc;
}

EXPORT int unlink(const char *path)
{
	return unlink_recorded(AT_FDCWD, path, 0);
}

EXPORT int unlinkat(int dirfd, const char *path, int flags)
{
	return unlink_recorded(dirfd, path, flags);
}

EXPORT int rmdir(const char *path)
{
	return unlink_recorded(AT_FDCWD, path, AT_REMOVEDIR);
}

static int rename_recorded(
	int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
	char names[2 * NAME_MAX + 2];
	struct place a, b;
	int rc, len;

	pthread_mutex_lock(&lock);
	a = place_of(from_dir, from);
	b = place_of(to_dir, to);
	rc = (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
	len = snprintf(names, sizeof(names), "%s", a.name) + 1;
	len += snprintf(names + len, sizeof(names) - (size_t)len, "%s", b.name);
	if (rc == 0 && a.inside && b.inside)
		emit(RECORD_RENAME, a.dir, b.dir, 0, names, (size_t)len, NULL, 0);
	if (rc == 0 && (a.inside != b.inside || (flags && flags != 1u)))
		emit(RECORD_UNKNOWN, 0, 0, 0, "renameat2", 9, NULL, 0);
	pthread_mutex_unlock(&lock);
	return rc;
}

EXPORT int rename(const char *from, const char *to)
{
	return rename_recorded(AT_FDCWD, from, AT_FDCWD, to, 0);
}

EXPORT int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
	return rename_recorded(from_dir, from, to_dir, to, 0);
}

EXPORT int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
	return rename_recorded(from_dir, from, to_dir, to, flags);
}

EXPORT int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
	struct place at;
	struct stat st;
	int rc;

	pthread_mutex_lock(&lock);
	at = place_of(to_dir, to);
	rc = (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
	if (rc == 0 && at.inside && fstatat(to_dir, to, &st, AT_SYMLINK_NOFOLLOW) == 0)
		emit(RECORD_LINK, at.dir, st.st_ino, 0, at.name, strlen(at.name), NULL, 0);
	pthread_mutex_unlock(&lock);
	return rc;
}

EXPORT int link(const char *from, const char *to)
{
	return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

EXPORT int symlinkat(const char *target, int dirfd, const char *path)
{
	if (place_of(dirfd, path).inside)
		emit_unknown("symlinkat");
	return (int)syscall(SYS_symlinkat, target, dirfd, path);
}

EXPORT int symlink(const char *target, const char *path)
{
	return symlinkat(target, AT_FDCWD, path);
}

/* --- syncs --------------------------------------------------------------------------------- */

/* The sync covers only the writes before it, so other threads may write meanwhile. */
static int sync_recorded(int fd, int (*next)(int), bool everything)
{
	uint64_t ino = everything ? 0 : inode(fd);
	uint64_t number = atomic_fetch_add(&syncs, 1) + 1;
	uint8_t class = tracked(fd);
	int rc;

	if (!class)
		return next(fd);
	pthread_mutex_lock(&lock);
	if (faulty(FAULT_SYNC, class)) {
		pthread_mutex_unlock(&lock);
		return -1;
	}
	emit(RECORD_SYNC_BEGIN, ino, number, 0, NULL, 0, NULL, 0);
	pthread_mutex_unlock(&lock);
	rc = next(fd);
	pthread_mutex_lock(&lock);
	if (rc == 0)
		emit(RECORD_SYNC_END, ino, number, 0, NULL, 0, NULL, 0);
	pthread_mutex_unlock(&lock);
	return rc;
}

EXPORT int fsync(int fd)
{
	return sync_recorded(fd, NEXT(fsync), false);
}

EXPORT int fdatasync(int fd)
{
	return sync_recorded(fd, NEXT(fdatasync), false);
}

EXPORT int syncfs(int fd)
{
	return sync_recorded(fd, NEXT(syncfs), true);
}

/* --- unsupported ways to write: they make the log invalid, so that no write is missed --------- */

/* Only SQLite's -shm file may be mapped for writing: SQLite rebuilds the file after a crash, and
 * the replay fills it with random bytes. */
static void *map_recorded(void *at, size_t len, int protection, int flags, int fd, off_t offset)
{
	char link[48], path[PATH_MAX] = "";

	if (fd >= 0 && tracked(fd) && (protection & PROT_WRITE) && (flags & MAP_SHARED)) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		if (readlink(link, path, sizeof(path) - 1) <= 0 || !ends_with(path, "-shm"))
			emit_unknown("mmap");
	}
	return (void *)syscall(SYS_mmap, at, len, protection, flags, fd, offset);
}

EXPORT void *mmap(void *at, size_t len, int protection, int flags, int fd, off_t offset)
{
	return map_recorded(at, len, protection, flags, fd, offset);
}

void *mmap64(void *at, size_t len, int protection, int flags, int fd, off_t offset);
EXPORT void *mmap64(void *at, size_t len, int protection, int flags, int fd, off_t offset)
{
	return map_recorded(at, len, protection, flags, fd, offset);
}

EXPORT ssize_t copy_file_range(
	int in, off_t *in_at, int out, off_t *out_at, size_t len, unsigned flags)
{
	if (tracked(out))
		emit_unknown("copy_file_range");
	return syscall(SYS_copy_file_range, in, in_at, out, out_at, len, flags);
}

EXPORT ssize_t splice(int in, off_t *in_at, int out, off_t *out_at, size_t len, unsigned flags)
{
	if (tracked(out))
		emit_unknown("splice");
	return syscall(SYS_splice, in, in_at, out, out_at, len, flags);
}

EXPORT ssize_t pwritev(int fd, const struct iovec *iov, int n, off_t offset)
{
	if (tracked(fd))
		emit_unknown("pwritev");
	return syscall(SYS_pwritev, fd, iov, n, offset, 0);
}

ssize_t pwritev64(int fd, const struct iovec *iov, int n, off_t offset);
EXPORT ssize_t pwritev64(int fd, const struct iovec *iov, int n, off_t offset)
{
	return pwritev(fd, iov, n, offset);
}

/* --- replies ------------------------------------------------------------------------------- */

/* The reply is recorded before its first byte is sent: a change that is not durable by then was
 * acknowledged too early. */
static void note_reply(const void *data, size_t len)
{
	static const char name[] = "x-amz-request-id: ";
	const char *at;

	if (log_fd < 0 || len < 5 || memcmp(data, "HTTP/", 5) != 0)
		return;
	at = memmem(data, len < 4096 ? len : 4096, name, sizeof(name) - 1);
	if (!at)
		return;
	at += sizeof(name) - 1;
	pthread_mutex_lock(&lock);
	emit(RECORD_REPLY, 0, 0, 0, at, strcspn(at, "\r\n"), NULL, 0);
	pthread_mutex_unlock(&lock);
}

EXPORT ssize_t send(int fd, const void *data, size_t len, int flags)
{
	note_reply(data, len);
	return NEXT(send)(fd, data, len, flags);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	if (message->msg_iovlen)
		note_reply(message->msg_iov[0].iov_base, message->msg_iov[0].iov_len);
	return NEXT(sendmsg)(fd, message, flags);
}

EXPORT ssize_t writev(int fd, const struct iovec *iov, int n)
{
	if (tracked(fd))
		emit_unknown("writev");
	else if (n > 0)
		note_reply(iov[0].iov_base, iov[0].iov_len);
	return NEXT(writev)(fd, iov, n);
}
