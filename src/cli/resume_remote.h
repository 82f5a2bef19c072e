/* `penstock resume s3://BUCKET/PATH/RUN`: a run that this machine knows nothing of, from its state beside the output. */
#ifndef CLI_RESUME_REMOTE_H
#define CLI_RESUME_REMOTE_H

#include "cli/command.h"

struct penstock_error;
struct records;
struct records_run;

/*
 * Finds the run that the operand names, by its id, the beginning of one, or its name, and brings its workflow to
 * `home`. One that the records here know is as they have it.
 */
int resume_remote_find(const struct cli *cli, const char *home, struct records *records,
	struct records_run *run, struct penstock_error *err);

#endif
