/* `penstock logs -f s3://BUCKET/PATH RUN`: a log that `enableLogging` keeps next to the output. */
#ifndef CLI_HISTORY_LOGS_REMOTE_H
#define CLI_HISTORY_LOGS_REMOTE_H

#include "cli/command.h"

/* Returns the exit code. The operands are the output's place and, if more than one run logs there,
 * the run. */
int logs_remote(const struct cli *cli, int64_t attempt);

#endif
