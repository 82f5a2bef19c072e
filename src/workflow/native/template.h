/*
 * Rendering of a module before it is read: the part of Go's text/template that modules use. Fields
 * (`.Job.resources.tasks`, in any case), `$variables`, `if`, `else`, `range`, `end`, comments, and
 * the functions of template.c are supported; anything else is reported as a mistake.
 */
#ifndef WORKFLOW_NATIVE_TEMPLATE_H
#define WORKFLOW_NATIVE_TEMPLATE_H

#include "base/buf.h"
#include "workflow/document/document.h"
#include "workflow/model.h"

struct template_context {
	struct workflow_arena *arena;
	const struct node *job; /* `.Job` */
	const struct node *step; /* `.Step` */
	const struct workflow_resources *resources; /* resources of the job, defaults applied */
	size_t *spent; /* bytes that all templates of the workflow have read and made so far */
};

/* Appends the result of `text`. Returns NULL, or the mistake, owned by the arena, with its line in
 * `line`. */
const char *template_render(
	const struct template_context *context, const char *text, struct buf *out, int *line);

#endif
