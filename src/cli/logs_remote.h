/* `penstock logs -f s3://BUCKET/PATH RUN`: a log as `enableLogging` keeps it beside the output. */
#ifndef CLI_LOGS_REMOTE_H
#define CLI_LOGS_REMOTE_H

#include "cli/command.h"

/* The exit code. The operands are the output's place and, where more than one run logs there, the run. */
int logs_remote(const struct cli *cli, int64_t attempt);

/* Moves to the beginning of the last `lines` lines. */
int logs_seek_to_last(int fd, int64_t lines, struct penstock_error *err);

/* Prints everything from the descriptor's offset on. An error: it cannot be read, or nobody reads us any more. */
int logs_copy_rest(int fd, struct penstock_error *err);

#endif
