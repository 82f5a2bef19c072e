/*
 * The line behind the queue of a directory. A file without an object joins the line when it is
 * closed while other files are in the line, while PLAN_QUEUED files wait in all queues together, or
 * while PLAN_QUEUED_DIR files wait in the queue of its directory. A file in the line has no
 * `struct work`, so it takes no more memory than a published file. An entry keeps its place until
 * its turn comes, even if the file changes or is removed; a small file that was closed again is
 * then sent from a copy.
 */
#ifndef SYNC_PLAN_LINE_H
#define SYNC_PLAN_LINE_H

#include "sync/plan/plan.h"

void line_park(
	struct plan *p, struct entry *e, const struct ident *ident, bool unseen, int64_t now_ms);
/* Gives the parked file `e` a `struct work`. Returns -1 if out of memory. */
int line_unpark(struct plan *p, struct entry *e, int64_t now_ms);
/* Gives the first entry of the line its turn. Returns false if the line is empty or if out of
 * memory. */
bool line_next(struct plan *p, struct dir *d, int64_t now_ms);
/* Returns true if the queue takes no more files. */
bool line_is_full(const struct plan *p, const struct dir *d);
/* Moves as many files into the queues as there is room for, one of each directory in turn. */
void line_refill(struct plan *p, int64_t now_ms);
/* Does the work of plan_task_ended() for the files in the line. */
void line_task_ended(struct plan *p, bool killed, int64_t now_ms);

#endif
