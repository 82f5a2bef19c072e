/* The parts of the dstack dialect; private to it. */
#ifndef WORKFLOW_DIALECTS_DSTACK_H
#define WORKFLOW_DIALECTS_DSTACK_H

#include "workflow/dialects/dialect.h"

/* Replaces each `${{ name }}` below `workflow` by the variable's value. Returns false if a variable
 * is unknown. */
bool dstack_expand(struct reader *rd, struct node *workflow);

/* Reports arguments of the command line that `workflow`, not expanded yet, does not use. Returns
 * false if there is one. */
bool dstack_check_arguments(struct reader *rd, const struct node *workflow);

#endif
