/*
 * The states that a disk may have at each point of a write log. Each write to a file since its last
 * sync may be on disk or not, independently of other writes. A write may also be on disk in part,
 * or only with its effect on the file's size. The same applies to each change of a directory since
 * the directory's last sync. A sync covers the changes that were made before it began.
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
 * Loads a log. Ends the process with a message if the log cannot be used. Syncs of the class
 * `ignore` have no effect: data, data-dir, data-parent, root, wal, database, or NULL for no class.
 */
struct model *model_load(const char *path, const char *ignore);
/* Removes the temporary files of the model; its memory is freed when the process ends. */
void model_free(struct model *m);
/* Advances to the end of the next sync, but by at most `every` changes and syncs; 0 means any
 * number. */
bool model_next_point(struct model *m, size_t every);
/* Returns true before a sync of the database's log ends, and at the end. */
bool model_at_commit(const struct model *m);
/* Numbers of records before this point, and in the whole log. */
size_t model_position(const struct model *m);
size_t model_length(const struct model *m);
/* Returns the position at which the reply with this id was sent; SIZE_MAX if never. */
size_t model_reply(const struct model *m, const char *id);
/* Returns the number of unsynced changes. */
size_t model_pending(const struct model *m);

/* The first five modes are fixed; the others choose at random. */
enum {
	BUILD_NOTHING, /* all unsynced changes are lost */
	BUILD_EVERYTHING, /* no change is lost */
	BUILD_NO_DATA, /* names and sizes are kept, data is zero */
	BUILD_NO_NAMES, /* data is kept, new names are lost */
	BUILD_ONLY_NAMES, /* names are kept, unsynced data is lost */
	BUILD_PREFIX, /* all changes before a random one, which is torn */
	BUILD_RANDOM, /* this and larger values: a random choice for each change */
};
/* Creates the tree of one state in the empty directory `dir`. */
void model_build(struct model *m, unsigned mode, unsigned seed, const char *dir);
/* Returns true if the tree at `dir` is the final state of the log; otherwise prints the
 * difference. */
bool model_matches(struct model *m, const char *dir);
/* Creates a directory below $TMPDIR, and sets `path` to its path. */
bool model_temporary(char *path, size_t size);

#endif
