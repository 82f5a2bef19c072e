/* Options that change a workflow: --set, --name and --env. */
#ifndef CLI_WORKFLOW_OVERRIDES_H
#define CLI_WORKFLOW_OVERRIDES_H

#include "base/str.h"
#include "cli/command.h"

/* Collects --set and --name for workflow_options.sets. Returns -1 if out of memory. */
int overrides_collect(const struct cli *cli, struct strlist *sets);

/* JSON for the record; free() it. */
char *overrides_describe(const struct strlist *sets, const struct strlist *env);

#endif
