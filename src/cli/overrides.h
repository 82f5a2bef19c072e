/* What was given to change a workflow: --set, --name and --env. */
#ifndef CLI_OVERRIDES_H
#define CLI_OVERRIDES_H

#include "base/str.h"
#include "cli/command.h"

/* Those of --set and --name, for workflow_options.sets. -1: no memory. */
int overrides_collect(const struct cli *cli, struct strlist *sets);

/* JSON for the record; free() it. */
char *overrides_describe(const struct strlist *sets, const struct strlist *env);

#endif
