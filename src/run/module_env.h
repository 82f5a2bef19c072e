/* The $DEEPSQUARE_ENV of a module whose outputs are exported: a file of its own beside that of the run. */
#ifndef RUN_MODULE_ENV_H
#define RUN_MODULE_ENV_H

#include "run/layout.h"
#include "workflow/model.h"

struct penstock_error;

/* Makes the file where it is missing; `*file` is its path, owned by the caller. */
int module_env_begin(
	const struct run_layout *layout, const char *path, char **file, struct penstock_error *err);
/* Appends the outputs, with the prefix of `use`, to `outer` (NULL: the run's). */
int module_env_export(const struct run_layout *layout, const char *path,
	const struct workflow_use *use, const char *outer, struct penstock_error *err);

#endif
