#include "sync/plan/plan.h"

#include <stdlib.h>

#include "sync/plan/state.h"
#include "sync/plan/line.h"
#include "sync/plan/queue.h"

void plan_add_writer(struct work *w, struct proc *proc, bool append)
{
	struct opening *o = work_open(w);

	w->appender |= append;
	for (size_t i = 0; o && i < WORK_WRITERS; i++) {
		if (o->writers[i] == proc)
			return;
		if (!o->writers[i]) {
			o->writers[i] = proc_ref(proc);
			return;
		}
	}
}

enum close_kind plan_judge(const struct work *w)
{
	const struct opening *o = w->opening;
	enum close_kind kind = CLOSE_UNSEEN;

	for (size_t i = 0; o && i < WORK_WRITERS && o->writers[i]; i++) {
		switch (proc_fate(o->writers[i])) {
		case PROC_KILLED:
			return CLOSE_KILLED;
		case PROC_UNKNOWN:
			kind = CLOSE_EXIT;
			break;
		case PROC_ALIVE:
		case PROC_EXITED:
			if (kind == CLOSE_UNSEEN)
				kind = CLOSE_TRUE;
			break;
		}
	}
	return kind;
}

static bool has_living_writer(const struct work *w)
{
	const struct opening *o = w->opening;
	bool alive = false;

	for (size_t i = 0; o && i < WORK_WRITERS && o->writers[i]; i++)
		alive |= proc_fate(o->writers[i]) == PROC_ALIVE;
	return alive;
}

/* ---- events ---- */

int plan_changed(struct plan *p, struct entry *e, int64_t now_ms)
{
	struct work *w = table_work(p->table, e, now_ms);

	if (!w || !work_open(w)) {
		/* Drop the work again: a PARKED or CLEAN entry must not have one. */
		if (w && (e->state == ENTRY_PARKED || e->state == ENTRY_CLEAN))
			plan_drop_work(p, e);
		return -1;
	}
	if (e->state != ENTRY_OPEN) {
		if (e->state == ENTRY_GONE) /* the place in the queue was that of the deletion */
			queue_remove(p, w);
		plan_set_state(p, e, EVENT_WRITTEN, ENTRY_OPEN);
		plan_forget_writers(p, w);
		table_touch_work(p->table, w);
		w->doomed = false;
		w->wait = WAIT_NONE;
		w->opening->opened_ms = now_ms;
		w->opening->grown_ms = 0;
	}
	e->flags &= (uint16_t)~ENTRY_KEEP;
	w->changed_ms = now_ms;
	w->modified = true;
	w->settled = false;
	w->opening->by_lease = false;
	if (w->send == SEND_SAME)
		w->send = SEND_CHANGED;
	plan_check(p, e);
	return 0;
}

int plan_refused(struct plan *p, struct entry *e, enum close_kind kind, int64_t now_ms)
{
	int rc = plan_changed(p, e, now_ms);

	if (rc == 0) {
		e->work->opening->by_lease = true;
		e->work->opening->closed_as = (uint8_t)kind;
	}
	return rc;
}

void plan_rewritten(struct entry *e)
{
	if (e->work)
		e->work->modified = true;
}

void plan_found(struct entry *e)
{
	if (e->work)
		e->work->found = true;
}

void plan_seen(struct entry *e, bool moved)
{
	e->work->unseen = !moved;
}

void plan_doom(struct work *w, bool doomed)
{
	w->doomed = doomed && w->entry->state == ENTRY_OPEN;
}

/* Returns true if the object holds this content, and no worker is about to replace it. */
static bool is_unchanged(const struct plan *p, const struct entry *e, const struct ident *ident)
{
	const struct work *w = e->work;

	return !(w && (w->modified || w->send != SEND_IDLE)) && !p->always_dirty &&
	       (e->flags & ENTRY_PUBLISHED) && !(e->flags & ENTRY_APPENDED) &&
	       ident_equal(ident, w ? &w->published : &e->seen);
}

/* Returns true if the file goes into the line (line.h): the file has no object, and other files
 * wait. */
static bool is_to_park(const struct plan *p, const struct entry *e, enum close_kind kind)
{
	const struct work *w = e->work;

	return (kind == CLOSE_TRUE || kind == CLOSE_UNSEEN) && !(e->flags & ENTRY_PUBLISHED) &&
	       !e->below && !(w && (w->send != SEND_IDLE || w->queued || w->doomed)) &&
	       (e->dir->line || line_is_full(p, e->dir));
}

/* Returns the time until which the file must stay unchanged before it is sent. A file that is
 * closed again and again gets its turn after PLAN_RESTLESS_MS. */
static int64_t quiet_at(const struct plan *p, const struct work *w, int64_t now_ms)
{
	int64_t latest = w->waiting_ms + PLAN_RESTLESS_MS;

	return now_ms + p->quiet_ms < latest ? now_ms + p->quiet_ms
	       : now_ms > latest	     ? now_ms
					     : latest;
}

/* Returns the way to send a file after its close. A small file that is closed again while it is
 * queued may refer to files that were closed in between, so it is sent from a copy. `found` is true
 * for the event of a close that the scan has found already. */
