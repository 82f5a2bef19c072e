/*
 * The states that a disk may have at each point of a write log. Between two syncs of a file, each
 * of its writes may have reached the disk or not, in any order, in part, or with the size alone;
 * and so may each change of a directory that was not itself synced. A sync covers what was done
 * before it began.
 *
 *	struct model *m = model_load("write.log");
 *	while (model_next_point(m, 0))		stops before each sync ends, and at the end
 *		for (i = 0; i < n; i++)
 *			model_build(m, i, seed, dir);
 */
#ifndef POWER_MODEL_H
#define POWER_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model;

/*
 * Ends the process with a message where the log cannot be used. `ignore` names a class of syncs
 * that count as if they had not been made (NULL: none): data, data-dir, data-parent, root, wal,
 * database.
 */
struct model *model_load(const char *path, const char *ignore);
/* Removes what it keeps on the disk; its memory goes with the process. */
void model_free(struct model *m);
/* Advances to the end of the next sync, but by at most `every` changes and syncs; 0 means any
 * number. */
bool model_next_point(struct model *m, size_t every);
/* Returns true before a sync of the database's log ends, and at the end. */
bool model_at_commit(const struct model *m);
/* Records before this point, and in all. */
size_t model_position(const struct model *m);
size_t model_length(const struct model *m);
/* Where the reply with this id went out; SIZE_MAX: never. */
size_t model_reply(const struct model *m, const char *id);
/* Changes that no sync covers yet. */
size_t model_pending(const struct model *m);

/* The first modes take all or nothing; the others draw. */
enum {
	BUILD_NOTHING, /* all that was not synced is lost */
	BUILD_EVERYTHING, /* complete */
	BUILD_NO_DATA, /* names and sizes are there, bytes are zero */
	BUILD_NO_NAMES, /* bytes are there, new names are not */
	BUILD_ONLY_NAMES, /* names are there, files as they were synced */
	BUILD_PREFIX, /* everything up to some moment, whose last write is torn */
	BUILD_RANDOM, /* this and larger values draw */
};
/* Creates the tree in the empty directory `dir`. */
void model_build(struct model *m, unsigned mode, unsigned seed, const char *dir);
/* Returns true if the tree at `dir` is the result of the log; prints the difference. */
bool model_matches(struct model *m, const char *dir);
/* Creates a directory below $TMPDIR. */
bool model_temporary(char *path, size_t size);

#endif
