/*
 * What an execution of a step may use, held by a control group where there can be one (run/cgroups.h), within that
 * of the whole run: parallel iterations and launches together get no more memory than the run has claimed.
 *
 *	step_group_make(&group, run, what, cpus, n_cpus, err);
 *	... group.cgroup is joined by its tasks
 *	step_group_judge(&group, run, name, failed, &end);	once they have ended
 *	cgroup_end(group.cgroup);
 *	run_group_end(run);					after the last of the run
 */
#ifndef RUN_STEP_GROUP_H
#define RUN_STEP_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cgroup;
struct penstock_error;
struct run;
struct step_end;
struct workflow_run;
struct workflow_step_resources;

struct step_group {
	struct cgroup *cgroup; /* NULL: none can be made here */
	uint64_t memory_limit; /* bytes; 0: none */
	uint64_t max_processes;
	const struct workflow_step_resources *resources; /* that it was made for; borrowed */
	bool watch_memory;				 /* no control group holds the limit */
};

int step_group_make(struct step_group *group, struct run *run, const struct workflow_run *what,
	const int *cpus, size_t n_cpus, struct penstock_error *err);
/* What the kernel did, and how much it was: into `end`, and said where nothing failed of it. */
void step_group_judge(const struct step_group *group, struct run *run, const char *name,
	bool failed, struct step_end *end);

/* The group around all; nobody is left in it. */
void run_group_end(struct run *run);

#endif
