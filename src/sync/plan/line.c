#include <stddef.h>
#include <utlist.h>

#include "base/clock.h"
#include "sync/plan/line.h"
#include "sync/plan/queue.h"
#include "sync/plan/state.h"

void line_park(
	struct plan *p, struct entry *e, const struct ident *ident, bool unseen, int64_t now_ms)
{
	struct dir *d = e->dir;

	if (e->flags & ENTRY_LINE) {
		if (!ident_equal(ident, &e->seen))
			e->flags |= ENTRY_AGAIN;
	} else {
		e->flags |= ENTRY_LINE;
		e->line_next = NULL;
		if (d->line_tail)
			d->line_tail->line_next = e;
		else
			d->line = e;
		d->line_tail = e;
		d->line_in++;
		if (!d->lined) {
			d->line_ms = now_ms;
			d->lined = true;
			DL_APPEND2(p->lined, d, lined_prev, lined_next);
		}
	}
	plan_set_state(p, e, EVENT_CLOSED, ENTRY_PARKED);
	e->seen = *ident;
	e->crc = ++p->closes;
	e->flags &= (uint16_t) ~(ENTRY_UNSEEN | ENTRY_KEEP);
	e->flags |= unseen ? ENTRY_UNSEEN : 0;
	p->n_parked++;
	p->parked_bytes += ident->size;
}

int line_unpark(struct plan *p, struct entry *e, int64_t now_ms)
{
	struct work *w = table_work(p->table, e, e->dir->line_ms);

	if (!w)
		return -1;
	plan_set_state(p, e, EVENT_TURN, ENTRY_CLOSED);
	w->changed_ms = w->ready_ms = w->waiting_ms = now_ms;
	w->close = w->first_close = e->crc;
	w->unseen = (e->flags & ENTRY_UNSEEN) != 0;
	w->how = (e->flags & ENTRY_AGAIN) && plan_is_small(e) ? HOW_COPY : HOW_FILE;
	e->crc = 0;
	queue_add(p, w);
	return 0;
}

bool line_next(struct plan *p, struct dir *d, int64_t now_ms)
{
	struct entry *e = d->line;

	if (!e || (e->state == ENTRY_PARKED && line_unpark(p, e, now_ms) < 0))
		return false;
	d->line = e->line_next;
	if (!d->line)
		d->line_tail = NULL;
	d->line_out++;
	e->flags &= (uint16_t) ~(ENTRY_LINE | ENTRY_AGAIN | ENTRY_UNSEEN);
	if (e->state == ENTRY_OPEN)
		/* files that were closed later wait for this file, for a while */
		queue_add(p, e->work);
	else if (e->state == ENTRY_GONE && !e->work && !e->below && !(e->flags & ENTRY_PUBLISHED))
		table_remove(p->table, e);
	return true;
}

bool line_is_full(const struct plan *p, const struct dir *d)
{
	return p->n_queued >= PLAN_QUEUED || d->n_queued >= PLAN_QUEUED_DIR;
}

/* Moves one file of each directory into its queue. Returns false if no file could be moved. */
static bool move_up(struct plan *p, int64_t now_ms)
{
	bool moved = false;

	for (struct dir *d = p->lined, *next; d; d = next) {
		next = d->lined_next;
		if (!line_is_full(p, d))
			moved |= line_next(p, d, now_ms);
		d->lined = d->line != NULL;
		if (!d->lined)
			DL_DELETE2(p->lined, d, lined_prev, lined_next);
	}
	return moved;
}

void line_refill(struct plan *p, int64_t now_ms)
{
	while (p->lined && p->n_queued < PLAN_QUEUED && move_up(p, now_ms))
		;
}

void line_task_ended(struct plan *p, bool killed, int64_t now_ms)
{
	int64_t young_ns = clock_wall_ns() - PLAN_DYING_MS * NS_PER_MS;

	for (struct dir *d = p->lined; d; d = d->lined_next) {
		for (struct entry *e = d->line; e; e = e->line_next) {
			if (e->state != ENTRY_PARKED || !(e->flags & ENTRY_UNSEEN))
				continue;
			if (!killed)
				e->flags &= (uint16_t)~ENTRY_UNSEEN;
			else if (e->seen.ctime_ns >= young_ns)
				plan_suspect(p, e, &e->seen, now_ms);
		}
	}
}
