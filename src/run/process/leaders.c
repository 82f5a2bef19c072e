/* Selects the processes of a task that get a notice. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/buf.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/process/process.h"
#include "run/process/leaders.h"

/* Returns true for shells and programs that only start another program: their children are notified
 * instead. */
static bool is_wrapper(pid_t pid)
{
	static const char *const names[] = {"sh", "bash", "dash", "ash", "busybox", "zsh", "ksh",
		"ksh93", "mksh", "fish", "tcsh", "csh", "time", "unshare", "nice", "env", "sudo",
		"su", "tini", "dumb-init", "catatonit"};
	char link[32];
	char path[4096];
	const char *name;
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return false;
	path[n] = '\0';
	name = path_last(path);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t len = strlen(names[i]);

		/* "bash (deleted)" also counts. */
		if (strncmp(name, names[i], len) == 0 && (!name[len] || name[len] == ' '))
			return true;
	}
	return false;
}

/* ---- processes that wait for a signal instead of handling it ---- */

/* Returns the hexadecimal number after `field` in a file of /proc with lines "Field: 0123", or
 * 0. */
static uint64_t hex_of(const char *path, const char *field)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(64 * KIB);
	const char *at;

	if (fs_read(path, &text, NULL) < 0)
		return 0;
	at = strstr(buf_str(&text), field);
	return at ? strtoull(at + strlen(field), NULL, 16) : 0;
}

/* Returns true if the thread waits in sigwait() or the like for this signal. */
static bool is_in_sigwait(pid_t pid, const char *thread, uint64_t bit)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(4 * KIB);
	_cleanup_close_ int memory = -1;
	uint64_t set = 0;
	uintptr_t address;
	char path[96];
	char *end;

	snprintf(path, sizeof(path), "/proc/%d/task/%.20s/syscall", (int)pid, thread);
	if (fs_read(path, &text, NULL) < 0 ||
		strtol(buf_str(&text), &end, 10) != SYS_rt_sigtimedwait || *end != ' ')
		return false;
	address = (uintptr_t)strtoull(end, NULL, 16);
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	memory = open(path, O_RDONLY | O_CLOEXEC);
	return memory >= 0 &&
	       pread(memory, &set, sizeof(set), (off_t)address) == (ssize_t)sizeof(set) &&
	       set & bit;
}

/* Returns true if one of the process's descriptors is a signalfd() for this signal. */
static bool has_signalfd(pid_t pid, uint64_t bit)
{
	_cleanup_closedir_ DIR *dir = NULL;
	char path[96];

	snprintf(path, sizeof(path), "/proc/%d/fdinfo", (int)pid);
	dir = opendir(path);
	for (struct dirent *e; dir && (e = readdir(dir));) {
		snprintf(path, sizeof(path), "/proc/%d/fdinfo/%.20s", (int)pid, e->d_name);
		if (*e->d_name != '.' && hex_of(path, "sigmask:") & bit)
			return true;
	}
	return false;
}

/*
 * Returns true if the process takes the signal by sigwait() or signalfd(). A blocked signal is not
 * enough: a process that blocks the signal for a moment dies from it afterwards. So every thread
 * must either block the signal or wait for it.
 */
static bool waits_for(pid_t pid, int signal)
{
	const uint64_t bit = UINT64_C(1) << (signal - 1);
	_cleanup_closedir_ DIR *dir = NULL;
	bool waits = false;
	size_t n = 0;
	char path[96];

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	for (struct dirent *e; dir && (e = readdir(dir));) {
		if (*e->d_name == '.')
			continue;
		n++;
		snprintf(path, sizeof(path), "/proc/%d/task/%.20s/status", (int)pid, e->d_name);
		if (hex_of(path, "SigIgn:") & bit)
			return false;
		if (is_in_sigwait(pid, e->d_name, bit))
			waits = true;
		else if (!(hex_of(path, "SigBlk:") & bit))
			return false;
	}
	return n && (waits || has_signalfd(pid, bit));
}

/* ---- signals ---- */

struct notifying {
	int signal;
	unsigned notified;
};

/* Signals the process if it takes the signal. A pidfd detects if the pid was reused. Returns true
 * if the children of the process are to be signalled instead. */
static bool notify(void *cookie, const struct process_info *info)
{
	_cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, info->pid, 0);
	struct notifying *t = cookie;
	struct process_info now;

	if (pidfd < 0 || !process_info(info->pid, &now) || now.start_ticks != info->start_ticks)
		return false;
	if (process_catches(info->pid, t->signal) || waits_for(info->pid, t->signal)) {
		t->notified += syscall(SYS_pidfd_send_signal, pidfd, t->signal, NULL, 0) == 0;
		return false;
	}
	return is_wrapper(info->pid);
}

/* Returns true if the process is a descendant of this one. The leader of a container is reaped
 * inside the container, so its pid may already belong to another process. */
static bool is_ours(struct process_info info)
{
	for (int depth = 0; depth < 256; depth++) {
		if (info.parent == getpid())
			return true;
		if (info.parent <= 1 || !process_info(info.parent, &info))
			return false;
	}
	return false;
}

unsigned leaders_signal(pid_t leader, int signal)
{
	struct notifying t = {.signal = signal};
	struct process_info info;

	if (leader > 0 && process_info(leader, &info) && is_ours(info) && notify(&t, &info))
		process_descendants(leader, notify, &t);
	return t.notified;
}
