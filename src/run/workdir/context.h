/*
 * The code of a run: the files of its context directory, which are copied to its working directory.
 *
 *	struct context_source source = { .context = &workflow->context, .dir = "/home/u/project",
 *		.home = home, .cancel = cancel };
 *
 *	context_scan(&source, &before, &now, err);	// reads what is not in `before` already
 *	context_copy(&source, &before, &now, to, err);	// only what differs
 */
#ifndef RUN_WORKDIR_CONTEXT_H
#define RUN_WORKDIR_CONTEXT_H

#include <stdatomic.h>

#include "run/workdir/context_files.h"
#include "workflow/model.h"

struct penstock_error;

struct context_source {
	const struct workflow_context *context;
	const char *dir; /* the context, or another directory with its files */
	bool plain; /* no file in it is left out */
	const char *home; /* $PENSTOCK_HOME, left out if it is inside */
	const atomic_int *cancel;
};

/* Lists the files that are not ignored. A file that is untouched since `known` is not read again.
 * Returns -PENSTOCK_E_LIMIT if the files have more than maxBytes, -PENSTOCK_E_NOT_FOUND if the
 * directory is missing. */
int context_scan(const struct context_source *source, const struct context_files *known,
	struct context_files *out, struct penstock_error *err);

/* Updates the files in the directory `to` from the list `before` to the list `now`, which is the
 * result of context_scan(). Other files in `to` stay. */
int context_copy(const struct context_source *source, const struct context_files *before,
	const struct context_files *now, const char *to, struct penstock_error *err);

#endif
