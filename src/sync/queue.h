/* The queues of the plan: one for each directory, and the list of the directories that have one. */
#ifndef SYNC_QUEUE_H
#define SYNC_QUEUE_H

#include "sync/plan.h"

/* The directory's turn comes after that of all others, or does not come. */
void queue_activate(struct plan *p, struct dir *d);
void queue_deactivate(struct plan *p, struct dir *d);

/* At the end, unless it has a place. */
void queue_add(struct plan *p, struct work *w);
/* Must have no place. */
void queue_add_first(struct plan *p, struct work *w);
void queue_remove(struct plan *p, struct work *w);

/*
 * The line behind the queue of a directory: files that were closed when PLAN_QUEUED others waited, or PLAN_QUEUED_DIR of
 * the directory, and that have no
 * object yet. One takes no more memory than a file that is published, for it has no work. An entry keeps its place until
 * its turn comes, whatever becomes of the file; if it is closed again it is restless when its turn has come.
 */
void line_park(
	struct plan *p, struct entry *e, const struct ident *ident, bool unseen, int64_t now_ms);
/* It is something else from now on: changes the count only. */
void line_leave(struct plan *p, struct entry *e);
/* Gives it a work now. -1: out of memory. */
int line_unpark(struct plan *p, struct entry *e, int64_t now_ms);
/* The first of the line has its turn. False: out of memory. */
bool line_next(struct plan *p, struct dir *d, int64_t now_ms);
/* Whether nothing more is to be queued. */
bool line_is_full(const struct plan *p, const struct dir *d);
/* As many as there is room for, one of each directory in turn. */
void line_refill(struct plan *p, int64_t now_ms);
/* As plan_task_ended() does with those in the queue. */
void line_task_ended(struct plan *p, bool killed, int64_t now_ms);

#endif
