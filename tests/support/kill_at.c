/*
 * A library that is preloaded into a program under test and kills the program with SIGKILL at a
 * chosen system call. A test can thus kill the program between any two of its changes to the disk.
 *
 *	KILL_AT=OP:WHEN:NUMBER:GLOB  the NUMBER-th OP on a path that matches GLOB (fnmatch)
 *	KILL_AT_VERB=run		active only if the first argument is "run"
 *	KILL_AT_ARMED=FILE		counts calls only while FILE exists
 *	KILL_AT_FILE=FILE		instead of KILL_AT: FILE has the value, if FILE exists
 *	KILL_AT_DEAF=1			inotify reports no event, as if no thread had read it
 *	KILL_AT_TRACE=FILE		writes a line "OP PATH" for each counted call
 *
 * OP is open (with O_CREAT), rename (or link, with the new name), unlink, mkdir, rmdir, write,
 * pread, sync, lock, truncate, wait, fork, send (on a socket), signal (by a pidfd), or any. WHEN is
 * before, after, half (after the first half of a write), or stop (SIGSTOP before the call). Calls
 * of all threads of the started process count, but not those of its children. The kill replaces the
 * file of KILL_AT_FILE by FILE.next, or removes the file if there is no FILE.next, so that the next
 * process with the same environment is not killed, or is killed at a different call.
 */
/* This file defines both names of each function, with and without the suffix 64. */
#undef _FILE_OFFSET_BITS

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPORT	   __attribute__((visibility("default")))
#define REAL(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

enum when { BEFORE, AFTER, HALF, STOP };

static struct {
	bool active;
	pid_t pid;
	char op[16];
	enum when when;
	long number;
	char glob[1024];
	const char *armed, *file;
	bool deaf;
	int trace;
	atomic_long seen;
} at = {.trace = -1};

static bool first_argument_is(const char *verb)
{
	char text[4096];
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	const char *second;

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	second = text + strlen(text) + 1;
	return second < text + n && strcmp(second, verb) == 0;
}

/* Returns false if `spec` is not a value of KILL_AT. */
static bool parse(const char *spec)
{
	char when[8];

	if (sscanf(spec, "%15[^:]:%7[^:]:%ld:%1023[^\n]", at.op, when, &at.number, at.glob) != 4)
		return false;
	at.when = strcmp(when, "after") == 0  ? AFTER
		  : strcmp(when, "half") == 0 ? HALF
		  : strcmp(when, "stop") == 0 ? STOP
					      : BEFORE;
	return true;
}

/* Reads the file of KILL_AT_FILE. Returns false if there is no file. */
static bool read_spec(void)
{
	char text[2048];
	int fd = (int)syscall(SYS_openat, AT_FDCWD, at.file, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	return parse(text);
}

__attribute__((constructor)) static void begin(void)
{
	const char *spec = getenv("KILL_AT"), *verb = getenv("KILL_AT_VERB");
	const char *trace = getenv("KILL_AT_TRACE");

	at.file = getenv("KILL_AT_FILE");
	if ((!spec && !at.file) || !verb || !first_argument_is(verb) || (spec && !parse(spec)))
		return;
	at.armed = getenv("KILL_AT_ARMED");
	at.deaf = getenv("KILL_AT_DEAF") != NULL;
	if (trace)
		at.trace = (int)syscall(SYS_openat, AT_FDCWD, trace,
			O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	at.pid = getpid();
	at.active = true;
}

static void die(void)
{
	char next[PATH_MAX];

	if (at.file && (snprintf(next, sizeof(next), "%s.next", at.file) >= PATH_MAX ||
			       syscall(SYS_rename, next, at.file) < 0))
		syscall(SYS_unlink, at.file);
	if (at.when == STOP)
		syscall(SYS_kill, getpid(), SIGSTOP);
	while (at.when != STOP)
		syscall(SYS_kill, getpid(), SIGKILL);
}

static void path_of_fd(int fd, char path[static PATH_MAX])
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, PATH_MAX - 1);
	path[n > 0 ? n : 0] = '\0';
}

static void absolute(int dir, const char *name, char path[static PATH_MAX])
{
	char folder[PATH_MAX] = "";

	if (name[0] == '/')
		snprintf(path, PATH_MAX, "%s", name);
	else {
		if (dir == AT_FDCWD)
			(void)!getcwd(folder, sizeof(folder));
		else
			path_of_fd(dir, folder);
		if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
			path[0] = '\0';
	}
}

