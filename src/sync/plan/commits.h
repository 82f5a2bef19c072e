/*
 * Checkpoints in the plan: a commit (COMMIT.json, or FILE.COMMIT.json) is published after all files
 * that it may name. checkpoints.c reads what it names. Under lock.
 */
#ifndef SYNC_PLAN_COMMITS_H
#define SYNC_PLAN_COMMITS_H

#include "sync/plan/plan.h"

/* Returns true if it is a temporary name of the save of a checkpoint. Those are never published. */
bool commits_is_hidden(const char *name);

/* Returns true if a file that the commit `w` may name is still to be sent, or is being sent. */
bool commits_wait(const struct plan *p, const struct work *w);
/* During a flush: the directory that goes before all others, that of the newest commit that is not
 * published and can be sent. NULL if there is none. */
const struct dir *commits_first(const struct plan *p);
bool commits_is_below(const struct dir *d, const struct dir *top);
/* Returns true if a commit that is still to be read may vouch for the suspect `e`. */
bool commits_may_vouch(const struct plan *p, const struct entry *e);
/* The commit waits for files that are not going to be sent in this flush. */
bool commits_is_stuck(const struct plan *p, const struct work *w);
/* Returns true if `e` is part of a checkpoint. If a checkpoint cannot be restored whole, its other
 * files are skipped. */
bool commits_has(const struct table *t, const struct entry *e);

#endif
