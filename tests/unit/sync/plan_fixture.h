/* A plan with a simulated clock and a store that accepts every upload. */
#ifndef TESTS_SYNC_PLAN_FIXTURE_H
#define TESTS_SYNC_PLAN_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <unistd.h>
#include <sys/wait.h>
#include <cmocka.h>

#include <penstock/error.h>

#include "base/str.h"
#include "sync/plan/plan.h"

#define QUIET  30
#define APPEND 2000
#define LARGE  (PLAN_MARKER + 1) /* size in bytes; too large for a marker */
#define ETAG   "\"0123456789abcdef0123456789abcdef\""

struct fixture {
	struct table table;
	struct procs procs;
	struct plan plan;
	int64_t now;
	uint64_t version; /* makes the content of each version different */
	char notes[256]; /* one letter for each record of the journal */
};

static inline void on_note(
	void *cookie, enum journal_type type, struct entry *e, const struct ident *ident)
{
	struct fixture *f = cookie;
	size_t len = strlen(f->notes);

	(void)e;
	(void)ident;
	if (len + 1 < sizeof(f->notes))
		f->notes[len] = (char)type;
}

static inline int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_int_equal(table_init(&f->table), 0);
	f->plan = (struct plan){.table = &f->table,
		.procs = &f->procs,
		.note = on_note,
		.cookie = f,
		.quiet_ms = QUIET,
		.append_ms = APPEND,
		.workers = 6,
		.continuous = true};
	f->now = 1000;
	*state = f;
	return 0;
}

static inline void on_found_writer(void *cookie, void *tag, struct proc *p, bool append)
{
	(void)cookie;
	plan_add_writer(tag, p, append);
}

static inline void forget_writers(struct fixture *f)
{
	for (struct work *w = f->table.works; w; w = w->all_next)
		if (w->opening)
			memset(w->opening->writers, 0, sizeof(w->opening->writers));
}

static inline int tear_down(void **state)
{
	struct fixture *f = *state;

	forget_writers(f);
	table_release(&f->table);
	procs_release(&f->procs);
	free(f);
	return 0;
}

static inline struct entry *at(struct fixture *f, const char *path)
{
	return table_get_path(&f->table, path);
}

static inline struct ident ident_of(struct fixture *f, uint64_t size)
{
	f->version++;
	return (struct ident){size, (int64_t)f->version, (int64_t)f->version, f->version};
}

static inline void changed(struct fixture *f, const char *path)
{
	assert_int_equal(plan_changed(&f->plan, at(f, path), f->now), 0);
}

static inline void closed_as(
	struct fixture *f, const char *path, uint64_t size, enum close_kind kind)
{
	struct ident ident = ident_of(f, size);

	assert_int_equal(plan_closed(&f->plan, at(f, path), &ident, 0100644, kind, f->now), 0);
}

/* Saves a file as usual: opens, writes and closes it. */
static inline void saved(struct fixture *f, const char *path, uint64_t size)
{
	changed(f, path);
	closed_as(f, path, size, CLOSE_TRUE);
}

/* Makes a copy of each small file that is closed, as freeze_dir() does. */
static inline void freeze(struct fixture *f, struct dir *d)
{
	for (struct work *w = d->head; w; w = w->next) {
		struct frozen *copy;

		if (w->entry->state != ENTRY_CLOSED || w->entry->seen.size > PLAN_MARKER)
			continue;
		copy = calloc(1, sizeof(*copy));
		copy->ident = w->entry->seen;
		copy->close = w->close;
		plan_freeze(&f->plan, w, copy);
	}
	plan_queue_frozen(&f->plan, d);
}

/* Gets the next job. Returns its name, "KIND PATH" or, if it sends a copy, "frozen PATH"; "" if
 * there is no job now. */
static inline const char *next(struct fixture *f, struct job *job)
{
	static const char *const kinds[] = {"whole", "grown", "partial", "delete"};
	static char text[300];
	struct buf path = BUF_INIT(256);
	int64_t wake = INT64_MAX;
	bool any;

	text[0] = '\0';
	while ((any = plan_next(&f->plan, f->now, job, &wake)) && job->kind == JOB_FREEZE)
		freeze(f, job->dir);
	if (any) {
		entry_path(job->entry, &path);
		snprintf(text, sizeof(text), "%s %s", job->frozen ? "frozen" : kinds[job->kind],
			buf_str(&path));
		buf_release(&path);
	}
	return text;
}

static inline void done_as(struct fixture *f, const struct job *job, enum job_outcome outcome)
{
	char etag[] = ETAG;
	struct job_result r = {.outcome = outcome,
		.kind = job->kind,
		.ident = job->frozen ? job->frozen->ident : job->entry->seen,
		.etag = etag,
		.error = PENSTOCK_E_UNAVAILABLE,
		.retryable = true};

	plan_done(&f->plan, job, &r, f->now);
}

/* Runs jobs until there is none left. Returns their names, each followed by ";". */
static inline const char *run_all(struct fixture *f)
{
	static char all[2000];
	struct job job;

	all[0] = '\0';
	for (const char *text = next(f, &job); *text; text = next(f, &job)) {
		size_t len = strlen(all);

		snprintf(all + len, sizeof(all) - len, "%s;", text);
		done_as(f, &job, JOB_DONE);
	}
	return all;
}

#endif
