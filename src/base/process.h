/*
 * Child processes, held by pidfd so that a signal never reaches a stranger who got the number.
 *
 *	struct process p;
 *
 *	process_spawn(&p, &(struct process_spec){ .argv = argv, .envp = envp, .cwd = dir,
 *		.stdin_fd = -1, .stdout_fd = out, .stderr_fd = out, .new_session = true }, err);
 *	poll(p.pidfd) ...
 *	process_reap(&p, &status);
 *	process_release(&p);
 */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct penstock_error;

struct process {
	pid_t pid;
	int pidfd; /* readable once it ended */
	bool reaped;
};
/* clang-format off */
#define PROCESS_INIT { 0, -1, false }
/* clang-format on */

/*
 * No core of this process is written, and nobody but root reads its memory, environment or descriptors. What it
 * spawns is not touched. To be called before there are threads.
 */
void process_protect_memory(void);

#define PROCESS_HANDED_FD 4

struct process_spec {
	const char *const *argv; /* argv[0] is a path, not looked up in PATH */
	const char *const
		*envp;	 /* the complete environment; NULL: ours without process_is_own_secret() */
	const char *cwd; /* NULL: ours */
	int stdin_fd;	 /* -1: /dev/null; all borrowed */
	int stdout_fd;	 /* -1: /dev/null */
	int stderr_fd;	 /* -1: /dev/null */
	int handed_fd; /* one more that argv[0] gets, as number PROCESS_HANDED_FD; borrowed, 0: none, and none with a body */
	bool new_session;     /* a session and process group of its own */
	bool die_with_parent; /* SIGKILL when the spawning thread ends */
	const int *cpus;      /* to be bound to; NULL: as we are */
	size_t n_cpus;
	const int *
		cgroups; /* files of the control groups to join, "tasks" or cgroup.procs; NULL: ours */
	size_t n_cgroups;
	/* The directory of the last of them where that is of version 2: the child is born there where the kernel can, for
	 * joining takes it long. NULL: it is not. */
	const int *born_in;
	/*
	 * CLONE_NEW*: of the child, which is the first process in them. With these it must have a body: the C library
	 * does not know about such a child.
	 */
	unsigned long namespaces;
	/*
	 * Instead of argv: runs in the child, and returns its exit code. Only async-signal-safe calls, and no memory.
	 * process_spawn() returns once `report_fd` is closed, or process_body_failed() was called with it.
	 */
	int (*body)(void *cookie, int report_fd, int body_fd);
	void *cookie;
	int body_fd; /* one more descriptor for it; borrowed */
	/* The error that a failure of the body means. */
	int (*explain)(void *cookie, int step, int errnum, struct penstock_error *err);
};

/* "PENSTOCK_SECRET_NAME=value": of ${{ secrets.NAME }} and of the embedded store. Whatever we start has its own way to what
 * it needs of them, and may run anything, such as the build scripts of a requirement or the hooks of a repository. */
bool process_is_own_secret(const char *pair);

/*
 * fork() for bodies. That of the C library takes locks (of memory, of streams), which a thread of the parent may have had when the
 * body's process was made: nobody would ever give them back.
 */
pid_t process_fork_in_body(void);

#define PROCESS_BODY_STEP 100 /* the first of the steps that a body reports */
void process_body_failed(int report_fd, int step, int errnum) __attribute__((noreturn));

/*
 * Every other descriptor is closed in the child, its signals are unblocked and at their defaults.
 * What fails in the child before it runs argv[0] (missing program, missing directory) is this call's
 * error, and there is no child then.
 */
int process_spawn(
	struct process *process, const struct process_spec *spec, struct penstock_error *err);

/* Waits at most `ms` (-1: for ever; 0: not at all). True: it ended, and `status` is as of waitpid(). */
bool process_wait(struct process *process, int ms, int *status);

/* Whether it was made by process_spawn() here and has not been reaped: it is somebody's, not an orphan that
 * became our child. */
bool process_is_spawned(pid_t pid);
/* How many of those there are. */
size_t process_count_spawned(void);

/* To the process alone; nothing happens once it was reaped. */
void process_signal(const struct process *process, int signal);
/* Closes the pidfd. The process itself is not touched. */
void process_release(struct process *process);

/* What /proc/PID/stat and /proc/PID/status tell. */
struct process_info {
	pid_t pid;
	pid_t parent;
	pid_t group;
	pid_t session;
	char state;	      /* R, S, D, Z, … */
	bool exiting;	      /* the kernel has begun to end it (PF_EXITING) */
	uint64_t start_ticks; /* since boot: with the pid it names a process for ever */
};
/* False where there is no such process. */
bool process_info(pid_t pid, struct process_info *info);

/* Whether it has a handler for the signal (SigCgt). */
bool process_catches(pid_t pid, int signal);

/*
 * Calls fn for each variable ("NAME=value") that the process was started with, until it returns false. Of others'
 * processes that cannot be read.
 */
int process_environment(pid_t pid, bool (*fn)(void *cookie, const char *pair), void *cookie,
	struct penstock_error *err);

/* Calls fn for each descendant of `root` that is not a zombie, parents before children; false from fn leaves
 * out the children of that one. Returns how many there were. */
size_t process_descendants(
	pid_t root, bool (*fn)(void *cookie, const struct process_info *info), void *cookie);

/* Whether we may run on more than one processor at a time. */
bool process_is_parallel(void);

/* Whether we have any, ended ones too. */
bool process_has_children(void);
/* Reaps ended children that process_spawn() did not make: orphans that a subreaper was given. */
void process_reap_orphans(void);

/* The kernel's boot id (36 characters and NUL): tells whether a recorded pid is of this boot. */
#define PROCESS_BOOT_ID_SIZE 37
void process_boot_id(char out[static PROCESS_BOOT_ID_SIZE]);

#endif
