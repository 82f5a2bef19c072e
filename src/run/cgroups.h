/*
 * A control group for each execution of a step, on machines with version 2, version 1, or both beside each
 * other (hybrid), as far as we may make them: what its processes use together is limited and counted by the
 * kernel, and whatever they leave behind is found.
 *
 *	cgroup_make(&run, NULL, run_id, &whole, err);	around those of all executions of a run; may be NULL
 *	cgroup_make(&group, run, run_id, &wanted, err);	NULL: none can be made here
 *	... the child writes "0" to cgroup_fds(group, &n) before it runs its program
 *	cgroup_read(group, &found);			peak, kills for memory, CPU time
 *	cgroup_end(group);				kills who is left, removes it
 *
 * Groups are made below our own where that may be done (version 1, or the root of version 2), else below the
 * nearest ancestor that hands its controllers on and that we may write to, such as the slice that systemd
 * delegates to a user. An ancestor beyond a limit of ours is never used: that would be leaving it.
 * No thread may use a group at the same time as another.
 */
#ifndef RUN_CGROUPS_H
#define RUN_CGROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct cgroup;
struct penstock_error;

struct cgroup_wanted {
	uint64_t memory; /* bytes, swap included; 0: not limited */
	const int *cpus; /* the only ones it may run on; NULL: all */
	size_t n_cpus;
	uint64_t pids; /* processes and threads; 0: not limited */
	bool of_run; /* nobody is in it but the groups of executions; for the sum of their memory */
};

/* *out is NULL where none can be made. An error is one that hides no such machine: no memory. */
int cgroup_make(struct cgroup **out, const struct cgroup *run, const char *run_id,
	const struct cgroup_wanted *wanted, struct penstock_error *err);
/* Descriptors of the files that a child of one thread joins by. A NULL group has none. */
const int *cgroup_fds(const struct cgroup *group, size_t *n);
/* The directory of the last of them, which a child can be born in; NULL: none can. */
const int *cgroup_born_fd(const struct cgroup *group);
/* Whether the kernel holds this limit. */
bool cgroup_holds_memory(const struct cgroup *group);
bool cgroup_holds_cpus(const struct cgroup *group);
bool cgroup_holds_pids(const struct cgroup *group);

struct cgroup_found {
	uint64_t memory_peak; /* bytes; 0: not known */
	uint64_t oom_kills;
	uint64_t pids_refused; /* that no process was made because of the limit */
	int64_t cpu_us;	       /* of all, ended ones too; -1: not known */
};
void cgroup_read(const struct cgroup *group, struct cgroup_found *out);
/* SIGKILL for everything in it. */
void cgroup_kill(const struct cgroup *group);
/* Kills, waits until nobody is left, removes and frees it. NULL is fine. */
void cgroup_end(struct cgroup *group);

/* Appends its directories, one per line: what cgroup_end_recorded() takes when their owner is gone. */
int cgroup_record(const struct cgroup *group, struct buf *out);
/* Ends what is in the group at `dir`, if it is one of ours, and removes it. Returns how many processes there
 * were. */
int cgroup_end_recorded(const char *dir);

/* Appends where groups are made here and what they can limit, a line for each hierarchy: "DIR memory cpus pids". */
int cgroup_place(struct buf *out);

/* For tests: another place of the hierarchies, and another membership, than those of this machine. */
void cgroup_set_root(const char *mount, const char *membership);

#endif
