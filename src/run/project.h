/*
 * The working directory of a run: a copy of its context, with links to inputs and to the artifacts in
 * its output, and the Python packages that its steps ask for.
 */
#ifndef RUN_PROJECT_H
#define RUN_PROJECT_H

#include "run/run_internal.h"

/* After the inputs are there. What an earlier attempt has laid out stays as it is. */
int project_lay_out(struct run *run, struct penstock_error *err);
/* The packages; their installation goes to the run's log. */
int project_install(struct run *run, struct penstock_error *err);
/* Moves artifacts that steps made anew in the working directory into the output; before the flush. */
void project_collect(struct run *run);

#endif
