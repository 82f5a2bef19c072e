/* What became of a job. */
#include <stdlib.h>
#include <string.h>

#include <penstock/error.h>

#include "sync/commits.h"
#include "sync/plan_internal.h"
#include "sync/queue.h"
#include "base/banned.h"

#define PAUSE_FIRST_MS 500
#define PAUSE_MAX_MS   30000
#define PAUSE_FLUSH_MS 2000 /* somebody waits */

static void done_whole(
	struct plan *p, const struct job *job, const struct job_result *r, int64_t now_ms)
{
	struct entry *e = job->entry;
	struct work *w = job->work;
	bool open = r->kind == JOB_GROWN && !job->closed;

	e->flags |= ENTRY_PUBLISHED;
	e->flags &= (uint16_t) ~(
		ENTRY_HAS_CRC | ENTRY_APPENDED | ENTRY_KEEP | ENTRY_OLDER | ENTRY_SYNCED);
	e->flags |= r->has_crc ? ENTRY_HAS_CRC : 0;
	e->flags |= open ? ENTRY_APPENDED : 0;
	e->crc = r->crc;
	entry_set_etag(e, r->etag); /* without memory for it the next upload asks what is there */
	w->published = r->ident;
	w->tries = w->broken = 0;
	w->error = 0;
	if (w->opening) {
		w->opening->grown_ms = now_ms;
		w->opening->grown_cost_ms = now_ms - job->started_ms;
	}
	p->manifest_dirty = true;
	p->busy_bytes += r->ident.size;
	plan_note(p, open ? JOURNAL_APPENDED : JOURNAL_PUBLISHED, e, &r->ident);
	if (e->state == ENTRY_CLOSED && w->changed) /* that was not the last word */
		plan_note(p, JOURNAL_CLOSED, e, &e->seen);
	w->waiting_ms = e->state == ENTRY_CLOSED ? now_ms : 0;
	w->first_close = job->close + 1;
	if (open && w->opening && e->state == ENTRY_OPEN) {
		w->opening->sent = r->ident;
		w->settled = p->flushing && !w->changed;
		w->dirty_ms = w->changed_ms > job->started_ms ? job->started_ms : now_ms;
		return;
	}
	w->dirty_ms = job->started_ms;
	if (w->changed || open) {
		/* There is a newer version, which is in its place of the queue if it was closed. */
		w->restless = w->queued && plan_is_small(e);
		if (e->state == ENTRY_OPEN || job->frozen)
			queue_remove(p, w);
		/* Behind the copies of others that were made together with the one that was sent. */
		if (e->state == ENTRY_CLOSED)
			queue_add(p, w);
		return;
	}
	e->seen = r->ident;
	e->state = ENTRY_CLEAN;
	plan_drop_work(p, e);
}

static void done_partial(
	struct plan *p, const struct job *job, const struct job_result *r, int64_t now_ms)
{
	struct entry *e = job->entry;
	struct work *w = job->work;

	if (work_open(w)) {
		w->opening->sent = r->ident;
		w->opening->grown_ms = w->opening->partial_ms = now_ms;
		w->opening->grown_cost_ms = (now_ms - job->started_ms) * 2;
	}
	w->settled = p->flushing && !w->changed;
	w->error = 0;
	e->flags |= ENTRY_IN_PARTIAL;
	p->manifest_dirty = true;
	if (e->state == ENTRY_SUSPECT && !w->changed)
		e->seen = r->ident;
	/* It was to be the rest of a log, and is not one. */
	if (e->state == ENTRY_CLOSED && w->tail && !w->changed) {
		w->tail = false;
		e->state = ENTRY_SUSPECT;
		e->seen = r->ident;
		queue_remove(p, w);
		plan_note(p, JOURNAL_SUSPECT, e, &e->seen);
	}
}

static void done_delete(struct plan *p, struct entry *e)
{
	struct work *w = e->work;

	e->flags &= (uint16_t) ~(ENTRY_PUBLISHED | ENTRY_HAS_CRC | ENTRY_APPENDED);
	entry_set_etag(e, NULL);
	p->manifest_dirty = true;
	memset(&w->published, 0, sizeof(w->published));
	if (e->below) { /* it was the object of a file that is a directory now */
		plan_drop_work(p, e);
		return;
	}
	if (e->state != ENTRY_GONE)
		return; /* it came back meanwhile, and is in the queue */
	plan_note(p, JOURNAL_FORGET, e, &e->seen);
	plan_drop_work(p, e);
	table_remove(p->table, e);
}

