/*
 * The state of one file in the plan: its setter (plan_set_state() of plan.h), its invariants, and
 * the small changes that plan.c, line.c, commits.c and done.c have in common. Under lock, like the
 * whole plan.
 */
#ifndef SYNC_PLAN_STATE_H
#define SYNC_PLAN_STATE_H

#include "sync/plan/plan.h"

/*
 * Asserts a condition that always holds. If the condition does not hold, the plan has a defect: a
 * debug build and the tests abort. A release build continues, because a crash would end the run's
 * steps. From then on the plan deletes no object, and each flush fails with the defect, so that the
 * local output is kept and `penstock flush` can publish it from the journal.
 */
#define PLAN_MUST(p, condition) ((condition) ? (void)0 : plan_fault((p), #condition))
void plan_fault(struct plan *p, const char *what);

/* Asserts the invariants of one entry between two calls to the plan. */
void plan_check(struct plan *p, const struct entry *e);

void plan_note(struct plan *p, enum journal_type type, struct entry *e, const struct ident *ident);
/* Drops the work of `e`. Does nothing while a worker has the work. */
void plan_drop_work(struct plan *p, struct entry *e);
/* Returns true if the file may be a marker, which names other files. */
bool plan_is_small(const struct entry *e);
void plan_forget_writers(struct plan *p, struct work *w);
/* Handles a file whose writer was killed: the file becomes suspect, or is sent as the rest of a
 * log. */
void plan_make_suspect(struct plan *p, struct entry *e, struct work *w);
/* Accepts the close of a file: the file is to be published, and the journal records the close. */
void plan_trust(struct plan *p, struct entry *e, enum entry_event event);
/* Notes that a request for the object of `e` was sent, and that no reply has arrived: the object
 * may hold a version of the file `ino`, or be gone if `ino` is 0. */
void plan_unsure(struct entry *e, uint64_t ino);
/* Returns true if the object of a file that is gone may be deleted. */
bool plan_may_delete(const struct plan *p, const struct entry *e);
/* Returns true if partial/ or the object holds the file as it was last seen. */
bool plan_is_sent(const struct work *w);

#endif
