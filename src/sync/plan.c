#include "sync/plan.h"

#include <stdlib.h>
#include <string.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "checkpoint/commit.h"
#include "sync/commits.h"
#include "sync/plan_internal.h"
#include "sync/queue.h"
#include "base/banned.h"

void plan_note(struct plan *p, enum journal_type type, struct entry *e, const struct ident *ident)
{
	if (p->note)
		p->note(p->cookie, type, e, ident);
}

bool plan_is_small(const struct entry *e)
{
	return e->seen.size <= PLAN_MARKER;
}

/* It was closed just now. */
static void enqueue_closed(struct plan *p, struct work *w)
{
	/* While a worker sends the version before, this one goes behind what was closed since. */
	if (w->queued && w->busy)
		queue_remove(p, w);
	/* Else what was closed since may need it; or it needs that, if it is restless. */
	w->behind = w->entry->dir->line && plan_is_small(w->entry) ? w->entry->dir->line_in : 0;
	queue_add(p, w);
}

static void forget_writers(struct plan *p, struct work *w)
{
	w->appender = false;
	if (!w->opening)
		return;
	for (size_t i = 0; i < WORK_WRITERS; i++) {
		if (w->opening->writers[i])
			proc_unref(p->procs, w->opening->writers[i]);
		w->opening->writers[i] = NULL;
	}
	w->opening->looked = 0;
}

void plan_drop_work(struct plan *p, struct entry *e)
{
	struct work *w = e->work;

	if (!w || w->busy)
		return;
	queue_remove(p, w);
	plan_thaw(p, w);
	forget_writers(p, w);
	table_drop_work(p->table, e);
}