static void failed(struct plan *p, struct work *w, const struct job_result *r, int64_t now_ms)
{
	if (w->tries < UINT16_MAX)
		w->tries++;
	w->error = (uint8_t)r->error;
	if (r->retryable) {
		p->pause_ms = p->pause_ms ? p->pause_ms * 2 : PAUSE_FIRST_MS;
		if (p->pause_ms > PAUSE_MAX_MS)
			p->pause_ms = PAUSE_MAX_MS;
		if (p->flushing && p->pause_ms > PAUSE_FLUSH_MS)
			p->pause_ms = PAUSE_FLUSH_MS;
		p->pause_until_ms = now_ms + p->pause_ms;
		return;
	}
	/* Waiting does not help this one, so it must not hold up its directory. */
	queue_remove(p, w);
	plan_thaw(p, w);
	w->give_up = true;
	w->ready_ms = now_ms + PLAN_RETRY_MS;
	w->settled = p->flushing && !w->changed;
}

static void changed_under(
	struct plan *p, const struct job *job, enum job_outcome outcome, int64_t now_ms)
{
	struct entry *e = job->entry;
	struct work *w = job->work;

	if (outcome == JOB_CHANGED && job->snapshot && w->broken < UINT16_MAX)
		w->broken++;
	plan_thaw(p, w);
	/* The version that had this place was not published: what was closed after it still waits. */
	if (w->queued) {
		w->restless = plan_is_small(e);
		queue_remove(p, w);
		queue_add_first(p, w);
	}
	w->snapshot = !plan_is_small(e);
	if (e->state != ENTRY_CLOSED)
		return;
	if (outcome == JOB_WRITER && !w->reclosed && work_open(w)) {
		/* Its close will come; a close that was missed is found by the scan. */
		e->state = ENTRY_OPEN;
		w->opening->opened_ms = now_ms;
		return;
	}
	w->ready_ms = w->reclosed ? now_ms : now_ms + p->quiet_ms;
}

/* Nothing was sent of an open file this time. */
static void tried(struct work *w, int64_t now_ms)
{
	if (w->opening)
		w->opening->grown_ms = now_ms;
}

/* A commit before its data, which was perhaps opened again: others of its directory need not wait for that. */
static void too_early(struct plan *p, struct work *w, int64_t now_ms)
{
	if (w->queued) {
		queue_remove(p, w);
		queue_add(p, w);
	}
	w->waits = true;
	w->ready_ms = now_ms + PLAN_DATA_MS;
	w->settled = p->flushing && !w->changed && commits_is_stuck(p, w);
}

/* It is looked at again now and then, as the user may mend it. */
static void damaged(struct plan *p, struct work *w, int64_t now_ms)
{
	queue_remove(p, w);
	w->give_up = true;
	w->ready_ms = now_ms + PLAN_RETRY_MS;
	w->settled = p->flushing && !w->changed;
}

void plan_done(struct plan *p, const struct job *job, const struct job_result *r, int64_t now_ms)
{
	struct entry *e = job->entry;
	struct work *w = job->work;

	w->busy = false;
	if (--p->n_busy == 0)
		p->busy_ms += now_ms - p->busy_since_ms;
	if (job->queued)
		e->dir->busy = false;
	if (job->large)
		p->large_busy--;
	if (r->outcome == JOB_DONE)
		p->pause_ms = 0;
	/* After a failure that may pass, the same is sent again. */
	if (r->outcome != JOB_FAILED || !w->queued || e->state == ENTRY_GONE)
		plan_thaw(p, w);
	switch (r->outcome) {
	case JOB_DONE:
		if (job->kind == JOB_DELETE)
			done_delete(p, e);
		else if (r->kind == JOB_PARTIAL)
			done_partial(p, job, r, now_ms);
		else
			done_whole(p, job, r, now_ms);
		break;
	case JOB_CHANGED:
	case JOB_WRITER:
		if (job->kind == JOB_WHOLE)
			changed_under(p, job, r->outcome, now_ms);
		else if (job->kind != JOB_DELETE)
			tried(w, now_ms);
		break;
	case JOB_MISSING:
		if (!w->changed)
			plan_gone(p, e, now_ms);
		break;
	case JOB_NOTHING:
		tried(w, now_ms);
		w->settled = p->flushing && !w->changed;
		break;
	case JOB_FAILED:
		failed(p, w, r, now_ms);
		break;
	case JOB_WAIT:
		too_early(p, w, now_ms);
		break;
	case JOB_DAMAGED:
		damaged(p, w, now_ms);
		break;
	}
}
