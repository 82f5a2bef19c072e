#include "sync/kernel/writers.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utlist.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/limits.h"

#define PF_EXITING_FLAG 0x4 /* a flag in /proc/PID/stat; no header defines it, but it is stable */

/* struct pidfd_info of Linux 6.15, defined here because Debian 12 has older headers. */
struct pidfd_info_v1 {
	uint64_t mask;
	uint64_t cgroupid;
	uint32_t pid, tgid, ppid, ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid;
	int32_t exit_code;
	uint32_t spare[4];
};
#define PIDFD_GET_INFO_V1    _IOWR(0xFF, 11, struct pidfd_info_v1)
#define PIDFD_INFO_EXIT_MASK (UINT64_C(1) << 3)

struct proc {
	struct proc *next;
	pid_t pid;
	int pidfd;
	unsigned refs;
};

static atomic_bool no_pidfd_info;

void proc_forget_pidfd_info(bool forget)
{
	atomic_store(&no_pidfd_info, forget);
}

struct proc *proc_ref(struct proc *p)
{
	p->refs++;
	return p;
}

void proc_unref(struct procs *procs, struct proc *p)
{
	if (--p->refs)
		return;
	LL_DELETE(procs->all, p);
	procs->n--;
	close(p->pidfd);
	free(p);
}

void procs_release(struct procs *procs)
{
	while (procs->all) {
		procs->all->refs = 1;
		proc_unref(procs, procs->all);
	}
}

/* Returns the process with a reference for the caller; NULL if the process is gone, if there are
 * too many processes, or if out of memory. */
static struct proc *proc_of(struct procs *procs, pid_t pid)
{
	struct pollfd gone = {.events = POLLIN};
	struct proc *p;

	for (p = procs->all; p; p = p->next) {
		gone.fd = p->pidfd;
		/* The pid of a process that is gone may have been reused. */
		if (p->pid == pid && poll(&gone, 1, 0) == 0)
			return proc_ref(p);
	}
	if (procs->n >= LIMIT_SYNC_PROCS)
		return NULL;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->pid = pid;
	p->refs = 1;
	p->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (p->pidfd < 0) {
		free(p);
		return NULL;
	}
	LL_PREPEND(procs->all, p);
	procs->n++;
	return p;
}

static bool read_file(const char *path, char *out, size_t size)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);

	if (n < 0)
		return false;
	out[n] = '\0';
	return true;
}

/* Returns field `n` (1 is the pid) of a /proc/PID/stat, or NULL if there are fewer fields. */
static const char *stat_field(const char *stat, unsigned n)
{
	const char *at = strrchr(stat, ')'); /* the name may contain anything */

	for (unsigned i = 2; at && i < n; i++) {
		at = strchr(at, ' ');
		if (at)
			at++;
	}
	return at;
}

static enum proc_fate fate_of_code(int code)
{
	return WTERMSIG(code) ? PROC_KILLED : PROC_EXITED;
}

/* Returns the fate of a process that has ended; PROC_UNKNOWN if its pidfd does not show the exit
 * code. */
static enum proc_fate fate_of_gone(const struct proc *p)
{
	struct pidfd_info_v1 info = {.mask = PIDFD_INFO_EXIT_MASK};

	if (atomic_load(&no_pidfd_info) || ioctl(p->pidfd, PIDFD_GET_INFO_V1, &info) < 0 ||
		!(info.mask & PIDFD_INFO_EXIT_MASK))
		return PROC_UNKNOWN;
	return fate_of_code(info.exit_code);
}

enum proc_fate proc_fate(const struct proc *p)
{
	struct pollfd gone = {.fd = p->pidfd, .events = POLLIN};
	char path[64], text[1024];
	const char *flags, *code;
	int zero = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)p->pid);
	if (!read_file(path, text, sizeof(text)))
		return fate_of_gone(p);
	/* If the process was reaped meanwhile, the pid may belong to another process: the pidfd
	 * refuses a signal to a process that is gone, while a zombie still accepts signals. */
	if (poll(&gone, 1, 0) > 0 && syscall(SYS_pidfd_send_signal, p->pidfd, zero, NULL, 0) < 0)
		return fate_of_gone(p);
	flags = stat_field(text, 9);
	code = stat_field(text, 52);
	if (!flags || !(strtoul(flags, NULL, 10) & PF_EXITING_FLAG))
		return PROC_ALIVE;
	return code ? fate_of_code((int)strtol(code, NULL, 10)) : PROC_UNKNOWN;
}

void pid_list_release(struct pid_list *list)
{
	free(list->pids);
	*list = (struct pid_list){0};
}

void pid_list_add(void *arg, pid_t pid)
{
	struct pid_list *list = arg;
	pid_t *pids = array_grow(list->pids, list->n, sizeof(*pids));

	if (!pids)
		return; /* out of memory: the writer of the close counts as not seen */
	list->pids = pids;
	pids[list->n++] = pid;
}

/* Adds the children of all threads of `pid`. */
static void add_children(struct pid_list *list, pid_t pid)
{
	char path[64];
	_cleanup_closedir_ DIR *tasks = NULL;
	struct dirent *d;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	while (tasks && (d = readdir(tasks))) {
		_cleanup_fclose_ FILE *f = NULL;
		char name[128];
		int child;

		if (d->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "/proc/%d/task/%.20s/children", (int)pid, d->d_name);
		f = fopen(name, "re");
		while (f && fscanf(f, "%d", &child) == 1)
			pid_list_add(list, child);
	}
}

void pid_list_add_descendants(struct pid_list *list, pid_t root)
{
	size_t at = list->n;

	add_children(list, root);
	for (; at < list->n; at++)
		add_children(list, list->pids[at]);
}

static const struct wanted *find_wanted(
	const struct wanted *wanted, size_t n, const struct stat *st)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (wanted[mid].ino < st->st_ino)
			low = mid + 1;
		else
			high = mid;
	}
	for (; low < n && wanted[low].ino == st->st_ino; low++)
		if (wanted[low].dev == st->st_dev)
			return &wanted[low];
	return NULL;
}

/* Returns the open flags of descriptor `name` of the process, or -1 if it was closed meanwhile. */
static long open_flags(pid_t pid, const char *name)
{
	char path[96], text[512];
	const char *at;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%.20s", (int)pid, name);
	if (!read_file(path, text, sizeof(text)))
		return -1;
	at = strstr(text, "flags:");
	return at ? strtol(at + strlen("flags:"), NULL, 8) : -1;
}

void writers_find(struct procs *procs, const struct pid_list *pids, const struct wanted *wanted,
	size_t n_wanted, writers_fn fn, void *cookie)
{
	for (size_t i = 0; i < pids->n; i++) {
		_cleanup_closedir_ DIR *fds = NULL;
		struct dirent *d;
		char path[64];

		snprintf(path, sizeof(path), "/proc/%d/fd", (int)pids->pids[i]);
		fds = opendir(path);
		while (fds && (d = readdir(fds))) {
			const struct wanted *hit;
			struct proc *p;
			struct stat st;
			long flags;

			if (d->d_name[0] == '.' || fstatat(dirfd(fds), d->d_name, &st, 0) < 0)
				continue;
			hit = find_wanted(wanted, n_wanted, &st);
			flags = hit ? open_flags(pids->pids[i], d->d_name) : -1;
			if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
				continue;
			p = proc_of(procs, pids->pids[i]);
			if (!p)
				continue;
			fn(cookie, hit->tag, p, (flags & O_APPEND) != 0);
			proc_unref(procs, p);
		}
	}
}
