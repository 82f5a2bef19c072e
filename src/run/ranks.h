/*
 * What tells the tasks of a step from each other: the variables of torch.distributed, and each one's GPUs. They
 * go below the variables of the workflow, which may say otherwise.
 */
#ifndef RUN_RANKS_H
#define RUN_RANKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

struct ranks {
	size_t n;	  /* tasks */
	int master_port;  /* of several; 0: not found yet */
	const int *gpus;  /* those of the step; NULL: this machine has none */
	size_t n_gpus;	  /* in all */
	const int *ports; /* of the run */
	size_t n_ports;
};

/* The variables of the task with this rank, "K=V"; with `launcher` of the process that starts all of them.
 * -1: no memory. */
int ranks_environment(const struct ranks *ranks, size_t rank, struct strlist *env);
/* Where another node fills in what only it knows (executors/remote.h). */
int ranks_cluster_environment(const struct ranks *ranks, struct strlist *env);
int ranks_launcher_environment(const struct ranks *ranks, struct strlist *env);

/* The shell's words by which a task that an MPI launcher started gets its rank and GPUs; it is given the
 * step's shell as $0 and the command as $1. */
extern const char ranks_mpi_wrapper[];

#endif
