/*
 * Child processes, held by pidfd so that a signal never reaches another process that reused the
 * pid.
 *
 *	struct process p;
 *
 *	r = process_spawn(&p, &(struct process_spec){ .argv = argv, .envp = envp, .cwd = dir,
 *		.stdin_fd = -1, .stdout_fd = out, .stderr_fd = out, .new_session = true }, err);
 *	if (r < 0)
 *		return r;
 *	... poll p.pidfd ...
 *	process_wait(&p, -1, &status);
 *	process_release(&p);
 */
#ifndef BASE_PROCESS_PROCESS_H
#define BASE_PROCESS_PROCESS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct penstock_error;

struct process {
	pid_t pid;
	int pidfd; /* readable once the process has ended */
	bool reaped;
};
/* clang-format off */
#define PROCESS_INIT { 0, -1, false }
/* clang-format on */

/*
 * Prevents core dumps of this process, and prevents all users but root from reading its memory,
 * environment and descriptors. Spawned processes are not affected. Must be called before there are
 * threads.
 */
void process_protect_memory(void);

/*
 * Raises the soft limit of open files to the hard limit. Spawned processes get the original limit:
 * select() fails for descriptors above 1023. Must be called before there are threads.
 */
void process_raise_files(void);
/* Returns true if this process may open `n` more files. */
bool process_has_files(size_t n);

#define PROCESS_HANDED_FD 4

struct process_spec {
	const char *const *argv; /* argv[0] is a path, not searched in PATH */
	const char *file; /* the path to execute; NULL if it is argv[0] */
	/* the complete environment; if NULL, the child gets ours without the variables for which
	 * process_is_own_secret() is true */
	const char *const *envp;
	const char *cwd; /* NULL to keep ours */
	int stdin_fd; /* -1 for /dev/null; all three descriptors are borrowed */
	int stdout_fd; /* -1 for /dev/null */
	int stderr_fd; /* -1 for /dev/null */
	/* one more descriptor, which argv[0] gets as number PROCESS_HANDED_FD; borrowed; 0 to pass
	 * no descriptor; ignored if there is a body */
	int handed_fd;
	bool new_session; /* the child gets its own session and process group */
	bool die_with_parent; /* SIGKILL when the spawning thread ends */
	const int *cpus; /* CPUs to bind the child to; NULL to keep ours */
	size_t n_cpus;
	/* descriptors of the files that join control groups, "tasks" or cgroup.procs; NULL to keep
	 * ours */
	const int *cgroups;
	size_t n_cgroups;
	/*
	 * Descriptor of the directory of the last group in `cgroups`, if that group is of version
	 * 2: the child starts in the group if the kernel supports that, because joining a group
	 * takes long. NULL if the child has to join the last group, too.
	 */
	const int *born_in;
	/* CLONE_NEW* flags: the child is the first process in these namespaces. Requires a body:
	 * the C library does not know about such a child. */
	unsigned long namespaces;
	/*
	 * Runs in the child instead of argv, and returns the exit code. May make only
	 * async-signal-safe calls, and must not allocate memory. process_spawn() returns once
	 * `report_fd` is closed, or process_body_failed() was called with it.
	 */
	int (*body)(void *cookie, int report_fd, int body_fd);
	void *cookie;
	int body_fd; /* one more descriptor for the body; borrowed */
	/* Raises the error for a failed step of the body. */
	int (*explain)(void *cookie, int step, int errnum, struct penstock_error *err);
};

/*
 * Returns true for "PENSTOCK_SECRET_NAME=value", which holds a value of ${{ secrets.NAME }} or of
 * the embedded store. Programs that we start get the secrets that they need in another way, because
 * they may run untrusted code, such as build scripts of a requirement or hooks of a repository.
 */
bool process_is_own_secret(const char *pair);

/* Closes the descriptors from `first` on. Async-signal-safe: for the children of any fork(). */
void process_close_from(int first);

/* fork() for bodies. The C library's fork() takes locks (of the allocator, of streams); if a thread
 * of the parent held a lock when the body's process was created, that lock would never be
 * released. */
pid_t process_fork_in_body(void);

#define PROCESS_BODY_STEP 100 /* the first step number that a body may report */
void process_body_failed(int report_fd, int step, int errnum) __attribute__((noreturn));

/*
 * Starts the process. The child has only the descriptors that `spec` names. The signals of the
 * child are unblocked and have their default actions. A failure in the child before it runs argv[0]
 * (missing program, missing directory) is reported as this call's error; no child is left then.
 */
int process_spawn(
	struct process *process, const struct process_spec *spec, struct penstock_error *err);

/* Waits at most `ms` (-1: no limit, 0: only checks). Returns true if the process has ended;
 * `status` is then that of waitpid(), unless an earlier call has set it. */
bool process_wait(struct process *process, int ms, int *status);

/* Returns true if process_spawn() made this child and it has not been reaped, so it has an owner
 * and is not an adopted orphan. */
bool process_is_spawned(pid_t pid);
/* Returns the number of children for which process_is_spawned() is true. */
size_t process_count_spawned(void);

/* Signals only this process; does nothing if the process was reaped. */
void process_signal(const struct process *process, int signal);
/* Sends SIGTERM, after `ms` SIGKILL, and waits for the end; `status` is as for process_wait(). */
void process_end(struct process *process, int ms, int *status);
/* Closes the pidfd. The process itself is not affected. */
void process_release(struct process *process);

/* Data of /proc/PID/stat. */
struct process_info {
	pid_t pid;
	pid_t parent;
	pid_t group;
	pid_t session;
	char state; /* R, S, D, Z, … */
	bool exiting; /* SIGKILL is pending, or the kernel is ending the process (PF_EXITING) */
	/* clock ticks since boot; with the pid they identify a process until the next boot */
	uint64_t start_ticks;
};
/* Returns false if there is no such process. */
bool process_info(pid_t pid, struct process_info *info);

/* Returns true if the process has a handler for the signal (SigCgt). */
bool process_catches(pid_t pid, int signal);

/* Calls fn for each variable ("NAME=value") of the process's initial environment, until fn returns
 * false. Fails for processes of other users. */
int process_environment(pid_t pid, bool (*fn)(void *cookie, const char *pair), void *cookie,
	struct penstock_error *err);

/* Calls fn for each descendant of `root` that is not a zombie, parents before children; if fn
 * returns false the children of that process are skipped. Returns the number of calls. */
size_t process_descendants(
	pid_t root, bool (*fn)(void *cookie, const struct process_info *info), void *cookie);

/* Returns true if this process ignores the signal, such as SIGHUP under nohup. */
bool process_ignores(int signal);

/* Returns true if this process may run on more than one processor at a time. */
bool process_is_parallel(void);

/* Returns true if this process has children, including ended children. */
bool process_has_children(void);
/* Reaps ended children that process_spawn() did not make: orphans adopted by a subreaper. */
void process_reap_orphans(void);

/* Gets the kernel's boot id (36 characters and NUL), which identifies recorded pids of an earlier
 * boot. `out` is "" if the id cannot be read. */
#define PROCESS_BOOT_ID_SIZE 37
void process_boot_id(char out[static PROCESS_BOOT_ID_SIZE]);

#endif
