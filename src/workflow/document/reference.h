/*
 * References in texts: `${{ env.NAME }}`, `${{ secrets.NAME }}` and, in recorded copies, `${{
 * file.FIELD }}` and `${{ option.FIELD }}`.
 */
#ifndef WORKFLOW_DOCUMENT_REFERENCE_H
#define WORKFLOW_DOCUMENT_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>

#include "workflow/model.h"

struct reference {
	const char *start; /* "${{" */
	const char *end; /* after "}}" */
	enum workflow_source source;
	const char *name; /* not terminated */
	size_t name_len;
};

/* Finds the first reference at or after `text`. Returns 1 if there is a reference, 0 if there is
 * none, and -1 if the reference is invalid; `out->start` is its place, even if it is invalid. */
int reference_find(const char *text, struct reference *out);
/* Returns true if `text` is one reference, apart from spaces. */
bool reference_is_all(const char *text, struct reference *out);
/* Returns "env", "secrets", "file" or "option". */
const char *reference_prefix(enum workflow_source source);

#endif
