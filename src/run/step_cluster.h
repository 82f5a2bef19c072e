/* The tasks of a step that the nodes of a cluster run. */
#ifndef RUN_STEP_CLUSTER_H
#define RUN_STEP_CLUSTER_H

#include "run/executor.h"
#include "workflow/model.h"

struct output_task;
struct penstock_error;
struct run;
struct step_end;

/* What the executor for clusters needs. `*dir` is borrowed by it; free() it once the task was started. */
int step_cluster(struct task_cluster *out, const struct run *run, const struct workflow_run *what,
	const char *name, unsigned long serial, char **dir, struct penstock_error *err);

/* Whether it failed for want of memory, as far as Slurm has said among what its tasks print. */
void step_cluster_judge(const struct run *run, const struct workflow_run *what,
	const struct output_task *task, struct step_end *end);

#endif
