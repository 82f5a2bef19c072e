/* The copy of a workflow's context directory, in which its steps start. */
#ifndef RUN_CONTEXT_H
#define RUN_CONTEXT_H

#include <stdatomic.h>

#include "workflow/model.h"

struct penstock_error;

/*
 * Copies what of the context does not stay behind into the directory `to`, which is there and empty.
 * `home` is left out where it lies below. -PENSTOCK_E_LIMIT: more than maxBytes.
 */
int context_copy(const struct workflow *workflow, const char *to, const char *home,
	const atomic_int *cancel, struct penstock_error *err);

#endif
