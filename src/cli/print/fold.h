/*
 * Folds errors of one cause: of many items that fail alike, only the first ten get a line each.
 *
 *	struct fold fold = {0};
 *
 *	if (fold_shows(&fold, from, to, err))
 *		fprintf(stderr, "%s\n", err->message);
 *	...
 *	fold_end(&fold, note, cookie);	// note: "and 1990 more like: AccessDenied: …"
 *
 * Errors are alike if their messages are, apart from the names of the items, paths and numbers. An
 * error that repeats (penstock_error) has one line.
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

/* Counts the error. Returns true if the error has to be printed, which is always so beyond
 * FOLD_CAUSES causes. `from` and `to` are names in the message, or NULL. */
bool fold_shows(
	struct fold *fold, const char *from, const char *to, const struct penstock_error *err);
/* Passes a note for each cause with errors that were not printed, except errors that repeat.
 * Releases the causes. */
void fold_end(struct fold *fold, void (*note)(void *cookie, const char *text), void *cookie);

#endif
