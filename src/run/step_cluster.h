/* The tasks of a step that the nodes of a cluster run. */
#ifndef RUN_STEP_CLUSTER_H
#define RUN_STEP_CLUSTER_H

#include "run/executor.h"
#include "workflow/model.h"

struct penstock_error;
struct run;

/* What the executor for clusters needs. `*dir` is borrowed by it; free() it once the task was started. */
int step_cluster(struct task_cluster *out, const struct run *run, const struct workflow_run *what,
	const char *name, unsigned long serial, char **dir, struct penstock_error *err);

#endif