/* Returns true if this is the chosen call; `fd` is for calls without a name. Does not change
 * errno. */
static bool is_it(const char *op, int fd, const char *name)
{
	int saved = errno;
	char path[PATH_MAX];
	bool hit = false;

	if (!at.active || getpid() != at.pid || (at.file && !read_spec()) ||
		(strcmp(at.op, op) != 0 && strcmp(at.op, "any") != 0)) {
		errno = saved;
		return false;
	}
	if (!name)
		path_of_fd(fd, path);
	else
		absolute(fd, name, path);
	if (fnmatch(at.glob, path, 0) == 0 &&
		(!at.armed || syscall(SYS_access, at.armed, F_OK) == 0)) {
		if (at.trace >= 0) {
			char line[PATH_MAX + 32];
			int n = snprintf(line, sizeof(line), "%s %s\n", op, path);

			syscall(SYS_write, at.trace, line, n);
		}
		hit = atomic_fetch_add(&at.seen, 1) + 1 == at.number;
	}
	errno = saved;
	return hit;
}

/* Makes the call, and kills the program before or after the call if `hit` is true. */
#define AROUND(type, hit, call)                                                                    \
	do {                                                                                       \
		bool hit_ = (hit);                                                                 \
		type result_;                                                                      \
                                                                                                   \
		if (hit_ && at.when != AFTER)                                                      \
			die();                                                                     \
		result_ = (call);                                                                  \
		if (hit_ && at.when != STOP)                                                       \
			die();                                                                     \
		return result_;                                                                    \
	} while (0)

#define MODE_OF(flags)                                                                             \
	mode_t mode = 0;                                                                           \
	if ((flags) & (O_CREAT | O_TMPFILE)) {                                                     \
		va_list ap;                                                                        \
		va_start(ap, flags);                                                               \
		mode = va_arg(ap, mode_t);                                                         \
		va_end(ap);                                                                        \
	}

EXPORT int open(const char *path, int flags, ...)
{
	MODE_OF(flags)
	AROUND(int, flags &O_CREAT &&is_it("open", AT_FDCWD, path), REAL(open)(path, flags, mode));
}

EXPORT int open64(const char *path, int flags, ...)
{
	MODE_OF(flags)
	AROUND(int, flags &O_CREAT &&is_it("open", AT_FDCWD, path),
		REAL(open64)(path, flags, mode));
}

EXPORT int openat(int dir, const char *path, int flags, ...)
{
	MODE_OF(flags)
	AROUND(int, flags &O_CREAT &&is_it("open", dir, path),
		REAL(openat)(dir, path, flags, mode));
}

EXPORT int openat64(int dir, const char *path, int flags, ...)
{
	MODE_OF(flags)
	AROUND(int, flags &O_CREAT &&is_it("open", dir, path),
		REAL(openat64)(dir, path, flags, mode));
}

EXPORT int rename(const char *from, const char *to)
{
	AROUND(int, is_it("rename", AT_FDCWD, to), REAL(rename)(from, to));
}

EXPORT int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
	AROUND(int, is_it("rename", to_dir, to), REAL(renameat)(from_dir, from, to_dir, to));
}

EXPORT int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
	AROUND(int, is_it("rename", to_dir, to),
		REAL(renameat2)(from_dir, from, to_dir, to, flags));
}

/* linkat() gives an unnamed temporary file its name. */
EXPORT int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
	AROUND(int, is_it("rename", to_dir, to), REAL(linkat)(from_dir, from, to_dir, to, flags));
}

EXPORT int unlink(const char *path)
{
	AROUND(int, is_it("unlink", AT_FDCWD, path), REAL(unlink)(path));
}

EXPORT int unlinkat(int dir, const char *path, int flags)
{
	AROUND(int, is_it(flags & AT_REMOVEDIR ? "rmdir" : "unlink", dir, path),
		REAL(unlinkat)(dir, path, flags));
}

EXPORT int rmdir(const char *path)
{
	AROUND(int, is_it("rmdir", AT_FDCWD, path), REAL(rmdir)(path));
}

EXPORT int mkdir(const char *path, mode_t mode)
{
	AROUND(int, is_it("mkdir", AT_FDCWD, path), REAL(mkdir)(path, mode));
}

EXPORT int mkdirat(int dir, const char *path, mode_t mode)
{
	AROUND(int, is_it("mkdir", dir, path), REAL(mkdirat)(dir, path, mode));
}

