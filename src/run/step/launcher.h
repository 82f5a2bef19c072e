/* The machine's MPI launcher: search, and the command line that starts a step's tasks. */
#ifndef RUN_STEP_LAUNCHER_H
#define RUN_STEP_LAUNCHER_H

#include <stdbool.h>

#include "base/str.h"
#include "run/task/executor.h"
#include "workflow/model.h"

struct penstock_error;

/* Returns true if a launcher starts the step's tasks. */
bool launcher_wanted(const struct workflow_run *step);

/* Adds the launcher, which is searched for in `path`, and its options, without the command. */
int launcher_words(const struct workflow_run *step, const char *path, struct strlist *argv,
	struct penstock_error *err);
/* Adds the whole command line; `path` is the step's PATH. Fails with PENSTOCK_E_NOT_FOUND if there
 * is no launcher. */
int launcher_command(const struct workflow_run *step, const char *path, struct strlist *argv,
	struct penstock_error *err);

/* ---- containers started by a launcher ---- */

/*
 * The launcher starts penstock itself (`penstock --mpi-task`) once for each rank. That process runs
 * the rank in a container with the launcher's variables. The command is passed in the launcher's
 * environment, which only its owner can read.
 */

/* Turns the task in a container into a task of the machine, which runs the launcher; completes
 * `argv` and `env` (the environment of a step without a container). `gpus` are the GPUs of all
 * ranks. */
int step_mpi_wrap(struct task_spec *task, const struct workflow_run *what, const int *gpus,
	size_t n_gpus, struct strlist *argv, struct strlist *env, struct penstock_error *err);

/* ---- command lines without a launcher ---- */

struct host_command {
	const char *argv[10]; /* NULL-terminated */
	char uid[40], gid[40];
};

/* Writes the shell and its command, with the identity that the step asks for. The result borrows
 * from the workflow and from itself. */
void host_command(struct host_command *out, const struct workflow_run *what);
/* Writes only the words before a command that set the identity; there may be none. */
void host_command_mapping(struct host_command *out, const struct workflow_run *what);

#endif
