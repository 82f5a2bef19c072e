/* $DEEPSQUARE_ENV of a module with exported outputs: a file of its own next to that of the run. */
#ifndef RUN_WALK_MODULE_ENV_H
#define RUN_WALK_MODULE_ENV_H

#include "records/layout.h"
#include "workflow/model.h"

struct penstock_error;

/* Creates the file if it is missing; the caller owns the path `*file`. */
int module_env_begin(
	const struct run_layout *layout, const char *path, char **file, struct penstock_error *err);
/* Appends the outputs, with the prefix of `use`, to `outer`, or to the run's file if it is NULL. */
int module_env_export(const struct run_layout *layout, const char *path,
	const struct workflow_use *use, const char *outer, struct penstock_error *err);

#endif
