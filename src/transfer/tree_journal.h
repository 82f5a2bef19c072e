/*
 * What an interrupted download into a directory has already brought: a text file in that directory.
 * An entry counts while the machine was not restarted and the file is still as it was written.
 */
#ifndef TRANSFER_TREE_JOURNAL_H
#define TRANSFER_TREE_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

struct penstock_error;
struct tree_journal;

#define TREE_JOURNAL_NAME ".penstock-download"

/* Reads the journal of an earlier call for the same source, or starts a new one. */
int tree_journal_open(struct tree_journal **out, const char *dir, const char *bucket,
	const char *prefix, struct penstock_error *err);
/* Whether DIR/path came from that object, and is unchanged. */
bool tree_journal_has(
	const struct tree_journal *journal, const char *path, uint64_t size, const char *etag);
/* DIR/path is there now. Any thread. */
int tree_journal_add(struct tree_journal *journal, const char *path, uint64_t size,
	const char *etag, struct penstock_error *err);
/* Everything is there: removes it. */
void tree_journal_finish(struct tree_journal *journal);
void tree_journal_close(struct tree_journal *journal);

#endif
