/*
 * Resource limits of an execution of a step, enforced by a control group if one can be made
 * (run/process/cgroups.h), inside the control group of the whole run: parallel iterations and
 * launches together get no more memory than the run has claimed.
 *
 *	step_group_make(&group, &run_group, what, wanted, err);
 *	... its tasks join group.cgroup
 *	step_group_explain(&group, &run_group, name, failed, &end);	// once they have ended
 *	cgroup_end(group.cgroup);
 *	run_group_end(&run_group);	// after the last execution of the run
 */
#ifndef RUN_STEP_GROUP_H
#define RUN_STEP_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "run/process/cgroups.h"

struct attempt;
struct penstock_error;
struct step_end;
struct workflow_run;
struct workflow_step_resources;

/* The control group around all steps of a run; made at the first step. */
struct run_group {
	const struct attempt *attempt; /* borrowed */
	bool made;
	struct cgroup *cgroup; /* NULL before the first step, and if none can be made */
	uint64_t memory_limit;
	bool said_no_limits; /* each of these two messages is shown once */
	bool said_no_processes;
};

struct step_group {
	struct cgroup *cgroup; /* NULL if no control group can be created here */
	uint64_t memory_limit; /* bytes; 0 if unlimited */
	uint64_t max_processes;
	const struct workflow_step_resources *resources; /* resources of the step; borrowed */
	bool watch_memory; /* no control group enforces the limit */
};

/* Makes the group of an execution. `wanted` has the CPUs and the closed devices; the limits come
 * from `what`. */
int step_group_make(struct step_group *group, struct run_group *run,
	const struct workflow_run *what, struct cgroup_wanted wanted, struct penstock_error *err);
/* Adds kills by the kernel, the limit and the peak of memory to `end`. If the execution has not
 * failed, the kills are only reported. Also reports if the limit of processes was reached. */
void step_group_explain(const struct step_group *group, struct run_group *run, const char *name,
	bool failed, struct step_end *end);

/* Ends the group around all steps and the processes that are left in it. */
void run_group_end(struct run_group *run);

#endif
