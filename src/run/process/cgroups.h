/*
 * A control group for each execution of a step, if we may create it, on machines with version 2,
 * version 1, or both (hybrid). The kernel limits and counts the total use of the group's processes,
 * and the group shows the processes that a step leaves.
 *
 *	cgroup_make(&run, NULL, run_id, &whole, err);	// the group of a run, which contains the
 *							// groups of its executions; may be NULL
 *	cgroup_make(&group, run, run_id, &wanted, err);	// NULL if no group can be made here
 *	... // the child writes "0" to cgroup_fds(group, &n) before it runs its program
 *	cgroup_read(group, &found);			// peak, OOM kills, CPU time
 *	cgroup_end(group);				// kills remaining processes, removes it
 *
 * Groups are made below our own group if that is possible (version 1, or the root of version 2),
 * else below the nearest ancestor that we can write to and that delegates memory, such as the slice
 * that systemd delegates to a user, else below our own group, without limits. An ancestor above one
 * of our limits of memory or CPU time is never used, because that would escape the limit. A group
 * must not be used by two threads at the same time.
 */
#ifndef RUN_PROCESS_CGROUPS_H
#define RUN_PROCESS_CGROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"

struct cgroup;
struct penstock_error;

struct cgroup_wanted {
	uint64_t memory; /* bytes, swap included; 0 if there is no limit */
	const int *cpus; /* the CPUs that the processes may use; NULL if all */
	size_t n_cpus;
	uint64_t pids; /* processes and threads; 0 if there is no limit */
	const dev_t *closed; /* character devices that the processes must not open */
	size_t n_closed;
	bool of_run; /* contains only the groups of executions; for the sum of their memory */
};

/* Makes a group, inside `run` if `run` is not NULL. Sets *out to NULL if no group can be made. The
 * only error is out of memory. */
int cgroup_make(struct cgroup **out, const struct cgroup *run, const char *run_id,
	const struct cgroup_wanted *wanted, struct penstock_error *err);
/* Returns descriptors of the files that a child with one thread writes to join the group. A NULL
 * group has none. */
const int *cgroup_fds(const struct cgroup *group, size_t *n);
/* Returns a pointer to the descriptor of the group's directory of version 2, in which a child can
 * be started; NULL if the group has no such directory. */
const int *cgroup_born_fd(const struct cgroup *group);
/* Return true if the kernel enforces the limit that the function names. */
bool cgroup_holds_memory(const struct cgroup *group);
bool cgroup_holds_cpus(const struct cgroup *group);
bool cgroup_holds_pids(const struct cgroup *group);
bool cgroup_holds_devices(const struct cgroup *group);

struct cgroup_found {
	uint64_t memory_peak; /* bytes; 0 if unknown */
	uint64_t oom_kills;
	uint64_t pids_refused; /* number of forks that failed because of the limit */
	int64_t cpu_us; /* CPU time of all processes, including ended ones; -1 if unknown */
};
void cgroup_read(const struct cgroup *group, struct cgroup_found *out);
/* Returns the bytes in use now, without file pages that are not in active use; 0 if unknown. */
uint64_t cgroup_memory(const struct cgroup *group);
/* Sends SIGKILL to all processes of the group. */
void cgroup_kill(const struct cgroup *group);
/* Kills all processes, waits for their end (at most 5 s per directory), and removes and frees the
 * group. NULL is allowed. */
void cgroup_end(struct cgroup *group);

/* Appends the group's directories, one per line, for cgroup_end_recorded() when the owner is
 * gone. */
int cgroup_record(const struct cgroup *group, struct buf *out);
/* Kills the processes in the group at `dir`, if penstock made the group, and removes it. Returns
 * the number of processes. */
int cgroup_end_recorded(const char *dir);

/* Appends a line for each hierarchy, "DIR memory cpus pids", with the limits that groups in DIR can
 * have. */
int cgroup_place(struct buf *out);

/* Returns true if control groups on this machine can forbid devices. */
bool cgroup_can_hold_devices(void);

/* For tests: replaces the mount point of the hierarchies, and the content of /proc/self/cgroup,
 * which is read if `membership` is NULL. Borrows both strings. */
void cgroup_set_root(const char *mount, const char *membership);

#endif
