/* Handles the end of a job. */
#include <string.h>

#include "sync/plan/commits.h"
#include "sync/plan/state.h"
#include "sync/plan/queue.h"

#define PAUSE_FIRST_MS 500
#define PAUSE_MAX_MS   30000
#define PAUSE_FLUSH_MS 2000 /* longest pause in a flush, because the caller waits */

/* A job that ended. */
struct ended {
	const struct job *job;
	const struct job_result *r;
	enum work_send send; /* the changes of the file since the job was made */
	int64_t now_ms;
};

static bool has_changed(const struct ended *d)
{
	return d->send == SEND_CHANGED || d->send == SEND_RECLOSED;
}

/* Notes that the flush has done all that it could for the file, unless the file changed
 * meanwhile. */
static void settle(const struct plan *p, struct work *w, const struct ended *d)
{
	w->settled = p->flushing && !has_changed(d);
}

/* Records that the file is published under its name. */
static void record_object(struct plan *p, const struct ended *d, bool open)
{
	struct entry *e = d->job->entry;
	struct work *w = d->job->work;
	const struct job_result *r = d->r;

	e->flags |= ENTRY_PUBLISHED;
	e->flags &= (uint16_t) ~(ENTRY_HAS_CRC | ENTRY_APPENDED | ENTRY_KEEP | ENTRY_OLDER |
				 ENTRY_SYNCED | ENTRY_UNSURE);
	e->flags |= r->has_crc ? ENTRY_HAS_CRC : 0;
	e->flags |= open ? ENTRY_APPENDED : 0;
	e->crc = r->crc;
	/* If out of memory, the next upload asks the store for the ETag. */
	entry_set_etag(e, r->etag);
	w->published = r->ident;
	w->broken = 0;
	w->error = 0;
	if (w->opening) {
		w->opening->grown_ms = d->now_ms;
		w->opening->grown_cost_ms = d->now_ms - d->job->started_ms;
	}
	p->manifest_dirty = true;
	p->busy_bytes += r->ident.size;
	plan_note(p, open ? JOURNAL_APPENDED : JOURNAL_PUBLISHED, e, &r->ident);
}

/* Chooses how the next version is sent. Does not change HOW_REST. */
static void choose_how(struct work *w, enum work_how how)
{
	if (w->how != HOW_REST)
		w->how = how;
}

static void done_whole(struct plan *p, const struct ended *d)
{
	const struct job *job = d->job;
	struct entry *e = job->entry;
	struct work *w = job->work;
	const bool open = d->r->kind == JOB_GROWN && !job->closed;
	/* A file that was closed and opened again since the job was made keeps the place of that
	 * close. */
	const bool reopened = e->state == ENTRY_OPEN && w->queued && w->close > job->close;
	const bool waits = e->state == ENTRY_CLOSED || e->state == ENTRY_HELD || reopened;

	record_object(p, d, open);
	/* The record of the newer close must follow the record of the publication. */
	if (e->state == ENTRY_CLOSED && has_changed(d))
		plan_note(p, JOURNAL_CLOSED, e, &e->seen);
	if (e->state == ENTRY_GONE) /* the file was removed during the upload */
		plan_note(p, JOURNAL_GONE, e, &w->published);
	w->waiting_ms = waits ? d->now_ms : 0;
	w->first_close = job->close + 1;
	if (open && w->opening && e->state == ENTRY_OPEN) {
		w->opening->sent = d->r->ident;
		settle(p, w, d);
		w->dirty_ms = w->changed_ms > job->started_ms ? job->started_ms : d->now_ms;
		return;
	}
	w->dirty_ms = job->started_ms;
	if (has_changed(d) || open) {
		/* There is a newer version, which has its place in the queue if it was closed. */
		if (w->queued && plan_is_small(e))
			choose_how(w, HOW_COPY);
		else if (w->how == HOW_COPY)
			w->how = HOW_FILE;
		/* The file goes behind the copies that were made together with the copy just sent,
		 * but not behind files that were closed later. */
		if ((e->state == ENTRY_OPEN && !reopened) || (waits && job->frozen))
			queue_remove(p, w);
		if (waits && !w->queued)
			queue_add_by_close(p, w);
		return;
	}
	e->seen = d->r->ident;
	plan_set_state(p, e, EVENT_SENT, ENTRY_CLEAN);
	plan_drop_work(p, e);
}

