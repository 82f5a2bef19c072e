#include "sync/plan/commits.h"

#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "checkpoint/commit.h"

bool commits_is_hidden(const char *name)
{
	return str_starts(name, COMMIT_HIDDEN);
}

bool commits_is_below(const struct dir *d, const struct dir *top)
{
	for (; d; d = d->self ? d->self->dir : NULL) {
		if (d == top)
			return true;
	}
	return false;
}

/* Returns true if `name` is that of the file whose commit is named `commit`. */
static bool is_file_of(const char *name, const char *commit)
{
	size_t len = strlen(name);

	return strncmp(commit, name, len) == 0 && strcmp(commit + len, COMMIT_SUFFIX) == 0;
}

/* Returns true if `commit` may name the file `e`. */
static bool is_part(const struct entry *e, const struct entry *commit)
{
	if (e == commit)
		return false;
	return strcmp(commit->name, COMMIT_NAME) == 0
		       ? commits_is_below(e->dir, commit->dir)
		       : e->dir == commit->dir && is_file_of(e->name, commit->name);
}

bool commits_wait(const struct plan *p, const struct work *w)
{
	for (const struct work *v = p->table->works; v; v = v->all_next) {
		if (is_part(v->entry, w->entry) &&
			(v->send != SEND_IDLE || (v->queued && !v->settled)))
			return true;
	}
	for (const struct dir *d = p->lined; d; d = d->lined_next) {
		if (strcmp(w->entry->name, COMMIT_NAME) == 0 ? commits_is_below(d, w->entry->dir)
							     : d == w->entry->dir)
			return true;
	}
	return false;
}

static bool can_be_sent(const struct work *w)
{
	return w->entry->state == ENTRY_CLOSED && !w->settled && w->wait != WAIT_RETRY;
}

const struct dir *commits_first(const struct plan *p)
{
	const struct work *newest = NULL;

	if (!p->flushing)
		return NULL;
	for (const struct work *w = p->table->works; w; w = w->all_next) {
		if (commit_is_name(w->entry->name) && can_be_sent(w) &&
			(!newest || w->close > newest->close) &&
			(w->wait != WAIT_DATA || commits_wait(p, w)))
			newest = w;
	}
	return newest ? newest->entry->dir : NULL;
}

bool commits_is_stuck(const struct plan *p, const struct work *w)
{
	for (const struct work *v = p->table->works; v; v = v->all_next) {
		if (v != w && v->wait != WAIT_DATA &&
			(v->send != SEND_IDLE || (!v->settled && plan_is_waiting(v))))
			return false;
	}
	return p->n_parked == 0;
}

bool commits_may_vouch(const struct plan *p, const struct entry *e)
{
	for (const struct work *w = p->table->works; w; w = w->all_next) {
		if (commit_is_name(w->entry->name) && (w->send != SEND_IDLE || can_be_sent(w)) &&
			is_part(e, w->entry))
			return true;
	}
	return false;
}

bool commits_has(const struct table *t, const struct entry *e)
{
	_cleanup_(buf_release) struct buf name = BUF_INIT(LIMIT_SYNC_NAME);

	if (commit_is_name(e->name))
		return true;
	buf_printf(&name, "%s" COMMIT_SUFFIX, e->name);
	if (!buf_failed(&name) && table_find(t, e->dir, buf_str(&name)))
		return true;
	for (const struct dir *d = e->dir; d && d->self; d = d->self->dir) {
		if (table_find(t, d, COMMIT_NAME))
			return true;
	}
	return false;
}
