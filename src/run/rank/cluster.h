/* Tasks of a step on the nodes of a cluster. */
#ifndef RUN_RANK_CLUSTER_H
#define RUN_RANK_CLUSTER_H

#include "run/task/executor.h"
#include "workflow/model.h"

struct attempt;
struct penstock_error;
struct slurm_allocation;
struct slurm_memory;
struct step_end;

/* Fills in what the executor for clusters needs. The executor borrows `*dir`; free() it once the
 * task has started. */
int step_cluster(struct task_cluster *out, const struct attempt *attempt,
	const struct slurm_allocation *slurm, const struct workflow_run *what, const char *name,
	unsigned long serial, char **dir, struct penstock_error *err);

/* Marks the end as out of memory if Slurm's messages, as far as `memory` was read, say so. */
void step_cluster_explain(
	const struct slurm_memory *memory, const struct workflow_run *what, struct step_end *end);

#endif
