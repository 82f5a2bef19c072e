/*
 * Tasks of a container that the machine's MPI launcher starts: what it starts is penstock itself (`penstock --mpi-task`), once
 * for each rank, which runs the rank in a container of its own with what the launcher gave it. The environment of the launcher,
 * which only its owner can read, tells them what to run.
 */
#ifndef RUN_STEP_MPI_H
#define RUN_STEP_MPI_H

#include "base/str.h"
#include "run/executor.h"
#include "workflow/model.h"

struct penstock_error;

/* A directory for what the ranks write into their roots, below `tmp`; the caller removes it. */
int step_mpi_box(char **out, const char *tmp, struct penstock_error *err);

/*
 * Makes of the task in a container one of the machine that is the launcher: `argv` and `env` (that a step of the machine has)
 * are completed here. `gpus` are those of all ranks.
 */
int step_mpi_wrap(struct task_spec *task, const struct workflow_run *what, const int *gpus,
	size_t n_gpus, struct strlist *argv, struct strlist *env, struct penstock_error *err);

#endif
