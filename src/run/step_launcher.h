/* The machine's MPI launcher: finding it, and the words by which it starts a step's tasks. */
#ifndef RUN_STEP_LAUNCHER_H
#define RUN_STEP_LAUNCHER_H

#include <stdbool.h>

#include "base/str.h"
#include "workflow/model.h"

struct penstock_error;

/* Whether the step's tasks are started by a launcher rather than one by one. */
bool launcher_wanted(const struct workflow_run *step);

/* The command line, argv[0] being a path. `path` is the step's PATH. PENSTOCK_E_NOT_FOUND: there is none. */
/* Only the launcher and its options. */
int launcher_words(const struct workflow_run *step, const char *path, struct strlist *argv,
	struct penstock_error *err);
int launcher_command(const struct workflow_run *step, const char *path, struct strlist *argv,
	struct penstock_error *err);

#endif
