/*
 * Copies of logs that other machines keep next to their outputs in a store, so that these logs are
 * read like logs of this machine.
 *
 *	path = log_copy(ui, "s3://bucket/results/", "3f2a91c05d7e", 2, err);
 *
 * The copies are in HOME/ui-logs; `penstock prune` removes old copies.
 */
#ifndef UI_LOG_COPY_H
#define UI_LOG_COPY_H

#include <stdbool.h>

struct penstock_error;
struct ui;

/* Updates the copy if it is older than a second. `place` must be valid (verb.h). Returns the path
 * of the copy, or NULL on failure; free() the path. */
char *log_copy(
	struct ui *ui, const char *place, const char *run, int attempt, struct penstock_error *err);
#endif
