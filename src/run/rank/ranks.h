/*
 * Variables that distinguish the tasks of a step: those of torch.distributed, and each task's GPUs.
 * Variables of the workflow override them.
 */
#ifndef RUN_RANK_RANKS_H
#define RUN_RANK_RANKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

struct ranks {
	size_t n; /* tasks */
	int master_port; /* if there are several tasks; 0 before it is found */
	const int *gpus; /* of the step; NULL if this machine has none */
	size_t n_gpus; /* total */
	const int *ports; /* of the run */
	size_t n_ports;
};

/* Adds the variables of the task with this rank, "K=V"; with `launcher`, those of the process that
 * starts all tasks. Returns -1 if out of memory. */
int ranks_environment(const struct ranks *ranks, size_t rank, struct strlist *env);
/* The same with placeholders that the node fills in (run/cluster/remote.h). */
int ranks_cluster_environment(const struct ranks *ranks, struct strlist *env);
int ranks_launcher_environment(const struct ranks *ranks, struct strlist *env);

/* Shell code that gives a task its rank and GPUs if an MPI launcher started it; $0 is the step's
 * shell and $1 its command. */
extern const char ranks_mpi_wrapper[];

#endif