static enum work_how how_after_close(const struct work *w, const struct ident *ident, bool found)
{
	if (found)
		return w->how == HOW_REST ? HOW_FILE : w->how;
	if (w->queued && ident->size <= PLAN_MARKER)
		return HOW_COPY;
	return w->how == HOW_SNAPSHOT ? HOW_SNAPSHOT : HOW_FILE;
}

/* Starts a new version: clears the state of the previous version. */
static void begin_version(
	struct plan *p, struct work *w, const struct ident *ident, bool unseen, int64_t now_ms)
{
	struct entry *e = w->entry;

	e->seen = *ident;
	e->flags &= (uint16_t) ~(ENTRY_KEEP | ENTRY_RETIRED);
	w->wait = WAIT_NONE;
	w->doomed = w->found = w->modified = w->settled = false;
	w->unseen = unseen;
	w->changed_ms = now_ms;
	w->close = ++p->closes;
	if (!w->waiting_ms) {
		w->waiting_ms = now_ms;
		w->first_close = w->close;
	}
	if (w->send != SEND_IDLE)
		w->send = SEND_RECLOSED;
}

static int close_file(struct plan *p, struct entry *e, const struct ident *ident,
	enum close_kind kind, int64_t now_ms)
{
	struct work *w = table_work(p->table, e, now_ms);
	bool found, again;

	if (!w)
		return -1;
	again = w->send == SEND_RECLOSED;
	found = w->found && ident_equal(ident, &e->seen);
	if (w->doomed)
		kind = CLOSE_KILLED;
	if (e->state == ENTRY_GONE) /* the place in the queue was that of the deletion */
		queue_remove(p, w);
	plan_set_state(p, e, EVENT_CLOSED, kind == CLOSE_EXIT ? ENTRY_HELD : ENTRY_CLOSED);
	w->how = how_after_close(w, ident, found);
	begin_version(p, w, ident, kind == CLOSE_UNSEEN, now_ms);
	if (kind == CLOSE_KILLED) {
		plan_make_suspect(p, e, w);
		return 0;
	}
	w->ready_ms = kind == CLOSE_EXIT       ? now_ms + PLAN_HOLD_MS
		      : w->how == HOW_SNAPSHOT ? now_ms
					       : quiet_at(p, w, now_ms);
	/* If a worker is sending the previous version, or the scan found this version before its
	 * event came, the file goes after everything that was closed since. Large files do not
	 * refer to other files. A second close during the upload keeps the place of the first
	 * close. */
	if (w->queued &&
		((w->send != SEND_IDLE && !again) || (found && !w->frozen && plan_is_small(e))))
		queue_remove(p, w);
	/* A file that already waits keeps its place, because files that were closed since may refer
	 * to it. A small file may refer to files in the line. */
	w->behind = w->entry->dir->line && plan_is_small(w->entry) ? w->entry->dir->line_in : 0;
	queue_add(p, w);
	if (kind == CLOSE_EXIT)
		return 0;
	if (w->send == SEND_IDLE) {
		/* Many closed files may wait, so the memory that only open files need is freed. */
		plan_forget_writers(p, w);
		free(w->opening);
		w->opening = NULL;
	}
	plan_note(p, JOURNAL_CLOSED, e, &e->seen);
	return 0;
}

int plan_closed(struct plan *p, struct entry *e, const struct ident *ident, uint32_t mode,
	enum close_kind kind, int64_t now_ms)
{
	const bool same = ident_equal(ident, &e->seen);
	int rc = 0;

	if (e->mode != mode) {
		e->mode = mode;
		p->manifest_dirty = true;
	}
	/* This is the close of the killed writer, and the kill has made the file suspect
	 * already. */
	if (e->state == ENTRY_SUSPECT && !e->work->modified) {
		e->seen = *ident;
		p->sweep_ms = 0;
		return 0;
	}
	if (is_unchanged(p, e, ident)) {
		plan_drop_work(p, e);
		e->seen = *ident;
		e->flags &= (uint16_t)~ENTRY_KEEP;
		plan_set_state(p, e, EVENT_CLOSED, ENTRY_CLEAN);
		return 0;
	}
	if (e->state == ENTRY_PARKED && same)
		return 0; /* this close was already handled */
	if (!same)
		e->flags &= (uint16_t)~ENTRY_SYNCED;
	if (is_to_park(p, e, kind)) {
		line_park(p, e, ident, kind == CLOSE_UNSEEN, now_ms);
		plan_drop_work(p, e);
		plan_note(p, JOURNAL_CLOSED, e, &e->seen);
	} else {
		rc = close_file(p, e, ident, kind, now_ms);
	}
	if (rc == 0)
		plan_check(p, e);
	return rc;
}

