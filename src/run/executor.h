/*
 * Running a step's tasks, behind one interface for processes, containers and clusters.
 *
 *	struct task *task = NULL;
 *
 *	executor->start(&task, &(struct task_spec){ .argv = argv, .envp = envp, ... }, err);
 *	... poll task->event_fd; executor->ended(task, &end) says whether and how it ended
 *	executor->signal(task, SIGTERM);   the leader only
 *	executor->kill(task);              everything of it
 *	executor->free(task);              after it ended
 */
#ifndef RUN_EXECUTOR_H
#define RUN_EXECUTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct penstock_error;

struct task_spec {
	const char *const *argv; /* NULL-terminated; argv[0] is a path */
	const char *const *envp; /* NULL-terminated; the complete environment */
	const char *cwd;
	int stdout_fd;	 /* borrowed */
	int stderr_fd;	 /* borrowed */
	const int *cpus; /* to be bound to; NULL: all */
	size_t n_cpus;
	const int *cgroups; /* cgroup.procs of the step's control groups, to be joined; borrowed */
	size_t n_cgroups;
};

struct task_end {
	int code;   /* exit status; meaningless when signal is set */
	int signal; /* that ended it, 0: it exited */
	bool oom;   /* the kernel ended it for memory */
};

struct task {
	pid_t pid;
	int event_fd; /* readable once it ended */
};

struct executor {
	const char *name;
	int (*start)(struct task **out, const struct task_spec *spec, struct penstock_error *err);
	/* False while it runs. */
	bool (*ended)(struct task *task, struct task_end *end);
	void (*signal)(struct task *task, int signal);
	void (*kill)(struct task *task);
	void (*free)(struct task *task);
};

extern const struct executor executor_process;

#endif
