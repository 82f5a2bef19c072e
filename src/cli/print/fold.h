/*
 * Folds errors with the same cause: if many items fail in the same way, only the first ten errors
 * are printed.
 *
 *	struct fold fold = {0};
 *
 *	if (fold_shows(&fold, from, to, err))
 *		fprintf(stderr, "%s\n", err->message);
 *	...
 *	fold_end(&fold, note, cookie);	// note: "and 1990 more errors like: AccessDenied: …"
 *
 * Errors have the same cause if their messages are equal apart from names of items, paths and
 * numbers. An error with `repeats` (penstock_error) is printed only once.
 */
#ifndef CLI_PRINT_FOLD_H
#define CLI_PRINT_FOLD_H

#include <stdbool.h>
#include <stdint.h>

struct penstock_error;

enum { FOLD_SHOWN = 10, FOLD_CAUSES = 16 };

struct fold {
	struct fold_cause {
		char *text; /* owned */
		bool repeats;
		uint64_t n;
	} causes[FOLD_CAUSES];
	unsigned n;
};

/* Counts the error. Returns true if the error has to be printed. If there are already FOLD_CAUSES
 * causes, every error with a new cause is printed. `from` and `to` are names in the message, or
 * NULL. */
bool fold_shows(
	struct fold *fold, const char *from, const char *to, const struct penstock_error *err);
/* Passes a note for each cause with errors that were not printed, except errors with `repeats`.
 * Releases the causes. */
void fold_end(struct fold *fold, void (*note)(void *cookie, const char *text), void *cookie);

#endif
