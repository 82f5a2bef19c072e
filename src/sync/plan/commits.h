/*
 * Checkpoints in the plan: a commit (COMMIT.json, or FILE.COMMIT.json) is published after all files
 * that it may name. checkpoints.c reads which files a commit names. Under lock.
 */
#ifndef SYNC_PLAN_COMMITS_H
#define SYNC_PLAN_COMMITS_H

#include "sync/plan/plan.h"

/* Returns true if `name` is a temporary name of a checkpoint that is being saved. Such files are
 * never published. */
bool commits_is_hidden(const char *name);

/* Returns true if a file that the commit `w` may name still has to be sent, or is being sent. */
bool commits_wait(const struct plan *p, const struct work *w);
/* Returns the directory that a flush sends before all other directories: the directory of the
 * newest commit that is not published and can be sent. Returns NULL if there is no such commit, or
 * if no flush runs. */
const struct dir *commits_first(const struct plan *p);
bool commits_is_below(const struct dir *d, const struct dir *top);
/* Returns true if a commit that has not been read yet may confirm the suspect file `e`. */
bool commits_may_vouch(const struct plan *p, const struct entry *e);
/* Returns true if the commit `w` waits for files that this flush will not send. */
bool commits_is_stuck(const struct plan *p, const struct work *w);
/* Returns true if `e` is part of a checkpoint. A restore may leave out such a file if its object is
 * missing or damaged. */
bool commits_has(const struct table *t, const struct entry *e);

#endif