static void done_partial(struct plan *p, const struct ended *d)
{
	struct entry *e = d->job->entry;
	struct work *w = d->job->work;

	if (work_open(w)) {
		w->opening->sent = d->r->ident;
		w->opening->grown_ms = w->opening->partial_ms = d->now_ms;
		w->opening->grown_cost_ms = (d->now_ms - d->job->started_ms) * 2;
	}
	settle(p, w, d);
	w->error = 0;
	e->flags |= ENTRY_IN_PARTIAL;
	p->manifest_dirty = true;
	if (has_changed(d))
		return;
	if (e->state == ENTRY_SUSPECT)
		e->seen = d->r->ident;
	if (e->state == ENTRY_CLOSED && w->how == HOW_REST) {
		/* The file does not begin with the published lines of the log. */
		w->how = HOW_FILE;
		plan_set_state(p, e, EVENT_TORN, ENTRY_SUSPECT);
		e->seen = d->r->ident;
		queue_remove(p, w);
		plan_note(p, JOURNAL_SUSPECT, e, &e->seen);
	}
}

static void done_delete(struct plan *p, struct entry *e)
{
	struct work *w = e->work;

	e->flags &= (uint16_t) ~(ENTRY_PUBLISHED | ENTRY_HAS_CRC | ENTRY_APPENDED | ENTRY_UNSURE);
	entry_set_etag(e, NULL);
	p->manifest_dirty = true;
	memset(&w->published, 0, sizeof(w->published));
	if (e->below) { /* the name now belongs to a directory */
		plan_drop_work(p, e);
		return;
	}
	if (e->state != ENTRY_GONE)
		return; /* the file came back meanwhile, and is in the queue */
	plan_note(p, JOURNAL_FORGET, e, &e->seen);
	plan_drop_work(p, e);
	table_remove(p->table, e);
}

/* Removes a file from its queue until a retry, because the file cannot be sent, and the other files
 * of the directory must not wait for it. */
static void set_aside(struct plan *p, const struct ended *d)
{
	struct work *w = d->job->work;

	queue_remove(p, w);
	plan_thaw(p, w);
	w->wait = WAIT_RETRY;
	w->ready_ms = d->now_ms + PLAN_RETRY_MS;
	settle(p, w, d);
}

/* Puts a queued file at the head of its queue again. The version whose turn had come was not
 * published, so files that were closed after that version still wait for the next version. */
static void keep_place(struct plan *p, struct work *w)
{
	if (!w->queued)
		return;
	queue_remove(p, w);
	queue_add_first(p, w);
}

static void failed(struct plan *p, const struct ended *d)
{
	struct entry *e = d->job->entry;
	struct work *w = d->job->work;

	w->error = (uint8_t)d->r->error;
	if (!d->r->retryable) {
		set_aside(p, d);
		return;
	}
	if (has_changed(d) && d->job->queued && d->job->kind != JOB_DELETE &&
		e->state != ENTRY_GONE) {
		keep_place(p, w);
		if (plan_is_small(e))
			choose_how(w, HOW_COPY);
	}
	p->pause_ms = p->pause_ms ? p->pause_ms * 2 : PAUSE_FIRST_MS;
	if (p->pause_ms > PAUSE_MAX_MS)
		p->pause_ms = PAUSE_MAX_MS;
	if (p->flushing && p->pause_ms > PAUSE_FLUSH_MS)
		p->pause_ms = PAUSE_FLUSH_MS;
	p->pause_until_ms = d->now_ms + p->pause_ms;
}

