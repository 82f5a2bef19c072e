/*
 * The copy of a run's code next to its output, `.penstock/runs/ID/context.zip`: any machine that
 * continues the run can have the code of the last attempt. The object's metadata has the digest of
 * the files, the attempt that ran them, and its host.
 */
#ifndef RUN_WORKDIR_CODE_STORE_H
#define RUN_WORKDIR_CODE_STORE_H

#include <stdatomic.h>

#include "run/workdir/context_files.h"
#include "transfer/objects.h"

struct lease;

/* All members are borrowed. */
struct code_store {
	struct object_ref at; /* context.zip */
	struct lease *lease;
	const char *tmp; /* a directory for files in transit */
	const atomic_int *cancel;
};

struct code_published {
	char digest[CONTEXT_SUM_SIZE]; /* "" if nothing is published */
	int attempt;
	char host[65];
};

int code_store_look(
	const struct code_store *store, struct code_published *out, struct penstock_error *err);
/* Publishes the files below `dir`. Fails with PENSTOCK_E_LIMIT if they have more than
 * LIMIT_CONTEXT_PUBLISHED bytes, PENSTOCK_E_INVALID if a link leads out of `dir`,
 * PENSTOCK_E_UNSUPPORTED if a name is not UTF-8. */
int code_store_put(const struct code_store *store, const struct context_files *files,
	const char *dir, const struct code_published *about, struct penstock_error *err);
/* Fetches the published files to a new directory. The caller removes the directory and frees
 * `*dir`. */
int code_store_get(const struct code_store *store, char **dir, struct penstock_error *err);

#endif