/* Handles the object of a file that is gone: the object is deleted, or stays. */
static void delete_object(struct plan *p, struct entry *e, int64_t now_ms)
{
	struct work *w = e->work;
	const bool busy = w && w->send != SEND_IDLE;
	const bool published = (e->flags & ENTRY_PUBLISHED) != 0;

	/* The journal forgets an object of an attempt before the run started over, and an object
	 * whose upload has not ended. */
	plan_note(p, published && !(e->flags & ENTRY_OLDER) ? JOURNAL_GONE : JOURNAL_FORGET, e,
		published && w ? &w->published : &e->seen);
	if (!plan_may_delete(p, e) && !busy) {
		plan_drop_work(p, e);
		return;
	}
	w = table_work(p->table, e, now_ms);
	if (!w)
		return; /* out of memory: the object stays, which is safe */
	if (busy)
		w->send = SEND_CHANGED;
	else
		plan_thaw(p, w);
	w->changed_ms = now_ms;
	w->modified = w->settled = w->doomed = false;
	w->how = HOW_FILE;
	w->wait = WAIT_NONE;
	w->waiting_ms = 0;
	w->ready_ms = now_ms + PLAN_DELETE_MS;
	queue_remove(p, w);
	queue_add(p, w);
	plan_check(p, e);
}

void plan_gone(struct plan *p, struct entry *e, int64_t now_ms)
{
	const struct work *w = e->work;

	if (e->state == ENTRY_GONE)
		return;
	p->manifest_dirty = true;
	plan_set_state(p, e, EVENT_REMOVED, ENTRY_GONE);
	if ((e->flags & ENTRY_PUBLISHED) || (w && w->send != SEND_IDLE) ||
		((e->flags & ENTRY_UNSURE) && plan_may_delete(p, e))) {
		delete_object(p, e, now_ms);
		return;
	}
	plan_note(p, JOURNAL_FORGET, e, &e->seen);
	plan_drop_work(p, e);
	if (!(e->flags & ENTRY_LINE)) /* else the entry stays until its turn comes */
		table_remove(p->table, e);
}

void plan_delete(struct plan *p, struct entry *e, int64_t now_ms)
{
	if (e->state != ENTRY_GONE || e->work || !(e->flags & ENTRY_PUBLISHED))
		return;
	e->flags &= (uint16_t)~ENTRY_KEEP;
	p->manifest_dirty = true;
	delete_object(p, e, now_ms);
}

void plan_late(struct plan *p, struct entry *e, int64_t now_ms)
{
	if (e->state != ENTRY_GONE)
		plan_set_state(p, e, EVENT_REMOVED, ENTRY_GONE);
	plan_unsure(e, e->seen.ino);
	delete_object(p, e, now_ms);
}

void plan_returned(struct plan *p, struct entry *e)
{
	if (!e->below)
		plan_drop_work(p, e);
	plan_set_state(p, e, EVENT_RETURNED, ENTRY_CLEAN);
}

int plan_again(struct plan *p, struct entry *e, bool missing, int64_t now_ms)
{
	struct work *w = table_work(p->table, e, now_ms);

	if (!w)
		return -1;
	if (missing) {
		e->flags &= (uint16_t) ~(ENTRY_PUBLISHED | ENTRY_HAS_CRC | ENTRY_APPENDED);
		entry_set_etag(e, NULL);
		p->manifest_dirty = true;
	}
	w->waiting_ms = w->ready_ms = now_ms;
	w->close = w->first_close = ++p->closes;
	queue_add(p, w);
	plan_trust(p, e, EVENT_RESEND);
	plan_check(p, e);
	return 0;
}

void plan_task_ended(struct plan *p, bool killed, int64_t now_ms)
{
	line_task_ended(p, killed, now_ms);
	for (struct work *w = p->table->works, *next; w; w = next) {
		struct entry *e = w->entry;
		bool dead = false;

		next = w->all_next;
		if (e->state == ENTRY_HELD) {
			dead = killed;
			if (!killed) {
				w->ready_ms = now_ms;
				plan_trust(p, e, EVENT_TRUSTED);
			}
		} else if (e->state == ENTRY_OPEN) {
			dead = killed && !has_living_writer(w);
		} else if (e->state == ENTRY_CLOSED) {
			dead = killed && w->unseen && w->how != HOW_REST &&
			       now_ms - w->changed_ms <= PLAN_DYING_MS;
			/* A task that ended normally confirms its closes, even if the next task is
			 * killed. */
			w->unseen = w->unseen && killed;
		}
		if (dead)
			plan_make_suspect(p, e, w);
		plan_check(p, e);
	}
}

/* ---- flush ---- */

void plan_flush_begin(struct plan *p)
{
	p->flushing = true;
	p->late = false;
	p->sweep_ms = 0;
	p->pause_until_ms = 0;
	p->pause_ms = 0;
	for (struct work *w = p->table->works; w; w = w->all_next) {
		w->settled = false;
		if (w->wait == WAIT_DATA)
			w->wait = WAIT_NONE;
	}
}

void plan_flush_end(struct plan *p)
{
	p->flushing = false;
	for (struct work *w = p->table->works; w; w = w->all_next)
		w->settled = false;
}

size_t plan_flush_pending(const struct plan *p)
{
	size_t n = p->n_parked;

	for (const struct work *w = p->table->works; w; w = w->all_next)
		if (w->send != SEND_IDLE || (!w->settled && plan_is_waiting(w)))
			n++;
	return n;
}
