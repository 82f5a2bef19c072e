#include "records/supervisor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/banned.h"

enum { FIND_MS = 3000, FIND_POLL_MS = 10 };

static char *lock_path(const char *home, const char *id)
{
	char *path;

	return asprintf(&path, "%s/runs/%s/lock", home, id) < 0 ? NULL : path;
}

bool supervisor_lives(const char *home, const char *id)
{
	_cleanup_free_ char *path = lock_path(home, id);
	_cleanup_close_ int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	return fd >= 0 && fs_lock_held(fd);
}

static pid_t read_pid(int fd)
{
	char text[32];
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	uint64_t pid;

	if (n <= 0)
		return 0;
	text[n] = '\0';
	for (ssize_t i = 0; i < n; i++) {
		if (text[i] == '\n')
			text[i] = '\0';
	}
	return str_to_u64(text, 1, INT32_MAX, &pid) ? (pid_t)pid : 0;
}

/* Whether the process has this very file open: a stranger with the same number has not. */
static bool has_open(pid_t pid, const struct stat *file)
{
	char path[64];
	_cleanup_closedir_ DIR *dir = NULL;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	for (struct dirent *e; dir && (e = readdir(dir));) {
		struct stat st;

		if (fstatat(dirfd(dir), e->d_name, &st, 0) == 0 && st.st_dev == file->st_dev &&
			st.st_ino == file->st_ino)
			return true;
	}
	return false;
}

static bool try_find(int fd, const struct stat *file, struct process *out)
{
	pid_t pid = read_pid(fd);
	int pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;

	if (pidfd < 0)
		return false;
	/* The pidfd first: what is seen of the number after it is seen of the process behind it. */
	if (!has_open(pid, file)) {
		close(pidfd);
		return false;
	}
	*out = (struct process){.pid = pid, .pidfd = pidfd};
	return true;
}

int supervisor_find(
	const char *home, const char *id, struct process *out, struct penstock_error *err)
{
	_cleanup_free_ char *path = lock_path(home, id);
	_cleanup_close_ int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	int64_t deadline = clock_monotonic_ms() + FIND_MS;
	struct stat st;

	if (!path)
		return error_memory(err);
	if (fd < 0)
		return errno == ENOENT ? 0 : error_errno(err, errno, "cannot open %s", path);
	if (fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot read %s", path);
	/* Between taking the lock and writing its number there is an instant. */
	while (fs_lock_held(fd)) {
		if (try_find(fd, &st, out))
			return 1;
		if (clock_monotonic_ms() > deadline)
			return error_set(err, PENSTOCK_E_TIMEOUT,
				"run %s is live, but its process is none that is seen from here; "
				"is it in another container, or on another machine?",
				id);
		clock_sleep_ms(FIND_POLL_MS);
	}
	return 0;
}

static int refuse(int fd, const char *id, struct penstock_error *err)
{
	pid_t owner = read_pid(fd);
	char name[32] = "unknown";

	if (owner > 0)
		snprintf(name, sizeof(name), "%d", (int)owner);
	return error_set(err, PENSTOCK_E_EXISTS,
		"run %s is live already (process %s); wait for it, or end it with 'penstock stop "
		"%s'",
		id, name, id);
}

/* Whether the path still leads to the file: 'penstock rm' may have removed it while we waited for it. */
static bool is_at(const char *path, int fd)
{
	struct stat a;
	struct stat b;

	return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

int supervisor_begin(const char *path, const char *id, int *lock_fd, struct penstock_error *err)
{
	char text[32];

	for (;;) {
		_cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		int r = fd < 0 ? -1 : fs_lock(fd);

		if (r < 0)
			return error_errno(err, errno, "cannot lock %s", path);
		if (r > 0)
			return refuse(fd, id, err);
		if (!is_at(path, fd))
			continue;
		snprintf(text, sizeof(text), "%d\n", (int)getpid());
		if (ftruncate(fd, 0) < 0 || fs_pwrite_all(fd, text, strlen(text), 0) < 0)
			return error_errno(err, errno, "cannot write %s", path);
		*lock_fd = take_fd(fd);
		return 0;
	}
}