void plan_add_writer(struct plan *p, struct work *w, struct proc *proc, bool append)
{
	struct opening *o = work_open(w);

	(void)p;
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

/* Events. */

int plan_changed(struct plan *p, struct entry *e, int64_t now_ms)
{
	struct work *w = table_work(p->table, e, now_ms);

	if (!w || !work_open(w)) {
		if (w && e->state == ENTRY_PARKED)
			plan_drop_work(p, e);
		if (w && e->state == ENTRY_CLEAN)
			plan_drop_work(p, e); /* or it would look as if it were being dealt with */
		return -1;
	}
	if (e->state != ENTRY_OPEN) {
		line_leave(p, e);
		forget_writers(p, w);
		table_touch_work(p->table, w);
		w->doomed = false;
		w->opening->opened_ms = now_ms;
		w->opening->grown_ms = 0;
		e->state = ENTRY_OPEN;
	}
	w->changed_ms = now_ms;
	w->modified = true;
	w->settled = false;
	if (w->busy) {
		w->changed = true;
		w->reclosed = false;
	}
	return 0;
}

/* A log keeps what it had: its lines are as good as those that were published of it. */
static bool only_grows(const struct entry *e, const struct work *w)
{
	return (e->flags & ENTRY_APPENDED) || w->appender;
}

static void make_suspect(struct plan *p, struct entry *e, struct work *w)
{
	w->settled = false;
	w->modified = false;
	if (w->busy)
		w->changed = true;
	if (only_grows(e, w)) {
		e->state = ENTRY_CLOSED;
		w->ready_ms = w->changed_ms;
		w->tail = true;
		queue_add(p, w);
		return;
	}
	e->state = ENTRY_SUSPECT;
	queue_remove(p, w);
	if (!w->busy)
		plan_thaw(p, w);
	if (w->opening)
		memset(&w->opening->sent, 0, sizeof(w->opening->sent));
	p->sweep_ms = 0;
	plan_note(p, JOURNAL_SUSPECT, e, &e->seen);
}

int plan_suspect(struct plan *p, struct entry *e, const struct ident *ident, int64_t now_ms)
{
	struct work *w = table_work(p->table, e, now_ms);

	if (!w)
		return -1;
	line_leave(p, e);
	e->seen = *ident;
	make_suspect(p, e, w);
	return 0;
}

/* There is nothing about it but that it was closed, and others wait already. */
static bool is_to_park(const struct plan *p, const struct entry *e, enum close_kind kind)
{
	const struct work *w = e->work;

	return (kind == CLOSE_TRUE || kind == CLOSE_UNSEEN) && !(e->flags & ENTRY_PUBLISHED) &&
	       !e->below && !(w && (w->busy || w->queued || w->doomed)) &&
	       (e->dir->line || line_is_full(p, e->dir));
}

/* It is to rest for a moment; but one that is never quiet gets its turn, too. */
static int64_t quiet_at(const struct plan *p, const struct work *w, int64_t now_ms)
{
	int64_t latest = w->waiting_ms + PLAN_RESTLESS_MS;

	return now_ms + p->quiet_ms < latest ? now_ms + p->quiet_ms
	       : now_ms > latest	     ? now_ms
					     : latest;
}

int plan_closed(struct plan *p, struct entry *e, const struct ident *ident, uint32_t mode,
	enum close_kind kind, int64_t now_ms)
{
	struct work *w = e->work;

	if (e->mode != mode) {
		e->mode = mode;
		p->manifest_dirty = true;
	}
	if (e->state == ENTRY_SUSPECT && w && !w->modified) {
		/* The close of the writer that died. */
		e->seen = *ident;
		p->sweep_ms = 0;
		return 0;
	}
	if (!(w && (w->modified || w->busy)) && !p->always_dirty && (e->flags & ENTRY_PUBLISHED) &&
		!(e->flags & ENTRY_APPENDED) && ident_equal(ident, w ? &w->published : &e->seen)) {
		plan_drop_work(p, e);
		e->seen = *ident;
		e->state = ENTRY_CLEAN;
		return 0;
	}
	if (e->state == ENTRY_PARKED && ident_equal(ident, &e->seen))
		return 0; /* that was it */
	if (!ident_equal(ident, &e->seen))
		e->flags &= (uint16_t)~ENTRY_SYNCED;
	if (is_to_park(p, e, kind)) {
		line_park(p, e, ident, kind == CLOSE_UNSEEN, now_ms);
		plan_drop_work(p, e);
		plan_note(p, JOURNAL_CLOSED, e, &e->seen);
		return 0;
	}
	w = table_work(p->table, e, now_ms);
	if (!w)
		return -1;
	line_leave(p, e);
	if (w->doomed)
		kind = CLOSE_KILLED;
	w->doomed = false;
	/* Its event comes after it was found closed. */
	w->restless &= w->found && ident_equal(ident, &e->seen);
	w->restless |= w->waiting_ms && w->queued && ident->size <= PLAN_MARKER &&
		       !(w->found && ident_equal(ident, &e->seen));
	w->found = false;
	e->seen = *ident;
	e->flags &= (uint16_t)~ENTRY_KEEP;
	w->modified = false;
	w->settled = false;
	w->tail = false;
	w->give_up = false;
	w->waits = false;
	e->flags &= (uint16_t)~ENTRY_RETIRED;
	w->changed_ms = now_ms;
	w->close = ++p->closes;
	if (!w->waiting_ms) {
		w->waiting_ms = now_ms;
		w->first_close = w->close;
	}
	w->unseen = kind == CLOSE_UNSEEN;
	if (w->busy) {
		w->changed = true;
		w->reclosed = true;
	}
	if (kind == CLOSE_KILLED) {
		make_suspect(p, e, w);
		return 0;
	}
	e->state = kind == CLOSE_EXIT ? ENTRY_HELD : ENTRY_CLOSED;
	w->ready_ms = kind == CLOSE_EXIT ? now_ms + PLAN_HOLD_MS
		      : w->snapshot	 ? now_ms
					 : quiet_at(p, w, now_ms);
	enqueue_closed(p, w);
	if (kind != CLOSE_EXIT && !w->busy) {
		/* Many closed files may wait: what is only of open ones takes no memory. */
		forget_writers(p, w);
		free(w->opening);
		w->opening = NULL;
	}
	if (kind != CLOSE_EXIT)
		plan_note(p, JOURNAL_CLOSED, e, &e->seen);
	return 0;
}

static bool may_delete(const struct plan *p, const struct entry *e)
{
	return p->may_delete || (p->may_retire && (e->flags & ENTRY_RETIRED));
}

void plan_gone(struct plan *p, struct entry *e, int64_t now_ms)
{
	struct work *w;

	if (e->state == ENTRY_GONE)
		return;
	p->manifest_dirty = true;
	line_leave(p, e);
	w = e->work;
	if (!(e->flags & ENTRY_PUBLISHED) && !(w && w->busy)) {
		plan_note(p, JOURNAL_FORGET, e, &e->seen);
		plan_drop_work(p, e);
		if (e->flags & ENTRY_LINE)
			e->state = ENTRY_GONE; /* until its turn comes */
		else
			table_remove(p->table, e);
		return;
	}
	e->state = ENTRY_GONE;
	/* What stands there is of before the run began anew: none of ours to delete. */
	plan_note(p, e->flags & ENTRY_OLDER ? JOURNAL_FORGET : JOURNAL_GONE, e, &e->seen);
	if ((!may_delete(p, e) || (e->flags & ENTRY_OLDER)) && !(w && w->busy)) {
		plan_drop_work(p, e);
		return;
	}
	w = table_work(p->table, e, now_ms);
	if (!w)
		return; /* the object stays, which is the safe side */
	if (!w->busy)
		plan_thaw(p, w);
	w->changed_ms = now_ms;
	w->modified = false;
	w->settled = false;
	w->restless = false;
	w->waiting_ms = 0;
	w->ready_ms = now_ms + PLAN_DELETE_MS;
	if (w->busy)
		w->changed = true;
	queue_remove(p, w);
	queue_add(p, w);
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
	e->state = ENTRY_CLOSED;
	w->waiting_ms = w->ready_ms = now_ms;
	w->close = w->first_close = ++p->closes;
	queue_add(p, w);
	plan_note(p, JOURNAL_CLOSED, e, &e->seen);
	return 0;
}

void plan_task_ended(struct plan *p, bool killed, int64_t now_ms)
{
	line_task_ended(p, killed, now_ms);
	for (struct work *w = p->table->works, *next; w; w = next) {
		struct entry *e = w->entry;

		next = w->all_next;
		if (e->state == ENTRY_HELD) {
			if (killed) {
				make_suspect(p, e, w);
			} else {
				e->state = ENTRY_CLOSED;
				w->ready_ms = now_ms;
				plan_note(p, JOURNAL_CLOSED, e, &e->seen);
			}
		} else if (killed && e->state == ENTRY_CLOSED && w->unseen && !w->tail &&
			   now_ms - w->changed_ms <= PLAN_DYING_MS) {
			make_suspect(p, e, w);
		} else if (!killed && e->state == ENTRY_CLOSED) {
			w->unseen =
				false; /* that its task ended well vouches for it, whoever is killed next */
		} else if (killed && e->state == ENTRY_OPEN) {
			if (!has_living_writer(w))
				make_suspect(p, e, w);
		}
	}
}

/* Jobs. */

static void lower(int64_t *wake_ms, int64_t at)
{
	if (at < *wake_ms)
		*wake_ms = at;
}

static void hand_out(
	struct plan *p, struct work *w, enum job_kind kind, int64_t now_ms, struct job *job)
{
	struct entry *e = w->entry;

	*job = (struct job){
		.kind = kind,
		.entry = e,
		.work = w,
		.frozen = w->frozen,
		.close = w->frozen ? w->frozen->close : p->closes,
		.snapshot = w->snapshot || w->frozen,
		.patient = w->broken >= 3,
		.large = e->seen.size >= PLAN_LARGE && kind != JOB_DELETE && !w->frozen,
		.closed = e->state != ENTRY_OPEN,
		.queued = w->queued,
		.started_ms = now_ms,
		.flushing = p->flushing,
		.appender = w->appender,
		.partial_ms = INT64_MAX,
	};
	if (w->opening) {
		job->open_ms = now_ms - w->opening->opened_ms;
		job->sent = w->opening->sent;
		if (w->opening->partial_ms)
			job->partial_ms = now_ms - w->opening->partial_ms;
	}
	if (kind == JOB_GROWN && (e->flags & ENTRY_PUBLISHED)) {
		job->grown_known = true;
		job->grown = w->published;
		job->grown_has_crc = (e->flags & ENTRY_HAS_CRC) != 0;
		job->grown_crc = e->crc;
	}
	job->older = (e->flags & ENTRY_OLDER) != 0;
	if ((e->flags & ENTRY_PUBLISHED) && !job->older)
		entry_etag(e, job->etag);
	w->busy = true;
	if (!p->n_busy)
		p->busy_since_ms = now_ms;
	w->changed = w->reclosed = w->restless = false;
	if (w->frozen && (e->state != ENTRY_CLOSED || w->close != w->frozen->close)) {
		w->changed = true;
		w->reclosed = e->state == ENTRY_CLOSED;
	}
	if (w->queued)
		e->dir->busy = true;
	p->n_busy++;
	if (job->large)
		p->large_busy++;
}

static bool large_must_wait(const struct plan *p, const struct entry *e)
{
	return e->seen.size >= PLAN_LARGE && p->workers > 2 && p->large_busy >= p->workers - 2;
}

/* Whether it would be through before the deadline, as fast as it has gone so far; what replaces nothing always is. */
static bool fits(const struct plan *p, const struct entry *e, int64_t now_ms)
{
	int64_t ms = p->busy_ms + (p->n_busy ? now_ms - p->busy_since_ms : 0);

	if (!p->flushing || !p->deadline_ms || !(e->flags & ENTRY_PUBLISHED) ||
		e->state != ENTRY_CLOSED || ms < PLAN_RATE_MS || !p->busy_bytes)
		return true;
	return (double)e->seen.size * (double)ms / (double)p->busy_bytes <=
	       (double)(p->deadline_ms - now_ms);
}

/* A commit goes when all that it may name has gone, also what is in the queue behind it. */
static bool commit_is_early(struct plan *p, struct work *w, int64_t now_ms, int64_t *wake_ms)
{
	if (w->waits && now_ms < w->ready_ms) {
		lower(wake_ms, w->ready_ms);
		return true;
	}
	if (!commits_wait(p, w))
		return false;
	if (w->next) {
		queue_remove(p, w);
		queue_add(p, w);
		lower(wake_ms, now_ms + PLAN_DATA_MS);
	}
	return true;
}

/* Whether the head of a queue can go now; takes heads out that must not hold up the others. */
static bool head_ready(struct plan *p, struct dir *d, int64_t now_ms, int64_t *wake_ms)
{
	struct work *w = d->head;

	if (d->busy || w->busy)
		return false;
	if (w->entry->state == ENTRY_CLOSED && commit_is_name(w->entry->name) &&
		commit_is_early(p, w, now_ms, wake_ms))
		return d->head != w && !commit_is_name(d->head->entry->name) &&
		       head_ready(p, d, now_ms, wake_ms);
	if (w->frozen)
		return !w->settled;
	if (w->entry->state == ENTRY_OPEN) {
		if (!p->flushing && now_ms < w->opening->opened_ms + PLAN_REOPEN_MS) {
			lower(wake_ms, w->opening->opened_ms + PLAN_REOPEN_MS);
			return false;
		}
		queue_remove(p, w);
		lower(wake_ms, now_ms);
		return false;
	}
	if (!p->flushing && w->ready_ms > now_ms) {
		lower(wake_ms, w->ready_ms);
		return false;
	}
	if (w->entry->state == ENTRY_HELD) {
		w->entry->state = ENTRY_CLOSED;
		plan_note(p, JOURNAL_CLOSED, w->entry, &w->entry->seen);
	}
	if (!w->settled && !fits(p, w->entry, now_ms)) {
		/* The next flush looks at it again. */
		p->late = w->settled = w->give_up = true;
		w->ready_ms = now_ms;
		queue_remove(p, w);
		lower(wake_ms, now_ms);
		return false;
	}
	return !w->settled && !large_must_wait(p, w->entry);
}

/*
 * The file went away while a worker had it. What became of its object is known now: one that this
 * run did not publish is not its to delete, and without leave none is.
 */
static bool nothing_to_delete(struct plan *p, struct entry *e)
{
	if ((e->state != ENTRY_GONE && !e->below) ||
		(may_delete(p, e) && (e->flags & ENTRY_PUBLISHED)))
		return false;
	plan_drop_work(p, e);
	if (!e->below && !(e->flags & ENTRY_PUBLISHED)) {
		plan_note(p, JOURNAL_FORGET, e, &e->seen);
		table_remove(p->table, e);
	}
	return true;
}

/* A head that is to come after files of the line: those come into the queue, and it goes behind them. */
static void put_behind_line(struct plan *p, struct dir *d, int64_t now_ms)
{
	struct work *w;

	while (!d->busy && (w = d->head) && w->behind && !w->busy) {
		if (d->line_out >= w->behind || !line_next(p, d, now_ms))
			w->behind = 0;
		queue_remove(p, w);
		queue_add(p, w);
	}
}

/* What it has now may need what was closed after it: it is to be frozen with all that is so. */
static bool to_be_frozen(struct dir *d, int64_t now_ms, int64_t *wake_ms, bool *wait)
{
	const struct work *w = d->head;

	*wait = false;
	if (!w->restless || w->entry->state != ENTRY_CLOSED || d->n_frozen)
		return false;
	*wait = now_ms < d->freeze_ms;
	if (*wait)
		lower(wake_ms, d->freeze_ms);
	return !*wait;
}

static bool next_queued(struct plan *p, int64_t now_ms, struct job *job, int64_t *wake_ms)
{
	const struct dir *first = commits_first(p);
	bool wait;

	for (struct dir *d = p->active, *next; d; d = next) {
		next = d->active_next;
		if (first && !commits_is_below(d, first))
			continue;
		put_behind_line(p, d, now_ms);
		if (!head_ready(p, d, now_ms, wake_ms))
			continue;
		struct work *w = d->head;

		if (nothing_to_delete(p, w->entry)) {
			lower(wake_ms, now_ms);
			continue;
		}
		if (to_be_frozen(d, now_ms, wake_ms, &wait)) {
			*job = (struct job){.kind = JOB_FREEZE, .dir = d};
			return true;
		}
		if (wait)
			continue;
		/* The next directory's turn comes before this one's again. */
		queue_deactivate(p, d);
		queue_activate(p, d);
		hand_out(p, w,
			w->entry->state == ENTRY_GONE || w->entry->below ? JOB_DELETE
			: w->tail					 ? JOB_GROWN
									 : JOB_WHOLE,
			now_ms, job);
		return true;
	}
	return false;
}

static int64_t grown_due(const struct plan *p, const struct work *w)
{
	const struct opening *o = w->opening;
	int64_t pause = o->grown_cost_ms * 10;

	if (p->flushing)
		return 0;
	if (pause < p->append_ms)
		pause = p->append_ms;
	return (o->grown_ms ? o->grown_ms : o->opened_ms) + pause;
}

static bool sent_as_it_is(const struct work *w)
{
	return w->opening && ident_equal(&w->opening->sent, &w->entry->seen);
}

/* Files outside the queues: open, suspect, or set aside after a failure. */
static bool side_job(struct plan *p, struct work *w, int64_t now_ms, enum job_kind *kind)
{
	struct entry *e = w->entry;

	if (w->busy || w->settled || w->queued)
		return false;
	if (w->give_up && !p->flushing && now_ms < w->ready_ms)
		return false;
	if (e->state == ENTRY_OPEN) {
		*kind = JOB_GROWN;
		return now_ms >= grown_due(p, w) && !large_must_wait(p, e);
	}
	if (e->state == ENTRY_SUSPECT) {
		*kind = JOB_PARTIAL;
		return !sent_as_it_is(w) && !large_must_wait(p, e) && !commits_may_vouch(p, e);
	}
	if (e->state == ENTRY_CLOSED && w->give_up) {
		w->give_up = false;
		queue_add(p, w);
		p->sweep_ms = 0;
	}
	return false;
}

bool plan_next(struct plan *p, int64_t now_ms, struct job *job, int64_t *wake_ms)
{
	enum job_kind kind;

	if (p->stopped || (!p->continuous && !p->flushing))
		return false;
	if (now_ms < p->pause_until_ms) {
		lower(wake_ms, p->pause_until_ms);
		return false;
	}
	line_refill(p, now_ms);
	if (next_queued(p, now_ms, job, wake_ms))
		return true;
	if (!p->table->works)
		return false;
	if (now_ms >= p->sweep_ms || p->flushing) {
		p->sweep_ms = now_ms + PLAN_SWEEP_MS;
		for (struct work *w = p->table->works; w; w = w->all_next) {
			if (side_job(p, w, now_ms, &kind)) {
				p->sweep_ms = 0; /* there may be more */
				hand_out(p, w, kind, now_ms, job);
				return true;
			}
		}
		if (next_queued(p, now_ms, job, wake_ms))
			return true;
	}
	lower(wake_ms, p->sweep_ms > now_ms ? p->sweep_ms : now_ms + PLAN_SWEEP_MS);
	return false;
}

bool plan_still_valid(const struct plan *p, const struct job *job)
{
	const struct work *w = job->work;
	unsigned state = job->entry->state;

	if (p->stopped)
		return false;
	switch (job->kind) {
	case JOB_FREEZE:
		break;
	case JOB_WHOLE:
		/* A snapshot is one whole version, whatever happened to the file since; but not if
		 * it turned out that its writer was killed. */
		return state != ENTRY_SUSPECT && (job->snapshot || !w->changed);
	case JOB_GROWN:
		return state != ENTRY_GONE;
	case JOB_PARTIAL:
	case JOB_DELETE:
		return !w->changed;
	}
	return false;
}

void plan_flush_begin(struct plan *p)
{
	p->flushing = true;
	p->late = false;
	p->sweep_ms = 0;
	p->pause_until_ms = 0;
	p->pause_ms = 0;
	for (struct work *w = p->table->works; w; w = w->all_next)
		w->settled = w->waits = false;
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
		if (w->busy || (!w->settled && plan_is_waiting(w)))
			n++;
	return n;
}

bool plan_is_waiting(const struct work *w)
{
	if (w->entry->below)
		return w->queued;
	switch ((enum entry_state)w->entry->state) {
	case ENTRY_SUSPECT:
		return !sent_as_it_is(w);
	case ENTRY_CLEAN:
	case ENTRY_PARKED:
		return false;
	case ENTRY_GONE:
		return w->queued;
	case ENTRY_OPEN:
	case ENTRY_HELD:
	case ENTRY_CLOSED:
		break;
	}
	return true;
}
