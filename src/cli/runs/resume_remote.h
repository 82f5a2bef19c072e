/*
 * `penstock resume s3://BUCKET/PATH/RUN`: finds a run by its state next to the output. This machine
 * may have no record of the run.
 */
#ifndef CLI_RUNS_RESUME_REMOTE_H
#define CLI_RUNS_RESUME_REMOTE_H

#include "cli/command.h"

struct penstock_error;
struct records;
struct records_run;

/* Finds the run that the operand names by its id, the beginning of its id, or its name, and fetches
 * its workflow to `home`. If the local records have the run, they take precedence, unless another
 * machine has made a later attempt. */
int resume_remote_find(const struct cli *cli, const char *home, struct records *records,
	struct records_run *run, struct penstock_error *err);

#endif
