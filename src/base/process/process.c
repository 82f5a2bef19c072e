#include "base/process/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"

/* ---- limits of this process ---- */

/* Soft limits that this process changed for itself; its children get the original limits. Set
 * before there are threads. */
struct own_limit {
	struct rlimit original;
	bool changed;
};
static struct own_limit core_limit, files_limit;

static void limit_change(struct own_limit *own, int resource, bool raise)
{
	struct rlimit limit;

	if (own->changed || getrlimit(resource, &own->original) < 0)
		return;
	limit = (struct rlimit){raise ? own->original.rlim_max : 0, own->original.rlim_max};
	own->changed = setrlimit(resource, &limit) == 0;
}

static void limit_restore(const struct own_limit *own, int resource)
{
	if (own->changed)
		setrlimit(resource, &own->original);
}

void process_protect_memory(void)
{
	/* The limit alone is not enough: the kernel ignores the limit if it pipes core dumps to a
	 * program. */
	prctl(PR_SET_DUMPABLE, 0);
	limit_change(&core_limit, RLIMIT_CORE, false);
}

void process_raise_files(void)
{
	limit_change(&files_limit, RLIMIT_NOFILE, true);
}

bool process_has_files(size_t n)
{
	_cleanup_closedir_ DIR *dir = opendir("/proc/self/fd");
	struct rlimit limit;

	if (!dir || getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return errno != EMFILE;
	for (rlim_t used = 0; used + n <= limit.rlim_cur; used++) {
		if (!readdir(dir))
			return true;
	}
	return false;
}

/* ---- the list of spawned processes ---- */

/* A supervisor has few children at a time: its tasks and an occasional tool. */
static pthread_mutex_t spawned_lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t *spawned; /* under the lock; never freed */
static size_t n_spawned;

/* Reaps under the lock, so that the pid cannot be reused before it is removed from the list. */
static int spawned_reap(pid_t pid, int *status)
{
	LOCK_SCOPE(&spawned_lock);
	while (waitpid(pid, status, 0) < 0) {
		if (errno != EINTR)
			return -1;
	}
	for (size_t i = 0; i < n_spawned; i++) {
		if (spawned[i] == pid) {
			spawned[i] = spawned[--n_spawned];
			break;
		}
	}
	return 0;
}

bool process_is_spawned(pid_t pid)
{
	LOCK_SCOPE(&spawned_lock);
	for (size_t i = 0; i < n_spawned; i++) {
		if (spawned[i] == pid)
			return true;
	}
	return false;
}

size_t process_count_spawned(void)
{
	LOCK_SCOPE(&spawned_lock);
	return n_spawned;
}

/* ---- spawning ---- */

/* The report of a child that could not become argv[0]. */
struct failure {
	int errnum;
	int step; /* enum step */
};
enum step { STEP_SESSION, STEP_CGROUP, STEP_CWD, STEP_FDS, STEP_AFFINITY, STEP_EXEC };
#define REPORT_FD 3
#define EXTRA_FD  PROCESS_HANDED_FD
#define FREE_FD	  5 /* the first descriptor that is free for copies */
/* Descriptors from this number on stay open if close_range() fails, because Linux is older than 5.9
 * or a seccomp filter refuses the call. */
#define CLOSE_MAX 65536

/*
 * The C library reserves two signals and refuses to change them; our parent may have ignored these,
 * too, so the function uses the system call. All zeros mean the default action in every layout of
 * the kernel's struct.
 */
static void reset_signals(void)
{
	static const unsigned long defaults[8] = {0};
	sigset_t none;

	for (int s = 1; s < NSIG; s++) {
		if (s != SIGKILL && s != SIGSTOP)
			syscall(SYS_rt_sigaction, s, defaults, NULL,
				8 /* bytes of the kernel's signal set */);
	}
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

void process_close_from(int first)
{
	if (close_range((unsigned)first, ~0U, 0) == 0)
		return;
	for (int fd = first; fd < CLOSE_MAX; fd++)
		close(fd);
}

/* Moves the three standard descriptors to 0, 1 and 2 (through copies, so that none is overwritten),
 * the report to REPORT_FD and the extra descriptor to EXTRA_FD, and closes all other
 * descriptors. */
static int set_fds(const struct process_spec *spec, int report)
{
	int given[3] = {spec->stdin_fd, spec->stdout_fd, spec->stderr_fd};
	int copies[3];
	int extra = -1;

	report = fcntl(report, F_DUPFD, FREE_FD);
	if (spec->body || spec->handed_fd > 0)
		extra = fcntl(spec->body ? spec->body_fd : spec->handed_fd, F_DUPFD, FREE_FD);
	if (report < 0 || ((spec->body || spec->handed_fd > 0) && extra < 0))
		return -1;
	for (int i = 0; i < 3; i++) {
		int fd = given[i];

		if (fd < 0)
			fd = open("/dev/null", i ? O_WRONLY : O_RDONLY);
		copies[i] = fd < 0 ? -1 : fcntl(fd, F_DUPFD, FREE_FD);
		if (copies[i] < 0)
			return -1;
	}
	/* `report` must survive until argv[0] runs. */
	if (dup3(report, REPORT_FD, O_CLOEXEC) < 0)
		return -1;
	if (extra >= 0 && dup3(extra, EXTRA_FD, spec->body ? O_CLOEXEC : 0) < 0)
		return -1;
	for (int i = 0; i < 3; i++) {
		if (dup2(copies[i], i) < 0)
			return -1;
	}
	process_close_from(extra >= 0 ? FREE_FD : EXTRA_FD);
	return 0;
}

static int set_affinity(const struct process_spec *spec)
{
	cpu_set_t set;

	if (!spec->cpus)
		return 0;
	CPU_ZERO(&set);
	for (size_t i = 0; i < spec->n_cpus; i++) {
		if (spec->cpus[i] >= 0 && spec->cpus[i] < CPU_SETSIZE)
			CPU_SET((size_t)spec->cpus[i], &set);
	}
	return sched_setaffinity(0, sizeof(set), &set);
}

/* Returns true if the child has another parent, or if the report pipe has no reader: in another pid
 * namespace the parent is always 0. The pipe alone is not enough, because a child that another
 * thread forks has a copy of the reader for a moment. */
static bool parent_ended(int report, pid_t parent)
{
	struct pollfd p = {report, POLLOUT, 0};
	pid_t now = getppid();

	return (now && now != parent) || (poll(&p, 1, 0) == 1 && (p.revents & POLLERR));
}

/* Makes only async-signal-safe calls, because the parent may have other threads. Joins the first
 * `n_cgroups` groups. */
static void run_child(
	const struct process_spec *spec, size_t n_cgroups, const int report_ends[2], pid_t parent)
{
	struct failure failure = {0, STEP_SESSION};
	int report = report_ends[1];

	close(report_ends[0]);
	if (spec->die_with_parent) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (parent_ended(report, parent))
			_exit(127); /* the parent ended before the call above */
	}
	if (spec->new_session && setsid() < 0)
		goto fail;
	failure.step = STEP_CGROUP;
	for (size_t i = 0; i < n_cgroups; i++) {
		if (write(spec->cgroups[i], "0", 1) < 0)
			goto fail;
	}
	failure.step = STEP_CWD;
	if (spec->cwd && chdir(spec->cwd) < 0)
		goto fail;
	failure.step = STEP_AFFINITY;
	if (set_affinity(spec) < 0)
		goto fail;
	failure.step = STEP_FDS;
	if (set_fds(spec, report) < 0)
		goto fail;
	report = REPORT_FD;
	reset_signals();
	limit_restore(&core_limit, RLIMIT_CORE);
	limit_restore(&files_limit, RLIMIT_NOFILE);
	if (spec->body)
		_exit(spec->body(spec->cookie, report, EXTRA_FD));
	failure.step = STEP_EXEC;
	execve(spec->file ? spec->file : spec->argv[0], (char *const *)(uintptr_t)spec->argv,
		(char *const *)(uintptr_t)spec->envp);
fail:
	failure.errnum = errno;
	if (write(report, &failure, sizeof(failure)) < 0)
		_exit(126);
	_exit(127);
}

static int raise_failure(
	const struct process_spec *spec, const struct failure *failure, struct penstock_error *err)
{
	if (failure->step >= PROCESS_BODY_STEP)
		return spec->explain(spec->cookie, failure->step, failure->errnum, err);
	switch ((enum step)failure->step) {
	case STEP_CWD:
		return error_errno(err, failure->errnum, "cannot enter directory '%s'", spec->cwd);
	case STEP_EXEC:
		return error_errno(err, failure->errnum, "cannot run '%s'", spec->argv[0]);
	case STEP_CGROUP:
		return error_errno(err, failure->errnum, "cannot put '%s' into its control group",
			spec->argv[0]);
	case STEP_AFFINITY:
		return error_errno(
			err, failure->errnum, "cannot bind '%s' to its CPUs", spec->argv[0]);
	default:
		return error_errno(
			err, failure->errnum, "cannot set up the process for '%s'", spec->argv[0]);
	}
}

/* ThreadSanitizer must see a fork, or its locks stay locked in the child. */
#if defined(__SANITIZE_THREAD__)
#define FORK_WATCHED
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FORK_WATCHED
#endif
#endif

/* Forks into new namespaces, which the C library's fork() does not support. The child may make only
 * async-signal-safe calls, like run_child(). */
static pid_t fork_into(unsigned long namespaces)
{
#if defined(__s390__)
	return (pid_t)syscall(SYS_clone, NULL, namespaces | SIGCHLD, NULL, NULL, 0);
#else
	return (pid_t)syscall(SYS_clone, namespaces | SIGCHLD, NULL, NULL, NULL, 0);
#endif
}

pid_t process_fork_in_body(void)
{
	return fork_into(0);
}

/* Forks into the control group whose directory is `dir`. Returns -1 if the kernel does not support
 * such a fork (before Linux 5.7) or does not permit it. */
static pid_t fork_in_cgroup(unsigned long namespaces, int dir)
{
#if defined(SYS_clone3) && !defined(FORK_WATCHED)
	struct clone_args args = {
		.flags = namespaces | CLONE_INTO_CGROUP,
		.exit_signal = SIGCHLD,
		.cgroup = (uint64_t)dir,
	};

	return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
#else
	(void)namespaces;
	(void)dir;
	return -1;
#endif
}

/* Forks. The child is on the list before other threads can see the child. */
static pid_t fork_child(const struct process_spec *spec, const int report_ends[2])
{
	size_t to_join = spec->n_cgroups;
	pid_t self = getpid();
	sigset_t all;
	sigset_t before;
	pid_t *room;
	pid_t pid = -1;

	/* None of our signal handlers may run in the child. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_mutex_lock(&spawned_lock);
	/* Allocate first: a child without a place on the list would be lost. */
	room = array_grow(spawned, n_spawned, sizeof(*spawned));
	errno = ENOMEM;
	if (room) {
		spawned = room;
		if (spec->born_in)
			pid = fork_in_cgroup(spec->namespaces, *spec->born_in);
		if (pid >= 0)
			to_join--;
		else
			pid = spec->namespaces ? fork_into(spec->namespaces) : fork();
	}
	if (pid == 0)
		run_child(spec, to_join, report_ends, self);
	if (pid > 0)
		spawned[n_spawned++] = pid;
	pthread_mutex_unlock(&spawned_lock);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return pid;
}

void process_body_failed(int report_fd, int step, int errnum)
{
	const struct failure failure = {errnum, step};

	if (write(report_fd, &failure, sizeof(failure)) < 0)
		_exit(126);
	_exit(127);
}

bool process_is_own_secret(const char *pair)
{
	return str_starts(pair, "PENSTOCK_SECRET_");
}

/* Returns our own environment without our secrets, for other programs, or NULL if out of memory.
 * The strings are not copied. */
static const char **environment_without_secrets(void)
{
	const char **env;
	size_t n = 0;

	while (environ && environ[n])
		n++;
	env = calloc(n + 1, sizeof(*env));
	n = 0;
	for (char **pair = environ; env && pair && *pair; pair++) {
		if (!process_is_own_secret(*pair))
			env[n++] = *pair;
	}
	return env;
}

int process_spawn(
	struct process *process, const struct process_spec *spec, struct penstock_error *err)
{
	_cleanup_free_ const char **inherited = NULL;
	_cleanup_close_ int read_end = -1;
	struct process_spec complete = *spec;
	struct failure failure;
	struct process p = PROCESS_INIT;
	int ends[2];
	int saved;
	ssize_t n;

	if (!spec->envp && !spec->body) {
		inherited = environment_without_secrets();
		if (!inherited)
			return error_memory(err);
		complete.envp = inherited;
		spec = &complete;
	}
	if (pipe2(ends, O_CLOEXEC) < 0)
		return error_errno(err, errno, "cannot create a pipe");
	read_end = ends[0];
	p.pid = fork_child(spec, ends);
	saved = errno;
	close(ends[1]);
	if (p.pid < 0)
		return error_errno(err, saved, "cannot fork");
	/* Our own child cannot vanish before we wait for it, so the pid is safe here. */
	p.pidfd = (int)syscall(SYS_pidfd_open, p.pid, 0);
	if (p.pidfd < 0) {
		saved = errno;
		kill(p.pid, SIGKILL);
		spawned_reap(p.pid, NULL);
		return error_errno(err, saved, "cannot open a pidfd; use Linux 5.3 or later");
	}
	do {
		n = read(read_end, &failure, sizeof(failure));
	} while (n < 0 && errno == EINTR);
	if (n == (ssize_t)sizeof(failure)) {
		/* A child in namespaces may have started other processes. */
		if (spec->namespaces)
			kill(p.pid, SIGKILL);
		spawned_reap(p.pid, NULL);
		close(p.pidfd);
		return raise_failure(spec, &failure, err);
	}
	*process = p;
	return 0;
}

bool process_wait(struct process *process, int ms, int *status)
{
	struct pollfd fd = {process->pidfd, POLLIN, 0};
	int64_t until = clock_monotonic_ms() + ms;

	if (process->reaped)
		return true;
	for (;;) {
		int64_t left = ms < 0 ? -1 : until - clock_monotonic_ms();
		int n = poll(&fd, 1, ms < 0 ? -1 : left > 0 ? (int)left : 0);

		if (n > 0)
			break;
		if (n == 0 || errno != EINTR)
			return false;
	}
	if (spawned_reap(process->pid, status) < 0)
		return false;
	process->reaped = true;
	return true;
}

void process_signal(const struct process *process, int signal)
{
	if (!process->reaped && process->pidfd >= 0)
		syscall(SYS_pidfd_send_signal, process->pidfd, signal, NULL, 0);
}

void process_end(struct process *process, int ms, int *status)
{
	process_signal(process, SIGTERM);
	if (process_wait(process, ms, status))
		return;
	process_signal(process, SIGKILL);
	process_wait(process, -1, status);
}

void process_release(struct process *process)
{
	if (process->pidfd >= 0)
		close(process->pidfd);
	*process = (struct process)PROCESS_INIT;
}

/* ---- information ---- */

bool process_info(pid_t pid, struct process_info *info)
{
	char path[32];
	char text[1024];
	_cleanup_close_ int fd = -1;
	unsigned long flags;
	unsigned long pending;
	unsigned long long start;
	const char *after_name;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return false;
	text[n] = '\0';
	after_name = strrchr(text, ')'); /* the name in parentheses may contain anything */
	/* proc(5): state ppid pgrp session tty tpgid flags, 12 fields, starttime, 8 fields, the
	 * pending signals. */
	if (!after_name ||
		sscanf(after_name + 1,
			" %c %d %d %d %*d %*d %lu %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
			"%*s %*s %llu %*s %*s %*s %*s %*s %*s %*s %*s %lu",
			&info->state, &info->parent, &info->group, &info->session, &flags, &start,
			&pending) != 7)
		return false;
	info->pid = pid;
	info->exiting = (flags & 0x4) || (pending >> (SIGKILL - 1) & 1);
	info->start_ticks = start;
	return true;
}

bool process_ignores(int signal)
{
	struct sigaction action;

	return sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

bool process_catches(pid_t pid, int signal)
{
	char path[32];
	char line[256];
	_cleanup_fclose_ FILE *f = NULL;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (str_starts(line, "SigCgt:"))
			return strtoull(line + 7, NULL, 16) >> (signal - 1) & 1;
	}
	return false;
}

int process_environment(pid_t pid, bool (*fn)(void *cookie, const char *pair), void *cookie,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_EXEC_WORDS);
	char path[32];
	int r;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	r = fs_read(path, &text, err);
	if (r < 0)
		return r;
	for (size_t at = 0; at < text.len; at += strlen(text.data + at) + 1) {
		if (!fn(cookie, text.data + at))
			break;
	}
	return 0;
}

