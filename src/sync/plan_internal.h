/* What plan.c and plan_done.c share. */
#ifndef SYNC_PLAN_INTERNAL_H
#define SYNC_PLAN_INTERNAL_H

#include "sync/plan.h"

void plan_note(struct plan *p, enum journal_type type, struct entry *e, const struct ident *ident);
/* Whether it may point to others. */
bool plan_is_small(const struct entry *e);
/* Unless a worker has it. */
void plan_drop_work(struct plan *p, struct entry *e);

#endif
