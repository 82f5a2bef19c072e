/* Chooses the next job, and decides if the upload of a job may still become visible. */
#include "sync/plan/plan.h"

#include <utlist.h>

#include "checkpoint/commit.h"
#include "sync/plan/commits.h"
#include "sync/plan/line.h"
#include "sync/plan/queue.h"
#include "sync/plan/state.h"

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
		.snapshot = w->how == HOW_SNAPSHOT || w->frozen,
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
	if (!p->n_busy)
		p->busy_since_ms = now_ms;
	w->send = SEND_SAME;
	if (kind == JOB_DELETE)
		plan_unsure(e, 0);
	if (w->how == HOW_COPY)
		w->how = HOW_FILE;
	/* The copy has an earlier version than the file. */
	if (w->frozen && (e->state != ENTRY_CLOSED || w->close != w->frozen->close))
		w->send = e->state == ENTRY_CLOSED ? SEND_RECLOSED : SEND_CHANGED;
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

/* Returns false if a flush would replace an object and, at the current rate, the upload would not
 * finish before the deadline. */
static bool fits(const struct plan *p, const struct entry *e, int64_t now_ms)
{
	int64_t ms = p->busy_ms + (p->n_busy ? now_ms - p->busy_since_ms : 0);

	if (!p->flushing || !p->deadline_ms || !(e->flags & ENTRY_PUBLISHED) ||
		e->state != ENTRY_CLOSED || ms < PLAN_RATE_MS || !p->busy_bytes)
		return true;
	return (double)e->seen.size * (double)ms / (double)p->busy_bytes <=
	       (double)(p->deadline_ms - now_ms);
}

static void set_aside(struct plan *p, struct work *w, int64_t ready_ms)
{
	queue_remove(p, w);
	w->wait = WAIT_RETRY;
	w->ready_ms = ready_ms;
	w->settled = p->flushing;
}

/* Returns true if a commit must wait. A commit is published after all files that it may name,
 * including files that are behind the commit in the queue. */
