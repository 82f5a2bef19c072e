/* The parts of the dstack dialect; private to it. */
#ifndef WORKFLOW_DSTACK_H
#define WORKFLOW_DSTACK_H

#include "workflow/dialect.h"

/* Replaces each `${{ name }}` below `workflow` by the variable's value. Whether all were there. */
bool dstack_expand(struct reader *rd, struct node *workflow);

/* Whether `workflow`, not expanded yet, uses each variable of the command line. */
bool dstack_check_arguments(struct reader *rd, const struct node *workflow);

#endif
