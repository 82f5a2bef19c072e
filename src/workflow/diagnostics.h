/*
 * What was found wrong or odd in a workflow: a list in the order of the file, at most
 * LIMIT_WORKFLOW_ERRORS mistakes long. Printing is the caller's:
 *
 *	for (size_t i = 0; i < found.n; i++)
 *		diagnostic_format(&found.items[i], &line);
 *
 * gives "wf.json:5:20: unknown key `gpuPerTask`, did you mean `gpusPerTask`?". No message holds a
 * secret.
 */
#ifndef WORKFLOW_DIAGNOSTICS_H
#define WORKFLOW_DIAGNOSTICS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Where a value was given. */
struct workflow_place {
	int line;	    /* 1-based; 0 where `option` says it, or where nobody gave it */
	int column;	    /* 1-based, in characters */
	const char *option; /* "--set resources.tasks", "--env KEY"; NULL: the file */
	const char *file;   /* of a module; NULL: that of the workflow */
};

enum diagnostic_severity {
	DIAGNOSTIC_ERROR, /* the workflow cannot be run as it is */
	DIAGNOSTIC_NOTE,  /* accepted; says how it was read */
};

struct diagnostic {
	enum diagnostic_severity severity;
	char *file; /* owned; the display name of the workflow */
	int line;   /* 0: none, the message stands for the whole file or for `option` */
	int column;
	char *option;  /* owned; NULL where the value came from the file */
	char *message; /* owned */
};

struct diagnostics {
	struct diagnostic *items;
	size_t n;
	size_t errors;	/* of severity ERROR, also those that were not kept */
	bool no_memory; /* something could not be kept for lack of memory */
};

void diagnostics_release(struct diagnostics *list);
/* `file` is the display name. Past the limit only `errors` grows. */
void diagnostics_add(struct diagnostics *list, enum diagnostic_severity severity, const char *file,
	const struct workflow_place *at, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* Moves what `list` has not in the same words; `from` is empty after it. */
void diagnostics_take(struct diagnostics *list, struct diagnostics *from);
/* Whether all mistakes, and there are some, are in that file. */
bool diagnostics_all_of(const struct diagnostics *list, const char *file);
/* By line and column; those without a position last. */
void diagnostics_sort(struct diagnostics *list);

/* Appends "file:line:column: message", "file: message" or "--set path: message"; notes have "note:
 * " before the message. No newline. */
int diagnostic_format(const struct diagnostic *d, struct buf *out);

#endif