static bool commit_is_early(struct plan *p, struct work *w, int64_t now_ms, int64_t *wake_ms)
{
	if (w->wait == WAIT_DATA && now_ms < w->ready_ms) {
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

/* Searches for a name that is not published yet and has the inode of the file that `gone` named.
 * Returns the work of that name, or NULL if there is no such name. Prefers a work that can be
 * published soon, and then sets `*soon` to true. Does not search the line. */
static const struct work *successor_of(const struct plan *p, const struct work *gone, bool *soon)
{
	const struct work *found = NULL;
	const struct entry *e = gone->entry;
	/* The inodes of the files that the object may hold: of the recorded version, and of a
	 * version whose upload got no reply. */
	const uint64_t known = e->flags & ENTRY_PUBLISHED ? gone->published.ino : 0,
		       unsure = e->flags & ENTRY_UNSURE ? e->unsure_ino : 0;

	*soon = false;
	for (const struct work *w = p->table->works; w && (known || unsure); w = w->all_next) {
		const unsigned state = w->entry->state;
		const bool sure = (w->entry->flags & (ENTRY_PUBLISHED | ENTRY_UNSURE)) ==
				  ENTRY_PUBLISHED;
		const uint64_t ino = w->entry->seen.ino;

		if (!ino || (ino != known && ino != unsure && unsure != UNSURE_ANY) ||
			(sure && w->published.ino == ino) || w->entry->below ||
			state == ENTRY_GONE || state == ENTRY_CLEAN)
			continue;
		found = w;
		*soon = state != ENTRY_SUSPECT && !w->settled;
		if (*soon)
			break;
	}
	return found;
}

/* Returns the work that the deletion must wait for: after a rename the bytes must be in the bucket
 * under the new name before the old object is deleted. A file that retention has removed was not
 * renamed, so its deletion does not wait: the next checkpoint may reuse its inode. */
static const struct work *delete_waits_for(const struct plan *p, const struct work *w, bool *soon)
{
	return w->entry->below || (w->entry->flags & ENTRY_RETIRED) ? NULL
								    : successor_of(p, w, soon);
}

static bool delete_is_early(struct plan *p, struct work *w, int64_t now_ms, int64_t *wake_ms)
{
	const struct dir *d = w->entry->dir;
	bool soon;

	if (!delete_waits_for(p, w, &soon))
		return false;
	lower(wake_ms, now_ms + PLAN_DATA_MS);
	if (!soon) {
		set_aside(p, w, now_ms + PLAN_RETRY_MS);
	} else if (w->next) { /* the successor may be behind the deletion in the queue */
		queue_remove(p, w);
		queue_add(p, w);
		if (d->head->entry->state != ENTRY_GONE)
			lower(wake_ms, now_ms);
	}
	return true;
}

/* Returns true if the head of a queue can be sent now. Removes a head for which the other files
 * must not wait. */
static bool head_ready(struct plan *p, struct dir *d, int64_t now_ms, int64_t *wake_ms)
{
	struct work *w = d->head;

	if (d->busy || w->send != SEND_IDLE)
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
	if (w->entry->state == ENTRY_GONE && delete_is_early(p, w, now_ms, wake_ms))
		return false;
	if (w->entry->state == ENTRY_HELD)
		plan_trust(p, w->entry, EVENT_TRUSTED);
	if (!w->settled && !fits(p, w->entry, now_ms)) {
		/* The next flush tries the file again. */
		p->late = true;
		set_aside(p, w, now_ms);
		lower(wake_ms, now_ms);
		return false;
	}
	return !w->settled && !large_must_wait(p, w->entry);
}

/* Returns true, and drops the work, if a file was removed while a worker had the file, and the
 * object is not to be deleted: deletion is not allowed, or this run did not publish the object. */
static bool nothing_to_delete(struct plan *p, struct entry *e)
{
	if ((e->state != ENTRY_GONE && !e->below) ||
		(plan_may_delete(p, e) && (e->flags & (ENTRY_PUBLISHED | ENTRY_UNSURE))))
		return false;
	plan_drop_work(p, e);
	if (!e->below && !(e->flags & ENTRY_PUBLISHED)) {
		plan_note(p, JOURNAL_FORGET, e, &e->seen);
		table_remove(p->table, e);
	}
	return true;
}

/* Moves the files of the line (line.h) that the head must wait for into the queue, and the head
 * behind these files. */
static void put_behind_line(struct plan *p, struct dir *d, int64_t now_ms)
{
	struct work *w;

	while (!d->busy && (w = d->head) && w->behind && w->send == SEND_IDLE) {
		if (d->line_out >= w->behind || !line_next(p, d, now_ms))
			w->behind = 0;
		queue_remove(p, w);
		queue_add(p, w);
	}
}

/* Returns true if the head must be copied together with other small files, because the head may
 * refer to files that were closed later. Sets `*wait` to true if the head must wait for the next
 * attempt to copy, or was put behind the copies of other files. */
static bool to_be_frozen(
	struct plan *p, struct dir *d, int64_t now_ms, int64_t *wake_ms, bool *wait)
{
	struct work *w = d->head;

	*wait = false;
	if (w->how != HOW_COPY || w->entry->state != ENTRY_CLOSED || w->frozen)
		return false;
	if (d->n_frozen && w->next) {
		queue_remove(p, w);
		queue_add(p, w);
		lower(wake_ms, now_ms);
		*wait = true;
		return false;
	}
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
		if (to_be_frozen(p, d, now_ms, wake_ms, &wait)) {
			*job = (struct job){.kind = JOB_FREEZE, .dir = d};
			return true;
		}
		if (wait)
			continue;
		/* The other directories have their turn before the next turn of this directory. */
		DL_DELETE2(p->active, d, active_prev, active_next);
		DL_APPEND2(p->active, d, active_prev, active_next);
		hand_out(p, w,
			w->entry->state == ENTRY_GONE || w->entry->below ? JOB_DELETE
			: w->how == HOW_REST				 ? JOB_GROWN
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

/* Finds a job for an open or suspect file outside the queues. Puts a file that was set aside after
 * a failure back into its queue. */
static bool side_job(struct plan *p, struct work *w, int64_t now_ms, enum job_kind *kind)
{
	struct entry *e = w->entry;

	if (w->send != SEND_IDLE || w->settled || w->queued)
		return false;
	if (w->wait == WAIT_RETRY && !p->flushing && now_ms < w->ready_ms)
		return false;
	if (e->state == ENTRY_OPEN) {
		*kind = JOB_GROWN;
		return now_ms >= grown_due(p, w) && !large_must_wait(p, e);
	}
	if (e->state == ENTRY_SUSPECT) {
		*kind = JOB_PARTIAL;
		return !plan_is_sent(w) && !large_must_wait(p, e) && !commits_may_vouch(p, e);
	}
	if (w->wait == WAIT_RETRY) {
		w->wait = WAIT_NONE;
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
				p->sweep_ms = 0; /* there may be another job */
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
	bool soon;

	if (p->stopped)
		return false;
	switch (job->kind) {
	case JOB_FREEZE:
		break;
	case JOB_WHOLE:
		/* A snapshot is a complete version, even if the file changed since, unless the
		 * writer was killed. */
		return state != ENTRY_SUSPECT && (job->snapshot || w->send == SEND_SAME);
	case JOB_GROWN:
		return state != ENTRY_GONE;
	case JOB_DELETE:
		return w->send == SEND_SAME && !delete_waits_for(p, w, &soon);
	case JOB_PARTIAL:
		return w->send == SEND_SAME;
	}
	return false;
}
