#include "records/supervisor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "records/layout.h"

enum { FIND_MS = 3000, FIND_POLL_MS = 10, CHILD_MS = 10000 };

bool supervisor_lives(const char *home, const char *id)
{
	_cleanup_free_ char *path = run_path(home, id, RUN_FILE_LOCK);
	_cleanup_close_ int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	return fd < 0 ? !path || errno != ENOENT : fs_lock_held(fd);
}

/* The holder of the lock, as recorded in its file. */
struct holder {
	pid_t pid; /* 0 if nothing is recorded yet */
	uint64_t start_ticks;
	char host[65];
};

/* Reads the lock file: "PID\nSTART_TICKS\nHOST\n", or only its first line. */
static struct holder read_holder(int fd)
{
	struct holder holder = {0};
	char text[160];
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	char *rest = text;
	uint64_t pid;

	text[n > 0 ? n : 0] = '\0';
	if (str_to_u64(strsep(&rest, "\n"), 1, INT32_MAX, &pid))
		holder.pid = (pid_t)pid;
	if (rest && !str_to_u64(strsep(&rest, "\n"), 0, UINT64_MAX, &holder.start_ticks))
		holder.start_ticks = 0;
	if (rest)
		snprintf(holder.host, sizeof(holder.host), "%.64s", strsep(&rest, "\n"));
	return holder;
}

static int write_holder(int fd)
{
	struct process_info self = {0};
	struct utsname system;
	char text[160];

	process_info(getpid(), &self);
	uname(&system);
	snprintf(text, sizeof(text), "%d\n%llu\n%.64s\n", (int)getpid(),
		(unsigned long long)self.start_ticks, system.nodename);
	return ftruncate(fd, 0) < 0 ? -1 : fs_pwrite_all(fd, text, strlen(text), 0);
}

/*
 * Returns true if the process has this file open. A process that has reused the pid did not open
 * the file. A supervisor hides its descriptors and its memory from all users except root; if they
 * are hidden, the start time is compared.
 */
static bool is_holder(const struct holder *holder, const struct stat *file)
{
	struct process_info info;
	char path[64];
	_cleanup_closedir_ DIR *dir = NULL;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)holder->pid);
	dir = opendir(path);
	if (!dir)
		return holder->start_ticks && process_info(holder->pid, &info) &&
		       info.start_ticks == holder->start_ticks;
	for (struct dirent *e; (e = readdir(dir));) {
		struct stat st;

		if (fstatat(dirfd(dir), e->d_name, &st, 0) == 0 && st.st_dev == file->st_dev &&
			st.st_ino == file->st_ino)
			return true;
	}
	return false;
}

static bool try_find(int fd, const struct stat *file, struct process *out)
{
	struct holder holder = read_holder(fd);
	int pidfd = holder.pid > 0 ? (int)syscall(SYS_pidfd_open, holder.pid, 0) : -1;

	if (pidfd < 0)
		return false;
	/* Open the pidfd first: later checks of the pid then refer to the same process. */
	if (!is_holder(&holder, file)) {
		close(pidfd);
		return false;
	}
	*out = (struct process){.pid = holder.pid, .pidfd = pidfd};
	return true;
}

int supervisor_find(
	const char *home, const char *id, struct process *out, struct penstock_error *err)
{
	_cleanup_free_ char *path = run_path(home, id, RUN_FILE_LOCK);
	_cleanup_close_ int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	int64_t deadline = clock_monotonic_ms() + FIND_MS;
	struct stat st;

	if (!path)
		return error_memory(err);
	if (fd < 0)
		return errno == ENOENT ? 0 : error_errno(err, errno, "cannot open '%s'", path);
	if (fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot read '%s'", path);
	/* The supervisor writes its pid a short time after it has taken the lock. */
	while (fs_lock_held(fd)) {
		if (try_find(fd, &st, out))
			return 1;
		if (clock_monotonic_ms() > deadline)
			return error_set(err, PENSTOCK_E_TIMEOUT,
				"cannot find the process of run '%s': the run is live, but the "
				"process is not visible here; look in other containers and on "
				"other machines",
				id);
		clock_sleep_ms(FIND_POLL_MS);
	}
	return 0;
}

/* Returns true if the holder of the lock is dying: the lock of a killed process is held until the
 * kernel has closed the files of the process, and those of a child that was just forked and has not
 * executed its program. */
static bool holder_is_dying(int fd)
{
	const struct holder holder = read_holder(fd);
	struct process_info info;
	struct utsname here;

	/* Processes of other machines cannot be checked here. */
	if (holder.host[0] && uname(&here) == 0 && strncmp(holder.host, here.nodename, 64) != 0)
		return false;
	if (holder.pid <= 0)
		return false;
	if (process_info(holder.pid, &info))
		return info.exiting || info.state == 'Z' ||
		       (holder.start_ticks && holder.start_ticks != info.start_ticks);
	return kill(holder.pid, 0) < 0 && errno == ESRCH;
}

int supervisor_begin(const char *path, const char *id, int *lock_fd, struct penstock_error *err)
{
	int64_t deadline = clock_monotonic_ms() + CHILD_MS;
	bool alive = false;

	for (;;) {
		_cleanup_close_ int fd = open(
			path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
		int r = fd < 0 ? -1 : fs_lock(fd);

		if (r < 0)
			return error_errno(err, errno, "cannot lock '%s'", path);
		bool dying = r > 0 && holder_is_dying(fd);

		/* Check twice, because for a moment a SIGKILL is neither pending nor visible as an
		 * exit. */
		if (r > 0 && (dying || !alive) && clock_monotonic_ms() < deadline) {
			alive = !dying;
			clock_sleep_ms(FIND_POLL_MS);
			continue;
		}
		if (r > 0) {
			const struct holder holder = read_holder(fd);
			char since[CLOCK_RFC3339_SIZE] = "";
			char name[128] = "unknown process";
			struct stat st;

			/* The file is written once, when the lock is taken, so its mtime is the
			 * time of the lock. */
			if (fstat(fd, &st) == 0)
				clock_format_rfc3339(
					st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec, since);
			if (holder.pid > 0)
				snprintf(name, sizeof(name), "process %d%s%s", (int)holder.pid,
					holder.host[0] ? " on " : "", holder.host);
			return error_set(err, PENSTOCK_E_EXISTS,
				"cannot lock run '%s': it is already running (%s%s%s); wait for it, or "
				"end it with 'penstock stop %s'",
				id, name, *since ? ", since " : "", since, id);
		}
		/* 'penstock rm' may have removed the file while we waited. */
		if (!fs_is_named(fd, path))
			continue;
		if (write_holder(fd) < 0)
			return error_errno(err, errno, "cannot write '%s'", path);
		*lock_fd = take_fd(fd);
		return 0;
	}
}
