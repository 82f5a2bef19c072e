/* `--set PATH=VALUE` and `--env KEY=VALUE` on the document tree, before it is read. */
#ifndef WORKFLOW_NATIVE_OVERRIDES_H
#define WORKFLOW_NATIVE_OVERRIDES_H

#include "base/str.h"
#include "workflow/document/document.h"

struct overrides {
	struct workflow_arena *arena;
	const char *file;
	struct diagnostics *found;
	struct node *job; /* without the `job:` wrapper */
};

/* Mistakes are added to `found`. */
void overrides_set(struct overrides *o, const char *path_and_value);
void overrides_env(struct overrides *o, const char *key_and_value);

/* The node at the path `text`, for fields as secrets_mark() names them; NULL if there is none. */
const struct node *overrides_find(
	struct workflow_arena *arena, const struct node *job, const char *text);

#endif
