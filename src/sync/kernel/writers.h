/*
 * The processes that have a file open for writing, and how they ended. The kernel reports the close
 * of a killed writer like any other close; these functions distinguish the two.
 *
 * A process is looked up while it has the file open (writers_find()), and is then identified by its
 * pidfd. At the close, a living process has closed the file itself (a true close). If the process
 * is exiting, its exit code shows if a signal ended it. From kernel 6.15 on the pidfd has the exit
 * code even after the parent has reaped the process; on older kernels the exit code is then
 * unknown.
 */
#ifndef SYNC_KERNEL_WRITERS_H
#define SYNC_KERNEL_WRITERS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum proc_fate {
	PROC_ALIVE,
	PROC_EXITED, /* exited by itself, with any code */
	PROC_KILLED, /* killed by a signal */
	PROC_UNKNOWN, /* gone, and its exit code is unknown */
};

struct proc; /* one process, with a reference count */

struct procs {
	struct proc *all;
	size_t n;
};
void procs_release(struct procs *procs);
struct proc *proc_ref(struct proc *p);
void proc_unref(struct procs *procs, struct proc *p);
enum proc_fate proc_fate(const struct proc *p);
/* Simulates old kernels, for tests. */
void proc_forget_pidfd_info(bool forget);

/* A file whose writers are searched for. */
struct wanted {
	dev_t dev;
	ino_t ino;
	void *tag;
};
/* Reports that `p` has the file with that `tag` open for writing, with O_APPEND if `append`. Call
 * proc_ref() to keep `p`. */
typedef void (*writers_fn)(void *cookie, void *tag, struct proc *p, bool append);

struct pid_list {
	pid_t *pids;
	size_t n;
};
void pid_list_release(struct pid_list *list);
void pid_list_add(void *arg, pid_t pid); /* `arg` is the list; for sync_pids_fn */
/* Adds all descendants of `root`, which itself is not added. */
void pid_list_add_descendants(struct pid_list *list, pid_t root);

/* Looks through the open files of `pids` for `wanted` (sorted by ino). */
void writers_find(struct procs *procs, const struct pid_list *pids, const struct wanted *wanted,
	size_t n_wanted, writers_fn fn, void *cookie);

#endif
