#include "sync/plan/queue.h"

#include <stdlib.h>
#include <utlist.h>

/* Inserts `w` after `before`, or at the head if `before` is NULL. */
static void insert(struct plan *p, struct work *w, struct work *before)
{
	struct dir *d = w->entry->dir;

	w->queued = true;
	p->n_queued++;
	if (d->n_queued++ == 0)
		DL_APPEND2(p->active, d, active_prev, active_next);
	w->prev = before;
	w->next = before ? before->next : d->head;
	if (w->next)
		w->next->prev = w;
	else
		d->tail = w;
	if (before)
		before->next = w;
	else
		d->head = w;
}

void queue_add(struct plan *p, struct work *w)
{
	if (!w->queued)
		insert(p, w, w->entry->dir->tail);
}

void queue_add_first(struct plan *p, struct work *w)
{
	insert(p, w, NULL);
}

void queue_add_by_close(struct plan *p, struct work *w)
{
	struct work *before = w->entry->dir->tail;

	/* `w` goes before small files that were closed later, because they may refer to `w`. At the
	 * end of the queue `w` also goes before a deletion, which can wait, and before a file that
	 * waits for a copy: the file gets its place when the copy is made. */
	for (struct work *v = before; v && !v->frozen; v = v->prev) {
		if ((v->close >= w->first_close && v->entry->seen.size <= PLAN_MARKER) ||
			(v == before && (v->how == HOW_COPY || v->entry->state == ENTRY_GONE)))
			before = v->prev;
	}
	insert(p, w, before);
}

void queue_remove(struct plan *p, struct work *w)
{
	struct dir *d = w->entry->dir;

	if (!w->queued)
		return;
	w->queued = false;
	p->n_queued--;
	d->n_queued--;
	if (w->prev)
		w->prev->next = w->next;
	else
		d->head = w->next;
	if (w->next)
		w->next->prev = w->prev;
	else
		d->tail = w->prev;
	w->next = w->prev = NULL;
	if (!d->head)
		DL_DELETE2(p->active, d, active_prev, active_next);
}

/* ---- copies of small files ---- */

void plan_freeze(struct plan *p, struct work *w, struct frozen *frozen)
{
	w->frozen = frozen;
	w->entry->dir->n_frozen++;
	p->frozen_bytes += frozen->len;
}

void plan_thaw(struct plan *p, struct work *w)
{
	if (!w->frozen)
		return;
	w->entry->dir->n_frozen--;
	p->frozen_bytes -= w->frozen->len;
	free(w->frozen);
	w->frozen = NULL;
}

/* If two files were closed alternately while both waited, the larger file goes first: the smaller
 * file may be a marker that names the larger file. Otherwise the order of their closes counts. */
static bool goes_before(const struct work *w, const struct work *other)
{
	if (w->first_close > other->frozen->close || other->first_close > w->frozen->close ||
		w->frozen->ident.size == other->frozen->ident.size)
		return w->frozen->close < other->frozen->close;
	return w->frozen->ident.size > other->frozen->ident.size;
}

void plan_queue_frozen(struct plan *p, struct dir *d)
{
	struct work *order[PLAN_FROZEN];
	size_t n = 0;

	for (struct work *w = d->head; w && n < PLAN_FROZEN; w = w->next) {
		size_t at = n++;

		if (!w->frozen) {
			n--;
			continue;
		}
		for (; at > 0 && goes_before(w, order[at - 1]); at--)
			order[at] = order[at - 1];
		order[at] = w;
	}
	for (size_t i = 0; i < n; i++) {
		queue_remove(p, order[i]);
		queue_add(p, order[i]);
		order[i]->behind = d->line ? d->line_in : 0;
	}
}

void plan_freeze_failed(struct plan *p, struct dir *d)
{
	struct work *w = d->head;

	if (!w || d->n_frozen || w->how != HOW_COPY || w->entry->state != ENTRY_CLOSED)
		return;
	w->how = HOW_FILE;
	queue_remove(p, w);
	queue_add(p, w);
}
