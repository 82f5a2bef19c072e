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

#endif
