/*
 * Variables that distinguish the tasks of a step: the variables of torch.distributed, and each
 * task's GPUs. Variables of the workflow override these variables.
 */
#ifndef RUN_STEP_RANKS_H
#define RUN_STEP_RANKS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"
#include "run/task/executor.h"
#include "workflow/model.h"

struct attempt;
struct penstock_error;
struct slurm_allocation;
struct slurm_memory;
struct step_end;

struct ranks {
	size_t n; /* tasks */
	int master_port; /* used only if there are several tasks; 0 before a port is found */
	const int *gpus; /* GPUs of the step; NULL if this machine has none, or in a container */
	size_t n_gpus; /* total */
	/* The step can open no other GPUs, so its libraries count its GPUs from 0. */
	bool only_gpus;
	const int *ports; /* ports of the run */
	size_t n_ports;
};

/* Adds the variables of the task with this rank, "K=V"; ranks_launcher_environment() adds the
 * variables of the process that starts all tasks. Returns -1 if out of memory. */
int ranks_environment(const struct ranks *ranks, size_t rank, struct strlist *env);
/* Like ranks_environment(), with placeholders that the node fills in (run/cluster/remote.h). */
int ranks_cluster_environment(const struct ranks *ranks, struct strlist *env);
int ranks_launcher_environment(const struct ranks *ranks, struct strlist *env);

/* Shell code that gives a task its rank and GPUs if an MPI launcher started it; $0 is the step's
 * shell and $1 its command. */
extern const char ranks_mpi_wrapper[];

/* Finds `n` different free TCP ports of this machine, outside the range from which the kernel takes
 * ports for connections if there are enough. */
int free_ports(int *ports, size_t n, struct penstock_error *err);

/* Fills in what the executor for clusters needs. The executor borrows `*dir`; free() it once the
 * task has started. */
int step_cluster(struct task_cluster *out, const struct attempt *attempt,
	const struct slurm_allocation *slurm, const struct workflow_run *what, const char *name,
	unsigned long serial, char **dir, struct penstock_error *err);

/* Marks the end as out of memory if slurm_memory_read() has found one of Slurm's messages. */
void step_cluster_explain(
	const struct slurm_memory *memory, const struct workflow_run *what, struct step_end *end);

#endif
