/*
 * `${{ env.NAME }}`, `${{ secrets.NAME }}` and, in recorded copies, `${{ file.FIELD }}` and
 * `${{ option.FIELD }}` within texts.
 */
#ifndef WORKFLOW_REFERENCE_H
#define WORKFLOW_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>

#include "workflow/model.h"

struct reference {
	const char *start; /* "${{" */
	const char *end;   /* behind "}}" */
	enum workflow_source source;
	const char *name; /* not terminated */
	size_t name_len;
};

/* The first reference at or behind `text`. 1: found; 0: none; -1: it cannot be read, `start` says
 * where. */
int reference_find(const char *text, struct reference *out);
/* Whether `text` is one reference and nothing else but spaces. */
bool reference_is_all(const char *text, struct reference *out);
/* "env", "secrets", "file", "option". */
const char *reference_prefix(enum workflow_source source);

#endif
