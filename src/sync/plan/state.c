#include "sync/plan/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sync/plan/queue.h"

#define BIT(state) (1U << (state))
#define CLEAN	   BIT(ENTRY_CLEAN)
#define OPEN	   BIT(ENTRY_OPEN)
#define HELD	   BIT(ENTRY_HELD)
#define CLOSED	   BIT(ENTRY_CLOSED)
#define SUSPECT	   BIT(ENTRY_SUSPECT)
#define GONE	   BIT(ENTRY_GONE)
#define PARKED	   BIT(ENTRY_PARKED)
#define ANY	   (CLEAN | OPEN | HELD | CLOSED | SUSPECT | GONE | PARKED)

/* All legal transitions. */
static const struct transition {
	enum entry_event event;
	uint8_t from, to; /* sets of states */
} transitions[] = {
	/* No task runs yet, or the file is not here: nothing can be open, held or parked. */
	{EVENT_RECORDED, CLEAN | CLOSED | SUSPECT | GONE, CLEAN | CLOSED | SUSPECT | GONE},
	{EVENT_WRITTEN, ANY & ~OPEN, OPEN},
	{EVENT_CLOSED, ANY, CLOSED | HELD},
	/* A held file is in the queue, and nothing in the queue goes into the line. */
	{EVENT_CLOSED, ANY & ~HELD, PARKED},
	/* The file is unchanged since its publication. A suspect file must be written again first;
	 * a parked file has no object. */
	{EVENT_CLOSED, CLEAN | OPEN | HELD | CLOSED | GONE, CLEAN},
	/* CLOSED if the file is sent as the rest of a log. */
	{EVENT_KILLED, ANY, SUSPECT | CLOSED},
	{EVENT_TRUSTED, HELD, CLOSED},
	{EVENT_REMOVED, ANY & ~GONE, GONE},
	/* From CLEAN to CLEAN: links and directories, which have no content to publish. */
	{EVENT_RETURNED, GONE | CLEAN, CLEAN},
	{EVENT_TURN, PARKED, CLOSED},
	/* Only if the file did not change during the upload: a newer version must be sent, too. */
	{EVENT_SENT, CLOSED, CLEAN},
	{EVENT_TORN, CLOSED, SUSPECT},
	{EVENT_RESEND, CLEAN, CLOSED},
};

static const char *const state_names[] = {
	"CLEAN", "OPEN", "HELD", "CLOSED", "SUSPECT", "GONE", "PARKED"};
static const char *const event_names[] = {"RECORDED", "WRITTEN", "CLOSED", "KILLED", "TRUSTED",
	"REMOVED", "RETURNED", "TURN", "SENT", "TORN", "RESEND"};
_Static_assert(sizeof(event_names) / sizeof(event_names[0]) == N_EVENTS, "one for each event");

void plan_fault(struct plan *p, const char *what)
{
#ifdef PENSTOCK_DEBUG
	fprintf(stderr, "sync/plan: %s\n", what);
	abort();
#endif
	p->may_delete = p->may_retire = false;
	if (!p->fault[0])
		snprintf(p->fault, sizeof(p->fault), "%s", what);
}

static bool is_legal(enum entry_event event, unsigned from, unsigned to)
{
	for (size_t i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
		const struct transition *t = &transitions[i];

		if (t->event == event && (t->from & BIT(from)) && (t->to & BIT(to)))
			return true;
	}
	return false;
}

void plan_set_state(struct plan *p, struct entry *e, enum entry_event event, enum entry_state to)
{
	if (!is_legal(event, e->state, to)) {
		char what[sizeof(p->fault)];

		snprintf(what, sizeof(what), "%s cannot take a file from %s to %s",
			event_names[event], state_names[e->state], state_names[to]);
		plan_fault(p, what);
	}
	if (e->state == ENTRY_PARKED) {
		PLAN_MUST(p, p->n_parked > 0 && p->parked_bytes >= e->seen.size);
		p->n_parked--;
		p->parked_bytes -= e->seen.size;
	}
	e->state = to;
}

static bool implies(bool a, bool b)
{
	return !a || b;
}

static void check_work(struct plan *p, const struct entry *e, const struct work *w)
{
	const struct dir *d = e->dir;
	bool in_queue = e->state == ENTRY_OPEN || e->state == ENTRY_HELD ||
			e->state == ENTRY_CLOSED || e->state == ENTRY_GONE || e->below;

	PLAN_MUST(p, w->entry == e);
	PLAN_MUST(p, implies(e->state == ENTRY_OPEN, w->opening != NULL));
	PLAN_MUST(p, implies(w->queued, in_queue));
	PLAN_MUST(p, implies(w->queued, d->n_queued > 0 && p->n_queued >= d->n_queued));
	/* A closed, held or gone file is queued, with a worker, or waits for a retry. Otherwise the
	 * file would be forgotten. */
	PLAN_MUST(p, implies(e->state == ENTRY_CLOSED || e->state == ENTRY_HELD ||
				     e->state == ENTRY_GONE,
			     w->queued || w->send != SEND_IDLE || w->wait == WAIT_RETRY));
	PLAN_MUST(p, implies(w->wait == WAIT_RETRY, !w->queued || e->state == ENTRY_OPEN));
	PLAN_MUST(p, implies(w->doomed, e->state == ENTRY_OPEN));
	PLAN_MUST(p, implies(w->send != SEND_IDLE, p->n_busy > 0));
	PLAN_MUST(p, implies(w->frozen != NULL, d->n_frozen > 0));
	PLAN_MUST(p, implies(w->frozen && e->state == ENTRY_SUSPECT, w->send != SEND_IDLE));
}

