/*
 * Reads the modules that `use.source` of a workflow names: the file module.yaml of a directory, or
 * of a Git repository at a tag or commit. `git` fetches repositories to $PENSTOCK_HOME/modules,
 * where they stay available without a network.
 */
#ifndef CLI_WORKFLOW_MODULES_H
#define CLI_WORKFLOW_MODULES_H

#include "base/buf.h"

struct penstock_error;

/* A function for workflow_options.module. The cookie is the name of the workflow file; relative
 * sources start from the folder of that file. */
int modules_fetch(void *file, const char *source, struct buf *text, struct penstock_error *err);
/* Like modules_fetch(), without a network. Returns 1 if the module was never fetched. */
int modules_find(void *file, const char *source, struct buf *text, struct penstock_error *err);

#endif
