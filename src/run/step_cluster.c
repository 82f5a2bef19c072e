#include "run/step_cluster.h"

#include <stdio.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "run/output.h"
#include "run/run_internal.h"
#include "run/slurm/memory.h"
#include "run/slurm/slurm.h"
#include "run/step_run.h"
#include "base/banned.h"

int step_cluster(struct task_cluster *out, const struct run *run, const struct workflow_run *what,
	const char *name, unsigned long serial, char **dir, struct penstock_error *err)
{
	const struct workflow_step_resources *res = &what->resources;
	const struct slurm_allocation *slurm = run->options->slurm;

	if (asprintf(dir, "%s/step-%lu", run->layout.tmp, serial) < 0) {
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
		.inputs = slurm->job.node_dir && run->workflow->n_inputs ? run->layout.input : NULL,
		.node_dir = slurm->job.node_dir,
		.run_id = run->id,
		.attempt = run->attempt,
		.dir = *dir,
		.notice = slurm->notice,
	};
	return 0;
}

void step_cluster_judge(const struct run *run, const struct workflow_run *what,
	const struct output_task *task, struct step_end *end)
{
	const struct workflow_step_resources *res = &what->resources;
	struct slurm_memory memory;

	output_drain(run->output);
	if (!output_task_memory(task, &memory))
		return;
	end->oom = true;
	end->resources = res;
	end->memory_peak = memory.used;
	end->memory_limit =
		memory.limit ? memory.limit
			     : (uint64_t)(res->mem_per_cpu.value * res->cpus_per_task.value) * MIB;
	if (memory.limit) /* that is of the step, and all of it was ended */
		end->rank = -1;
}
