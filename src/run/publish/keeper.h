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
	char *dir; /* of the checkpoints */
	const atomic_int *cancel; /* if set, nothing more is begun */
	/* Checkpoints whose commits are removed, as paths below the output after one letter: 'd' (a
	 * directory) or 'f' (a file) if it is still to be removed here, 'D' or 'F' if only its
	 * objects are left. In that case a file here is a new one. */
	struct strlist going;
	/* commits of attempts before the run started over, from the store; read once */
	struct commit_list older;
	bool knows_older;
	/* They count, too: the attempt has succeeded. Until then a run that started over may still
	 * fail, and they are all that there is. */
	bool counts_older;
	char *verified; /* the newest that was found whole in the store */
	bool late; /* something was changed after the request to stop */
};

int keeper_init(struct keeper *k, struct publisher *p, struct penstock_error *err);
void keeper_release(struct keeper *k);

/* "path/NAME" below the output, or "NAME" if checkpoints are in the output itself; free() it. */
char *keeper_relative(const struct publisher *p, const char *name);
char *keeper_local(const struct publisher *p, const char *relative);
/* Path of the commit of a directory, or of a single file; free() it. */
char *checkpoint_commit(const char *relative, bool single);
/* False if the directory is a link or below one: what is elsewhere, such as the checkpoints of
 * another run, must not be removed or written to. */
bool keeper_is_inside(struct keeper *k);

/* ---- commit_files.c ---- */

/* True if `checkpoints.pattern` matches the name. */
bool checkpoint_matches(const struct publisher *p, const char *name);
/* True if `checkpoints.pattern` makes the file at this path below the output a checkpoint. `cookie`
 * is the publisher. */
bool checkpoint_is_single(void *cookie, const char *path);
/* Commits the files of programs that write no commits, in the order of their times. `all`: all that
 * is there is whole; else only published files are taken. A file older than a committed one had a
 * commit, which retention removed, or came too late to be the newest. `*committed` gets how many
 * were committed. Returns false if a file does not count yet: it is not published, or was touched
 * after that. No event follows if it turns out to be unchanged. */
bool keeper_commit_files(struct keeper *k, bool all, size_t *committed);

/* ---- older.c ---- */

/* Reads the commits of attempts before the run started over, once the sync knows them. */
int keeper_load_older(struct keeper *k, struct penstock_error *err);

/* ---- retire.c ---- */

/* Reads what an earlier attempt has begun to remove, here or on another machine. */
int keeper_load_retired(struct keeper *k, struct penstock_error *err);
/* Removes the files of those here, before a step can save one of them again. */
void keeper_remove_leftovers(struct keeper *k);
/*
 * First step of a removal, for all checkpoints that the policy does not keep: their commits.
 * Returns false if a checkpoint here does not count yet: it is not published, or was touched
 * after that. No event follows if it turns out to be unchanged.
 */
bool keeper_retire(struct keeper *k);
/* Last step: removes all other files, here and in the store, once the store has no commit. Returns
 * true if the store has none of their objects any more. */
bool keeper_remove_rest(struct keeper *k);

#endif
