/*
 * `use.source` of a workflow: module.yaml of a directory, or of a Git repository at a tag or commit. Repositories are
 * fetched by `git` and kept below $PENSTOCK_HOME/modules, so that what was fetched once is there without a network.
 */
#ifndef CLI_MODULES_H
#define CLI_MODULES_H

#include "base/buf.h"

struct penstock_error;

/* For workflow_options.module; the cookie is the name of the workflow file, from whose folder relative ones start. */
int modules_fetch(void *file, const char *source, struct buf *text, struct penstock_error *err);
/* The same without a network: 1 where it was never fetched. */
int modules_look(void *file, const char *source, struct buf *text, struct penstock_error *err);

#endif
