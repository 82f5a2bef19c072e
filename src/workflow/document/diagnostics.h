/*
 * Mistakes and notes about a workflow: a list in file order, with at most LIMIT_WORKFLOW_ERRORS
 * mistakes and as many notes. The caller prints the list:
 *
 *	for (size_t i = 0; i < found.n; i++)
 *		diagnostic_format(&found.items[i], &line);
 *
 * gives "wf.json:5:20: unknown key `gpuPerTask`, did you mean `gpusPerTask`?". No message contains
 * a secret.
 */
#ifndef WORKFLOW_DOCUMENT_DIAGNOSTICS_H
#define WORKFLOW_DOCUMENT_DIAGNOSTICS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* The place where a value was given. */
struct workflow_place {
	int line; /* 1-based; 0 if the value comes from `option`, or was not given */
	int column; /* 1-based, in characters */
	const char *option; /* "--set resources.tasks", "--env KEY"; NULL for the file */
	const char *file; /* file of a module; NULL for the file of the workflow */
};

enum diagnostic_severity {
	DIAGNOSTIC_ERROR, /* the workflow cannot be run as it is */
	DIAGNOSTIC_NOTE, /* accepted; the message explains how the value was read */
};

struct diagnostic {
	enum diagnostic_severity severity;
	char *file; /* owned; the display name of the workflow */
	int line; /* 0 if the message is about the whole file or `option` */
	int column;
	char *option; /* owned; NULL if the value came from the file */
	char *message; /* owned */
};

struct diagnostics {
	struct diagnostic *items;
	size_t n;
	size_t errors; /* number of messages of severity ERROR, including those beyond the limit */
	bool no_memory; /* a message is missing: out of memory */
};

void diagnostics_release(struct diagnostics *list);
/* `file` is the display name. Beyond the limit only `errors` grows. */
void diagnostics_add(struct diagnostics *list, enum diagnostic_severity severity, const char *file,
	const struct workflow_place *at, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
void diagnostics_vadd(struct diagnostics *list, enum diagnostic_severity severity, const char *file,
	const struct workflow_place *at, const char *fmt, va_list ap)
	__attribute__((format(printf, 5, 0)));
/* Moves messages that `list` does not have yet, and sorts `list`; `from` is empty afterwards. */
void diagnostics_take(struct diagnostics *list, struct diagnostics *from);
/* Makes every note a mistake. */
void diagnostics_be_strict(struct diagnostics *list);
/* Returns true if there are mistakes and all are in the file `file`, none in an option. Returns
 * false if `file` is NULL. */
bool diagnostics_all_of(const struct diagnostics *list, const char *file);
/* Sorts by line and column; messages without a position come last. */
void diagnostics_sort(struct diagnostics *list);

/* Appends "file:line:column: message", "file: message" or "--set path: message"; notes have "note:
 * " before the message. No newline. */
int diagnostic_format(const struct diagnostic *d, struct buf *out);

#endif
