/* The copy of a workflow's context directory, which is the working directory of its steps. */
#ifndef RUN_WORKDIR_CONTEXT_H
#define RUN_WORKDIR_CONTEXT_H

#include <stdatomic.h>

#include "workflow/model.h"

struct penstock_error;

/* Copies the context, without ignored files, into the existing, empty directory `to`. `home` is
 * left out if it is inside. Returns -PENSTOCK_E_LIMIT if it has more than maxBytes. */
int context_copy(const struct workflow *workflow, const char *to, const char *home,
	const atomic_int *cancel, struct penstock_error *err);

#endif
