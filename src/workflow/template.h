/*
 * The templates that a module goes through before it is read: the part of Go's text/template that modules use. Fields
 * (`.Job.resources.tasks`, found whatever their case), `$variables`, `if`, `else`, `range`, `end`, comments, and the functions
 * of template.c; everything else is a mistake that names it.
 */
#ifndef WORKFLOW_TEMPLATE_H
#define WORKFLOW_TEMPLATE_H

#include "base/buf.h"
#include "workflow/document.h"
#include "workflow/model.h"

struct template_context {
	struct workflow_arena *arena;
	const struct node *job;			    /* `.Job` */
	const struct node *step;		    /* `.Step` */
	const struct workflow_resources *resources; /* of the job, defaults applied */
};

/* Appends what `text` becomes. NULL, or what is wrong with it and at which line: owned by the arena. */
const char *template_render(
	const struct template_context *context, const char *text, struct buf *out, int *line);

#endif
