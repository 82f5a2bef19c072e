#include "run/rank/cluster.h"

#include <stdio.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "run/attempt/attempt.h"
#include "run/cluster/memory.h"
#include "run/cluster/slurm.h"
#include "run/step/run.h"
#include "base/banned.h"

int step_cluster(struct task_cluster *out, const struct attempt *attempt,
	const struct slurm_allocation *slurm, const struct workflow_run *what, const char *name,
	unsigned long serial, char **dir, struct penstock_error *err)
{
	const struct workflow_step_resources *res = &what->resources;

	if (asprintf(dir, "%s/step-%lu", attempt->layout.tmp, serial) < 0) {
		*dir = NULL;
		return error_memory(err);
	}
	*out = (struct task_cluster){
		.n = (size_t)res->tasks.value,
		.n_nodes = (size_t)slurm->n_nodes,
		.cpus = res->cpus_per_task.value,
		.mem_per_cpu = res->mem_per_cpu.value,
		.gpus = res->gpus_per_task.value,
		.no_binding = what->disable_cpu_binding.value,
		.mpi = what->mpi.value,
		.name = name,
		.inputs = slurm->job.node_dir && attempt->workflow->n_inputs ? attempt->layout.input
									     : NULL,
		.node_dir = slurm->job.node_dir,
		.run_id = attempt->id,
		.attempt = attempt->number,
		.dir = *dir,
		.notice = slurm->notice,
	};
	return 0;
}

void step_cluster_explain(
	const struct slurm_memory *memory, const struct workflow_run *what, struct step_end *end)
{
	const struct workflow_step_resources *res = &what->resources;

	if (!memory->over)
		return;
	end->oom = true;
	end->resources = res;
	end->memory_peak = memory->used;
	end->memory_limit =
		memory->limit ? memory->limit
			      : (uint64_t)(res->mem_per_cpu.value * res->cpus_per_task.value) * MIB;
	if (memory->limit) /* the limit of the step, which was killed as a whole */
		end->rank = -1;
}