/* Reads all processes of the machine; a snapshot with the races of /proc. */
static struct process_info *read_all(size_t *n)
{
	_cleanup_closedir_ DIR *dir = opendir("/proc");
	struct process_info *all = NULL, *grown;

	*n = 0;
	for (struct dirent *e; dir && (e = readdir(dir));) {
		uint64_t pid;

		if (!str_to_u64(e->d_name, 1, INT32_MAX, &pid))
			continue;
		grown = array_grow(all, *n, sizeof(*all));
		if (!grown)
			break;
		all = grown;
		if (process_info((pid_t)pid, &all[*n]))
			(*n)++;
	}
	return all;
}

struct walk {
	const struct process_info *all;
	size_t n;
	bool (*fn)(void *cookie, const struct process_info *info);
	void *cookie;
	size_t count;
};

static void visit_children(struct walk *walk, pid_t parent, int depth)
{
	/* A snapshot in which pids were reused could contain a cycle. */
	for (size_t i = 0; i < walk->n && depth < 256; i++) {
		const struct process_info *info = &walk->all[i];

		if (info->parent != parent || info->pid == parent)
			continue;
		if (info->state != 'Z') {
			walk->count++;
			if (!walk->fn(walk->cookie, info))
				continue;
		}
		visit_children(walk, info->pid, depth + 1);
	}
}

size_t process_descendants(
	pid_t root, bool (*fn)(void *cookie, const struct process_info *info), void *cookie)
{
	struct walk walk = {.fn = fn, .cookie = cookie};
	_cleanup_free_ struct process_info *all = read_all(&walk.n);

	walk.all = all;
	visit_children(&walk, root, 0);
	return walk.count;
}

bool process_has_children(void)
{
	siginfo_t info;

	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

void process_reap_orphans(void)
{
	_cleanup_free_ struct process_info *all = NULL;
	siginfo_t info = {.si_pid = 0};
	size_t n;

	/* Usually no child has ended. */
	if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
		return;
	all = read_all(&n);
	for (size_t i = 0; i < n; i++) {
		if (all[i].parent == getpid() && all[i].state == 'Z' &&
			!process_is_spawned(all[i].pid))
			waitpid(all[i].pid, NULL, WNOHANG);
	}
}

bool process_is_parallel(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	return sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 1;
}

void process_boot_id(char out[static PROCESS_BOOT_ID_SIZE])
{
	_cleanup_close_ int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, PROCESS_BOOT_ID_SIZE - 1);

	out[n > 0 ? n : 0] = '\0';
}
