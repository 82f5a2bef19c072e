/*
 * Forms outside of the grammar that published workflows have and that can mean only one thing. The
 * tree gets the form of the grammar, and a note says how the legacy form was read.
 */
#ifndef WORKFLOW_NATIVE_LEGACY_H
#define WORKFLOW_NATIVE_LEGACY_H

#include "workflow/document/document.h"
#include "workflow/native/schema.h"

/* `schema` is that of the whole workflow. */
void legacy_forms_normalize(struct workflow_arena *arena, const char *file, struct node *job,
	const struct schema *schema, struct diagnostics *found);

/* The same for a module; `step` is the schema of its steps. */
void legacy_module_normalize(struct workflow_arena *arena, const char *file, struct node *module,
	const struct schema *step, struct diagnostics *found);

#endif
