/* Keeper of a run's checkpoints: for the files of src/run/publish alone. */
#ifndef RUN_PUBLISH_KEEPER_H
#define RUN_PUBLISH_KEEPER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"
#include "checkpoint/read.h"

struct penstock_error;
struct publisher;

/* Used by the keeper's thread while it runs, then by the end of the run. */
struct keeper {
	struct publisher *publisher; /* borrowed */
	char *dir; /* the directory of the checkpoints */
	const atomic_int *cancel; /* if set, nothing more is started */
	/* Checkpoints whose commits are removed, as paths below the output after one letter: 'd' (a
	 * directory) or 'f' (a file) if the local files are still to be removed, 'D' or 'F' if only
	 * the objects are still to be removed: a local file then belongs to a new checkpoint. */
	struct strlist going;
	/* commits of attempts before the run started over, from the store; read once */
	struct commit_list older;
	bool knows_older;
	/* The checkpoints of `older` count, too: the attempt has succeeded. Until then a run that
	 * started over may still fail, and `older` may have its only checkpoints. */
	bool counts_older;
	char *verified; /* path of the newest checkpoint that was verified */
	bool late; /* files may have been changed after the request to stop */
};

int keeper_init(struct keeper *k, struct publisher *p, struct penstock_error *err);
void keeper_release(struct keeper *k);

/* Returns "path/NAME" below the output, or "NAME" if checkpoints are in the output itself; free()
 * it. */
char *keeper_relative(const struct publisher *p, const char *name);
char *keeper_local(const struct publisher *p, const char *relative);
/* Returns the path of the commit of a directory, or of a single file; free() it. */
char *checkpoint_commit(const char *relative, bool single);
/* Returns false if the directory is missing, a link, or below a link: files elsewhere, such as the
 * checkpoints of another run, must not be removed or overwritten. */
bool keeper_is_inside(struct keeper *k);

/* ---- commit_files.c ---- */

/* Returns true if `checkpoints.pattern` matches the name, and it is not a name of penstock's own
 * files. */
bool checkpoint_matches(const struct publisher *p, const char *name);
/* Returns true if `checkpoints.pattern` makes the file at this path below the output a checkpoint.
 * `cookie` is the publisher. */
bool checkpoint_is_single(void *cookie, const char *path);
/* Commits the files of programs that write no commits, in the order of their times. If `all`, every
 * file in the directory is complete; else only published files are committed. A file older than a
 * committed one is skipped: retention removed its commit, or the file came too late to be the
 * newest. `*committed` gets the number of new commits. Returns false if the directory cannot be
 * read, or if a file cannot be committed yet, because the file is not published, or was touched
 * after its upload. The caller must then check again after a pause, because the sync reports no
 * event if a touched file turns out to be unchanged. */
bool keeper_commit_files(struct keeper *k, bool all, size_t *committed);

/* ---- older.c ---- */

/* Reads the commits of attempts before the run started over, once the sync knows them. */
int keeper_load_older(struct keeper *k, struct penstock_error *err);

/* ---- retire.c ---- */

/* Reads the list of checkpoints that an earlier attempt started to remove, here or on another
 * machine. */
int keeper_load_retired(struct keeper *k, struct penstock_error *err);
/* Removes the local files of the checkpoints in `going`, before a step can save one of them again.
 * If the attempt starts from scratch, there are no such files, and only the objects are left to
 * remove. */
void keeper_remove_leftovers(struct keeper *k);
/*
 * First step of a removal: removes the commits of all checkpoints that the policy does not keep.
 * Returns false if the newest checkpoint cannot be verified, or if a local checkpoint does not
 * count yet, because the checkpoint is not published, or was touched after its upload. The caller
 * must then check again after a pause, because the sync reports no event if a touched checkpoint
 * turns out to be unchanged.
 */
bool keeper_retire(struct keeper *k);
/* Last step: removes all other files, here and in the store, once the store has no commit. Returns
 * true if nothing is left to remove, or if keeper_is_inside() returns false. */
bool keeper_remove_rest(struct keeper *k);

#endif
