/* The queues of the plan: one for each directory, and the list of the directories that have one. */
#ifndef SYNC_PLAN_QUEUE_H
#define SYNC_PLAN_QUEUE_H

#include "sync/plan/plan.h"

/* At the end, unless it has a place. */
void queue_add(struct plan *p, struct work *w);
/* These two: it must have no place. By its last close: behind all copies, and before files that
 * were closed later. */
void queue_add_first(struct plan *p, struct work *w);
void queue_add_by_close(struct plan *p, struct work *w);
void queue_remove(struct plan *p, struct work *w);

#endif
