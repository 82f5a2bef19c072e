/*
 * The working directory of a run: a copy of its context, with links to inputs and to the artifacts
 * in its output, and the Python packages for its steps.
 */
#ifndef RUN_WORKDIR_PROJECT_H
#define RUN_WORKDIR_PROJECT_H

#include <stdatomic.h>

#include "run/attempt/attempt.h"
#include "run/workdir/venv.h"

/* File below the run's state: exists once the context is copied, and holds its Git commit as JSON;
 * empty if there is no commit. */
#define PROJECT_COMMIT "work"

/* Directory of `python.determined` below $STORAGE_PATH, first in PYTHONPATH. */
#define PROJECT_DETERMINED "determined"

struct code_store;

/* Lays out the working directory, after the inputs are staged. Files that an earlier attempt laid
 * out stay, unless they have changed in the context. `store` is NULL if the code is not published.
 * `cancel` ends the call, if set. */
int project_lay_out(const struct attempt *attempt, const struct code_store *store,
	const atomic_int *cancel, struct penstock_error *err);
/* Installs the Python packages, and the file of `python.determined`; pip prints to the run's log.
 * `venv` stays empty if there are no packages. */
int project_install(const struct attempt *attempt, const atomic_int *cancel, struct venv *venv,
	struct penstock_error *err);
/* Moves artifacts that steps created in the working directory into the output. Call it before the
 * flush. */
void project_collect(const struct attempt *attempt);

#endif
