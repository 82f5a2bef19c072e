/*
 * Forms that are outside of the grammar but seen in published workflows, and that can mean one
 * thing only. They are put right in the tree, with a note that says how they were read.
 */
#ifndef WORKFLOW_ODD_H
#define WORKFLOW_ODD_H

#include "workflow/document.h"

void odd_forms_put_right(struct workflow_arena *arena, const char *file, struct node *job,
	struct diagnostics *found);

/* The same for a module, whose `steps` are as a workflow's. */
void odd_module_put_right(struct workflow_arena *arena, const char *file, struct node *module,
	struct diagnostics *found);

#endif