EXPORT int fsync(int fd)
{
	AROUND(int, is_it("sync", fd, NULL), REAL(fsync)(fd));
}

EXPORT int fdatasync(int fd)
{
	AROUND(int, is_it("sync", fd, NULL), REAL(fdatasync)(fd));
}

EXPORT int syncfs(int fd)
{
	AROUND(int, is_it("sync", fd, NULL), REAL(syncfs)(fd));
}

EXPORT int flock(int fd, int operation)
{
	AROUND(int, operation &LOCK_EX &&is_it("lock", fd, NULL), REAL(flock)(fd, operation));
}

EXPORT int ftruncate(int fd, off_t size)
{
	AROUND(int, is_it("truncate", fd, NULL), REAL(ftruncate)(fd, size));
}

EXPORT int ftruncate64(int fd, off64_t size)
{
	AROUND(int, is_it("truncate", fd, NULL), REAL(ftruncate64)(fd, size));
}

EXPORT ssize_t write(int fd, const void *data, size_t len)
{
	bool hit = is_it("write", fd, NULL);

	if (hit && at.when == HALF)
		REAL(write)(fd, data, len / 2);
	AROUND(ssize_t, hit, REAL(write)(fd, data, len));
}

EXPORT ssize_t pwrite(int fd, const void *data, size_t len, off_t offset)
{
	bool hit = is_it("write", fd, NULL);

	if (hit && at.when == HALF)
		REAL(pwrite)(fd, data, len / 2, offset);
	AROUND(ssize_t, hit, REAL(pwrite)(fd, data, len, offset));
}

EXPORT ssize_t pwrite64(int fd, const void *data, size_t len, off64_t offset)
{
	bool hit = is_it("write", fd, NULL);

	if (hit && at.when == HALF)
		REAL(pwrite64)(fd, data, len / 2, offset);
	AROUND(ssize_t, hit, REAL(pwrite64)(fd, data, len, offset));
}

EXPORT ssize_t send(int fd, const void *data, size_t len, int flags)
{
	AROUND(ssize_t, is_it("send", fd, NULL), REAL(send)(fd, data, len, flags));
}

EXPORT ssize_t pread(int fd, void *data, size_t len, off_t offset)
{
	AROUND(ssize_t, is_it("pread", fd, NULL), REAL(pread)(fd, data, len, offset));
}

EXPORT ssize_t pread64(int fd, void *data, size_t len, off64_t offset)
{
	AROUND(ssize_t, is_it("pread", fd, NULL), REAL(pread64)(fd, data, len, offset));
}

/* Only calls that reap a child count. */
EXPORT int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
	int r = REAL(waitid)(type, id, info, options);

	if (r == 0 && info && info->si_pid && !(options & WNOWAIT) &&
		is_it("wait", AT_FDCWD, "/child"))
		die();
	return r;
}

EXPORT pid_t waitpid(pid_t pid, int *status, int options)
{
	pid_t found = REAL(waitpid)(pid, status, options);

	if (found > 0 && is_it("wait", AT_FDCWD, "/child"))
		die();
	return found;
}

/* With "after", the child exists and may or may not have executed its program already. */
EXPORT pid_t fork(void)
{
	bool hit = is_it("fork", AT_FDCWD, "/child");
	pid_t child;

	if (hit && at.when == BEFORE)
		die();
	child = REAL(fork)();
	if (hit && child > 0)
		die();
	return child;
}

/* The C library has no function that creates a child in a control group or in namespaces. */
EXPORT long syscall(long number, ...)
{
	long a[6];
	va_list ap;
	bool hit;
	long r;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (number == SYS_pidfd_send_signal)
		AROUND(long, is_it("signal", AT_FDCWD, "/process"),
			REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]));
	hit = (number == SYS_clone3 || number == SYS_clone) && is_it("fork", AT_FDCWD, "/child");
	if (hit && at.when == BEFORE)
		die();
	r = REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (hit && r > 0)
		die();
	return r;
}

EXPORT int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	char path[PATH_MAX];

	for (nfds_t i = 0; at.active && at.deaf && getpid() == at.pid && i < n; i++) {
		path_of_fd(fds[i].fd, path);
		while (strcmp(path, "anon_inode:inotify") == 0)
			pause();
	}
	return REAL(poll)(fds, n, timeout);
}