void plan_check(struct plan *p, const struct entry *e)
{
	const bool published = (e->flags & ENTRY_PUBLISHED) != 0;
	const struct work *w = e->work;

	switch ((enum entry_state)e->state) {
	case ENTRY_OPEN:
	case ENTRY_HELD:
	case ENTRY_CLOSED:
	case ENTRY_SUSPECT:
		PLAN_MUST(p, w != NULL);
		PLAN_MUST(p, !(e->flags & ENTRY_KEEP));
		break;
	case ENTRY_CLEAN:
		PLAN_MUST(p, !w || e->below);
		break;
	case ENTRY_PARKED:
		PLAN_MUST(p, !w && !published && (e->flags & ENTRY_LINE));
		PLAN_MUST(p, p->n_parked > 0);
		break;
	case ENTRY_GONE:
		break;
	}
	PLAN_MUST(p, implies((e->flags & (ENTRY_APPENDED | ENTRY_HAS_CRC)) != 0, published));
	if (w)
		check_work(p, e, w);
}

void plan_note(struct plan *p, enum journal_type type, struct entry *e, const struct ident *ident)
{
	if (p->note)
		p->note(p->cookie, type, e, ident);
}

bool plan_is_small(const struct entry *e)
{
	return e->seen.size <= PLAN_MARKER;
}

void plan_forget_writers(struct plan *p, struct work *w)
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

	if (!w || w->send != SEND_IDLE)
		return;
	/* Without a `struct work`, `seen` is the version that the object holds, not the last local
	 * version. */
	if (e->state == ENTRY_GONE && (e->flags & ENTRY_PUBLISHED))
		e->seen = w->published;
	queue_remove(p, w);
	plan_thaw(p, w);
	plan_forget_writers(p, w);
	table_drop_work(p->table, e);
}

void plan_make_suspect(struct plan *p, struct entry *e, struct work *w)
{
	w->settled = false;
	w->modified = false;
	w->doomed = false;
	w->wait = WAIT_NONE;
	e->flags &= (uint16_t)~ENTRY_KEEP;
	if (w->send == SEND_SAME)
		w->send = SEND_CHANGED;
	/* The lines of a log do not change, so the last lines are as trustworthy as the published
	 * lines. */
	if ((e->flags & ENTRY_APPENDED) || w->appender) {
		plan_set_state(p, e, EVENT_KILLED, ENTRY_CLOSED);
		w->ready_ms = w->changed_ms;
		w->how = HOW_REST;
		queue_add(p, w);
		return;
	}
	plan_set_state(p, e, EVENT_KILLED, ENTRY_SUSPECT);
	queue_remove(p, w);
	if (w->send == SEND_IDLE)
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
	if (e->state == ENTRY_PARKED) /* before `seen` changes, as parked_bytes counts its size */
		plan_set_state(p, e, EVENT_KILLED, ENTRY_SUSPECT);
	e->seen = *ident;
	plan_make_suspect(p, e, w);
	plan_check(p, e);
	return 0;
}

void plan_unsure(struct entry *e, uint64_t ino)
{
	if (!(e->flags & ENTRY_UNSURE))
		e->unsure_ino = 0;
	e->flags |= ENTRY_UNSURE;
	if (ino)
		e->unsure_ino = !e->unsure_ino || e->unsure_ino == ino ? ino : UNSURE_ANY;
}

bool plan_may_delete(const struct plan *p, const struct entry *e)
{
	return p->may_delete || (p->may_retire && (e->flags & ENTRY_RETIRED));
}

void plan_trust(struct plan *p, struct entry *e, enum entry_event event)
{
	plan_set_state(p, e, event, ENTRY_CLOSED);
	plan_note(p, JOURNAL_CLOSED, e, &e->seen);
}

bool plan_is_sent(const struct work *w)
{
	return w->opening && ident_equal(&w->opening->sent, &w->entry->seen);
}

bool plan_is_waiting(const struct work *w)
{
	if (w->entry->below)
		return w->queued;
	switch ((enum entry_state)w->entry->state) {
	case ENTRY_SUSPECT:
		return !plan_is_sent(w);
	case ENTRY_CLEAN:
	case ENTRY_PARKED:
		return false;
	case ENTRY_GONE:
		return w->queued || w->wait == WAIT_RETRY;
	case ENTRY_OPEN:
	case ENTRY_HELD:
	case ENTRY_CLOSED:
		break;
	}
	return true;
}