/* Handles a file that changed during its upload, or that a writer had open. */
static void changed_under(struct plan *p, const struct ended *d)
{
	struct entry *e = d->job->entry;
	struct work *w = d->job->work;
	const bool small = plan_is_small(e);

	if (d->r->outcome == JOB_CHANGED && d->job->snapshot && w->broken < UINT16_MAX)
		w->broken++;
	plan_thaw(p, w);
	keep_place(p, w);
	choose_how(w, !small ? HOW_SNAPSHOT : w->queued ? HOW_COPY : HOW_FILE);
	if (e->state != ENTRY_CLOSED)
		return;
	if (d->r->outcome == JOB_WRITER && d->send != SEND_RECLOSED && work_open(w)) {
		/* The writer will close the file; the scan finds a close that was missed. */
		plan_set_state(p, e, EVENT_WRITTEN, ENTRY_OPEN);
		w->opening->opened_ms = d->now_ms;
		return;
	}
	w->ready_ms = d->send == SEND_RECLOSED ? d->now_ms : d->now_ms + p->quiet_ms;
}

/* Notes an attempt that sent nothing of an open file. */
static void tried(struct work *w, int64_t now_ms)
{
	if (w->opening)
		w->opening->grown_ms = now_ms;
}

/* Handles a commit whose data is not published yet, perhaps because the data was opened again. The
 * commit goes to the end of its queue, so that other files do not wait for the commit. */
static void too_early(struct plan *p, const struct ended *d)
{
	struct work *w = d->job->work;

	if (w->queued) {
		queue_remove(p, w);
		queue_add(p, w);
	}
	w->wait = WAIT_DATA;
	w->ready_ms = d->now_ms + PLAN_DATA_MS;
	w->settled = p->flushing && !has_changed(d) && commits_is_stuck(p, w);
}

/* Takes the job back from the worker. */
static void take_back(struct plan *p, const struct ended *d)
{
	struct entry *e = d->job->entry;
	struct work *w = d->job->work;

	PLAN_MUST(p, d->send != SEND_IDLE && p->n_busy > 0);
	w->send = SEND_IDLE;
	if (--p->n_busy == 0)
		p->busy_ms += d->now_ms - p->busy_since_ms;
	if (d->job->queued)
		e->dir->busy = false;
	if (d->job->large) {
		PLAN_MUST(p, p->large_busy > 0);
		p->large_busy--;
	}
	if (d->r->outcome == JOB_DONE)
		p->pause_ms = 0;
	/* After a temporary failure the same copy is sent again. */
	if (d->r->outcome != JOB_FAILED || !w->queued || e->state == ENTRY_GONE)
		plan_thaw(p, w);
}

void plan_done(struct plan *p, const struct job *job, const struct job_result *r, int64_t now_ms)
{
	struct work *w = job->work;
	const struct ended ended = {.job = job, .r = r, .send = w->send, .now_ms = now_ms};

	take_back(p, &ended);
	if (r->unsure)
		plan_unsure(job->entry, r->ident.ino);
	switch (r->outcome) {
	case JOB_DONE:
		if (job->kind == JOB_DELETE)
			done_delete(p, job->entry);
		else if (r->kind == JOB_PARTIAL)
			done_partial(p, &ended);
		else
			done_whole(p, &ended);
		break;
	case JOB_CHANGED:
	case JOB_WRITER:
		switch (ended.job->kind) {
		case JOB_WHOLE:
			changed_under(p, &ended);
			break;
		case JOB_DELETE: /* the file exists again, perhaps under another name */
			ended.job->work->ready_ms = ended.now_ms + PLAN_SWEEP_MS;
			break;
		case JOB_GROWN:
		case JOB_PARTIAL:
		case JOB_FREEZE:
			tried(ended.job->work, ended.now_ms);
			break;
		}
		break;
	case JOB_MISSING:
		if (!has_changed(&ended))
			plan_gone(p, job->entry, now_ms);
		break;
	case JOB_NOTHING:
		tried(w, now_ms);
		settle(p, w, &ended);
		break;
	case JOB_FAILED:
		failed(p, &ended);
		break;
	case JOB_WAIT:
		too_early(p, &ended);
		break;
	/* retried from time to time, because the user may repair the checkpoint */
	case JOB_DAMAGED:
		set_aside(p, &ended);
		break;
	}
}
