/*
 * Tasks whose processes are below our init, the first process of its own pid namespace: the end of
 * the init, for any reason, ends all these processes and their mounts, and the init dies with
 * penstock. Shared by containers and isolated steps.
 */
#ifndef RUN_TASK_BOXED_H
#define RUN_TASK_BOXED_H

#include <stdbool.h>

#include "base/process/process.h"
#include "run/task/executor.h"

#define BOXED_PREFIX "container-" /* prefix of the directories of tasks, for cleanup */

struct boxed_task {
	struct task task; /* must be the first member */
	struct process process;
	char *box; /* a private directory; removed at the end */
	int status_fd; /* receives the status of the task, and before it the socket for keys */
	/* listener in the task's own network; NULL if the task needs none */
	struct key_listener *keys;
	int status; /* exit status of the init */
	bool own_network;
	bool own_ipc;
	bool own_user;
};

/* Members of the executor interface except for `name` and `start`; `notify`, `left` and `use` are
 * NULL. */
#define BOXED_EXECUTOR                                                                             \
	.ended = boxed_ended, .signal = boxed_signal, .kill = boxed_kill, .enter = boxed_enter,    \
	.free = boxed_free

/* Returns NULL if out of memory. */
struct boxed_task *boxed_new(void);
/* Starts the init. `init` has the namespaces, and the functions `body` and `explain`; `body`
 * finally writes the task's status to the descriptor `body_fd`. `spec` has the rest. */
int boxed_spawn(struct boxed_task *t, const struct task_spec *spec, const struct process_spec *init,
	struct penstock_error *err);
/* Returns zeroed memory that the init shares with this process; NULL if out of memory. munmap()
 * it. */
void *boxed_shared(size_t size);
/*
 * Returns the descendant of the init that has the pid `inner` in its namespace, for programs that
 * need the environment and the namespaces of the task. Returns the init if that process has already
 * ended.
 */
pid_t boxed_find(pid_t init, pid_t inner);

bool boxed_ended(struct task *task, struct task_end *end);
void boxed_signal(struct task *task, int signal);
void boxed_kill(struct task *task);
int boxed_enter(const struct task *task, struct strlist *namespaces);
void boxed_free(struct task *task);

#endif
