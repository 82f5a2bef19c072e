/* The queues of the plan: one for each directory, and the list of the directories whose queue is
 * not empty. */
#ifndef SYNC_PLAN_QUEUE_H
#define SYNC_PLAN_QUEUE_H

#include "sync/plan/plan.h"

/* Adds `w` at the end of the queue of its directory, unless `w` is already queued. */
void queue_add(struct plan *p, struct work *w);
/* queue_add_first() adds `w` at the head. queue_add_by_close() adds `w` behind all copies, and
 * before small files that were closed after its first unpublished close. `w` must not be queued. */
void queue_add_first(struct plan *p, struct work *w);
void queue_add_by_close(struct plan *p, struct work *w);
void queue_remove(struct plan *p, struct work *w);

#endif
