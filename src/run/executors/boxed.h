/*
 * Tasks whose processes live below an init of ours, the first in a process namespace of its own: its end, however it comes,
 * is the end of all of them and of their mounts, and it dies with us. What containers and isolated steps have in common.
 */
#ifndef RUN_EXECUTORS_BOXED_H
#define RUN_EXECUTORS_BOXED_H

#include <stdbool.h>

#include "base/process.h"
#include "run/executor.h"

#define BOXED_PREFIX "container-" /* of the directories of tasks, for who sweeps */

struct boxed_task {
	struct task task; /* first: the interface's view */
	struct process process;
	char *box;     /* a directory of its own; removed in the end */
	int status_fd; /* gets the task's status */
	int status;    /* of the init */
	bool own_network;
	bool own_ipc;
	bool own_user;
};

/* NULL: no memory. */
struct boxed_task *boxed_new(void);
/* Makes the directory below `tmp`. */
int boxed_make_box(struct boxed_task *t, const char *tmp, struct penstock_error *err);
/*
 * Starts the init: `init` says its namespaces, its body, which writes the task's status to its descriptor in the end, and who explains
 * it; the rest is as `spec` has it.
 */
int boxed_spawn(struct boxed_task *t, const struct task_spec *spec, const struct process_spec *init,
	struct penstock_error *err);
/*
 * Who among the descendants of the init has this number in its namespace: what others are told, for its environment and
 * namespaces are the task's. The init where it has ended already.
 */
pid_t boxed_find(pid_t init, pid_t inner);

/* Of the interface. */
bool boxed_ended(struct task *task, struct task_end *end);
void boxed_signal(struct task *task, int signal);
void boxed_kill(struct task *task);
int boxed_enter(const struct task *task, struct strlist *namespaces);
void boxed_free(struct task *task);

#endif
