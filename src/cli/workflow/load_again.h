/*
 * When a run is resumed, applies changes that were made to its workflow file since the last
 * attempt, and keeps the overrides of the command line, which only the run's record has
 * (docs/decisions/running-again.md).
 */
#ifndef CLI_WORKFLOW_LOAD_AGAIN_H
#define CLI_WORKFLOW_LOAD_AGAIN_H

#include "cli/workflow/load.h"

struct records_run;

/* Returns a description of how load_source_read() read the file, as JSON for runs/ID/source; the
 * caller frees it. Returns NULL if the workflow is from a place that is not read again, or if out
 * of memory. */
char *load_again_describe(const struct load_source *source, const struct load_given *given);

/* Returns the name of the workflow that the run executes, for a file with several workflows; the
 * caller frees it. NULL if unknown. */
char *load_again_pick(const char *home, const char *id);

/*
 * Replaces `record`, the workflow of the run's last attempt, with a workflow that has the changes
 * of the file, and sets `*source` to the new description. Sets `*source` to NULL, and keeps
 * `record`, if the file is unchanged or cannot be read again, or if the changes cannot be applied.
 * Prints errors of the file.
 */
int load_again(const char *home, const struct records_run *run, struct buf *record, char **source,
	struct penstock_error *err);

#endif
