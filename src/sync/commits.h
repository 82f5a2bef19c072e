/*
 * Checkpoints as the sync sees them: a commit (COMMIT.json, or FILE.COMMIT.json) is published when all that it names
 * is, and what retention removes here goes in the bucket, too.
 */
#ifndef SYNC_COMMITS_H
#define SYNC_COMMITS_H

#include "sync/plan.h"

struct object_info;
struct penstock_error;
struct sync;

/* Names that the save of a checkpoint needs for itself: never published. */
bool commits_is_hidden(const char *name);

/* ---- the plan; under lock ---- */

/* Whether something that `w`, a commit, may name is still to be sent, or is being sent. */
bool commits_wait(const struct plan *p, const struct work *w);
/*
 * While a flush is under way: the directory that goes before all others, which is that of the newest commit that is
 * not published and of which something can be sent; NULL: none.
 */
const struct dir *commits_first(const struct plan *p);
bool commits_is_below(const struct dir *d, const struct dir *top);
/* Whether a commit that is still to be looked at may say that the suspect `e` is whole. */
bool commits_may_vouch(const struct plan *p, const struct entry *e);
/* A commit waits for what nobody sends any more: the flush is through with it. */
bool commits_is_stuck(const struct plan *p, const struct work *w);
/* Whether `e` is part of a checkpoint: what is left of one that cannot be restored whole is passed over. */
bool commits_has(const struct table *t, const struct entry *e);

/* ---- without the lock ---- */

/*
 * Whether the commit `path`, which `fd` holds, may appear now. JOB_DONE: yes, or it is a file like any other; JOB_WAIT:
 * later; JOB_DAMAGED: what it names is not what is here.
 */
enum job_outcome commits_check(struct sync *s, const char *path, int fd, uint64_t size);
/*
 * Whether `there`, the object that stands under the file's key, may be kept aside and overwritten: not where it is a
 * commit of somebody else's, or part of what one names. PENSTOCK_E_EXISTS: it may not.
 */
int commits_may_replace(struct sync *s, const char *path, const struct object_info *there,
	struct penstock_error *err);

#endif
