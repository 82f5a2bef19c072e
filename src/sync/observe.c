#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/must.h"
#include "sync/kernel/lease.h"
#include "sync/plan/commits.h"
#include "sync/internal.h"

/* after this time an open file without a writer counts as closed: its close was missed */
#define MISSED_MS      1000
#define STILL_MS       5000 /* the same time if leases cannot show the writers of the file */
#define CATCH_UP_READS 128 /* reads of the event buffer: more than the kernel's queue holds */

/* Warns about a name once. */
void observe_warn_name(struct sync *s, struct entry *e, const char *why)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);

	if (e->flags & ENTRY_WARNED)
		return;
	e->flags |= ENTRY_WARNED;
	entry_path(e, &path);
	sync_emit(
		s, SYNC_WARNING, buf_str(&path), 0, "cannot publish '%s': %s", buf_str(&path), why);
}

/* ---- a name is gone ---- */

static void gone(struct sync *s, struct entry *e, int64_t now_ms)
{
	struct dir *d = e->below;

	if (!d) {
		if (S_ISLNK(e->mode)) {
			s->plan.manifest_dirty = true;
			table_remove(&s->table, e);
		} else {
			plan_gone(&s->plan, e, now_ms);
		}
		return;
	}
	for (struct entry *child = d->first, *next; child; child = next) {
		next = child->sibling;
		gone(s, child, now_ms);
	}
	dirs_forget(s, d);
	s->plan.manifest_dirty = true;
	/* The entry is needed as long as the bucket has objects of files below the directory, or of
	 * an earlier file of this name. */
	if (!d->first && !d->head && !d->busy && !d->lined && !e->work)
		table_remove(&s->table, e);
	else if (e->state != ENTRY_GONE)
		plan_set_state(&s->plan, e, EVENT_REMOVED, ENTRY_GONE);
}

/* ---- a name exists ---- */

enum lease observe_lease(struct sync *s, const char *path)
{
	_cleanup_close_ int fd = sync_open_file(s, path);

	return fd < 0 ? LEASE_UNKNOWN : lease_check(fd);
}

static void see_link(struct sync *s, struct entry *e, const char *path, const struct stat *st)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(s->root_fd, path, target, sizeof(target) - 1);

	if (n < 0)
		return;
	target[n] = '\0';
	if (S_ISLNK(e->mode) && e->text && strcmp(e->text, target) == 0)
		return;
	if (!(e->flags & ENTRY_PUBLISHED))
		free(e->text);
	e->mode = st->st_mode;
	e->text = strdup(target);
	if (!e->text)
		observe_no_memory(s);
	plan_returned(&s->plan, e);
	ident_of_stat(&e->seen, st);
	s->plan.manifest_dirty = true;
}

static void see_clean(struct sync *s, struct entry *e, const char *path, const struct stat *st,
	const struct ident *ident, int64_t now_ms)
{
	enum lease lease;
	int rc;

	if (e->mode != st->st_mode && (e->flags & ENTRY_PUBLISHED)) {
		e->mode = st->st_mode;
		s->plan.manifest_dirty = true;
	}
	if (!e->work && ident_equal(&e->seen, ident) && !(e->flags & ENTRY_APPENDED))
		return;
	/* Only metadata changed (mode, owner or number of links), or a program set the mtime back
	 * to the recorded time. */
	if (!e->work && (e->flags & ENTRY_PUBLISHED) && !s->status.polling &&
		!(e->flags & (ENTRY_APPENDED | ENTRY_UNSURE)) && e->seen.size == ident->size &&
		e->seen.mtime_ns == ident->mtime_ns && e->seen.ino == ident->ino &&
		e->seen.ctime_ns != ident->ctime_ns) {
		e->seen = *ident;
		state_note(s, JOURNAL_PUBLISHED, e, ident);
		return;
	}
	if (s->initial && s->continued && !(e->flags & ENTRY_PUBLISHED)) {
		/* An earlier attempt was killed before it saw the close of this file. */
		e->mode = st->st_mode;
		if (plan_suspect(&s->plan, e, ident, now_ms) < 0)
			observe_no_memory(s);
		return;
	}
	/* Without leases the file must first stay unchanged for a while, because it may have a
	 * writer. */
	lease = observe_lease(s, path);
	/* During a flush the tasks are gone, so the file has no writer. */
	if (lease == LEASE_UNKNOWN && s->plan.flushing)
		lease = LEASE_FREE;
	if (lease == LEASE_WRITER)
		rc = plan_refused(&s->plan, e, CLOSE_UNSEEN, now_ms);
	else if (lease == LEASE_UNKNOWN)
		rc = plan_changed(&s->plan, e, now_ms);
	else
		rc = plan_closed(&s->plan, e, ident, st->st_mode, CLOSE_UNSEEN, now_ms);
	if (rc < 0)
		observe_no_memory(s);
	else if (lease == LEASE_FREE)
		plan_found(e);
}

/* Handles a file that counts as open: notes a change, or a close that was missed. */
static void see_open(struct sync *s, struct entry *e, const char *path, const struct stat *st,
	const struct ident *ident, int64_t now_ms)
{
	struct work *w = e->work;
	enum lease lease;

	if (s->status.polling && !ident_equal(ident, &e->seen)) {
		e->seen = *ident;
		w->changed_ms = now_ms;
		plan_rewritten(e);
	}
	/* A worker is sending the present content of the open file. That upload does not complete a
	 * flush, so scan again. */
	if (w->send != SEND_IDLE && s->plan.flushing)
		observe_again(s, now_ms);
	if (w->send != SEND_IDLE || (now_ms - w->changed_ms < MISSED_MS && !s->plan.flushing))
		return;
	lease = observe_lease(s, path);
	if (lease == LEASE_WRITER ||
		(lease == LEASE_UNKNOWN && now_ms - w->changed_ms < STILL_MS && !s->plan.flushing))
		return;
	if (plan_closed(&s->plan, e, ident, st->st_mode, plan_judge(w), now_ms) < 0)
		observe_no_memory(s);
}

/* Handles a file that the scan or an event has found. */
static void see_file(
	struct sync *s, struct entry *e, const char *path, const struct stat *st, int64_t now_ms)
{
	struct work *w = e->work;
	struct ident ident;

	ident_of_stat(&ident, st);
	if (!w || e->state == ENTRY_GONE) {
		/* While a worker deletes the object of the file, the file counts as changed. */
		if (e->state == ENTRY_GONE && !(w && w->send != SEND_IDLE))
			plan_returned(&s->plan, e);
		see_clean(s, e, path, st, &ident, now_ms);
		return;
	}
	switch ((enum entry_state)e->state) {
	case ENTRY_OPEN:
		see_open(s, e, path, st, &ident, now_ms);
		break;
	case ENTRY_CLOSED:
	case ENTRY_HELD:
	case ENTRY_SUSPECT:
		if (w->send == SEND_IDLE && !ident_equal(&ident, &e->seen) &&
			observe_lease(s, path) != LEASE_WRITER) {
			plan_rewritten(e);
			if (plan_closed(&s->plan, e, &ident, st->st_mode,
				    e->state == ENTRY_HELD ? CLOSE_EXIT : CLOSE_UNSEEN, now_ms) < 0)
				observe_no_memory(s);
		}
		break;
	case ENTRY_CLEAN:
	case ENTRY_GONE:
	case ENTRY_PARKED:
		break;
	}
}

/* Makes a name wait for an earlier file of this name, until the upload of the earlier file has
 * ended or its objects are deleted. A flush waits for the name. */
static struct entry *later(struct sync *s, int64_t now_ms)
{
	observe_again(s, now_ms);
	return NULL;
}

/* Forgets all entries below a name that is no longer a directory. Returns false if an entry is in
 * use. */
static bool forget_below(struct sync *s, struct dir *d)
{
	for (struct entry *child = d->first, *next; child; child = next) {
		next = child->sibling;
		if (child->work || (child->flags & ENTRY_LINE) ||
			(child->below && !forget_below(s, child->below)))
			return false;
		if (!child->below && !S_ISLNK(child->mode))
			state_note(s, JOURNAL_FORGET, child, &child->seen);
		table_remove(&s->table, child);
	}
	return true;
}

/* Handles a name that another kind of file had before. Returns the entry to use, or NULL if the
 * name must wait. */
static struct entry *change_kind(struct sync *s, struct entry *e, mode_t mode, int64_t now_ms)
{
	bool was_dir = e->below && e->state != ENTRY_GONE;
	struct dir *dir = e->dir;
	_cleanup_free_ char *name = NULL;

	if (e->mode == 0 || (e->mode & S_IFMT) == (mode & S_IFMT) ||
		(!was_dir && e->state == ENTRY_GONE && !e->below))
		return e;
	if (e->work && e->work->send != SEND_IDLE)
		return later(s, now_ms);
	name = strdup(e->name);
	if (!name)
		return later(s, now_ms);
	gone(s, e, now_ms);
	e = table_get(&s->table, dir, name);
	if (!e)
		return later(s, now_ms);
	if (e->below && !S_ISDIR(mode)) {
		/* The objects below the former directory are deleted first if deletion is allowed,
		 * else they stay in the bucket. */
		if ((s->o.delete_sync && !s->attached) || !forget_below(s, e->below) || e->work ||
			e->below->busy)
			return later(s, now_ms);
		table_remove(&s->table, e);
		e = table_get(&s->table, dir, name);
	}
	return e ? e : later(s, now_ms);
}

static bool is_ours(const struct sync *s, const struct dir *dir, const char *name)
{
	return dir == s->table.top && strcmp(name, ".penstock") == 0;
}

void observe_name(struct sync *s, struct dir *dir, const char *name, int64_t now_ms)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
	struct entry *e = table_find(&s->table, dir, name);
	struct stat st;

	if (commits_is_hidden(name))
		return;
	if (e) {
		entry_path(e, &path);
	} else {
		dir_path(dir, &path);
		if (path.len)
			buf_add_char(&path, '/');
		buf_add_str(&path, name);
	}
	/* A truncated path would name another file. */
	if (buf_failed(&path))
		return observe_no_memory(s);
	if (fstatat(s->root_fd, buf_str(&path), &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (e && (errno == ENOENT || errno == ENOTDIR))
			gone(s, e, now_ms);
		else if (errno == ENAMETOOLONG && dir->self)
			observe_warn_name(s, dir->self,
				"paths below this directory have more than 4,096 bytes, the limit "
				"of the system; use shorter names");
		return;
	}
	if (!e)
		e = table_get(&s->table, dir, name);
	if (!e)
		return observe_no_memory(s);
	e = change_kind(s, e, st.st_mode, now_ms);
	if (!e)
		return;
	e->flags |= ENTRY_SEEN;
	e->flags &= (uint16_t)~ENTRY_KEEP;
	if (is_ours(s, dir, name)) {
		observe_warn_name(s, e, "the name is reserved for the state of penstock");
	} else if (S_ISDIR(st.st_mode)) {
		bool fresh = !e->below || e->state == ENTRY_GONE;
		struct dir *d = table_make_dir(&s->table, e);

		if (!d)
			return observe_no_memory(s);
		plan_returned(&s->plan, e);
		ident_of_stat(&e->seen, &st);
		if (fresh) {
			s->plan.manifest_dirty = true;
			dirs_push_first(s, d);
		}
	} else if (S_ISLNK(st.st_mode)) {
		see_link(s, e, buf_str(&path), &st);
	} else if (S_ISREG(st.st_mode)) {
		see_file(s, e, buf_str(&path), &st, now_ms);
	} else {
		observe_warn_name(s, e, "pipes, sockets and devices have no content to publish");
	}
}

/* ---- events ---- */

static void see_closed(
	struct sync *s, struct dir *dir, const char *name, bool moved, int64_t now_ms)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
	struct entry *e = table_find(&s->table, dir, name);
	enum close_kind kind;
	struct ident ident;
	struct stat st;
	bool reopened;
	int rc;

	if (!e || !e->work || e->below || S_ISLNK(e->mode)) {
		/* The kind of file may have changed, and a name may be new: check first. */
		observe_name(s, dir, name, now_ms);
		e = table_find(&s->table, dir, name);
		if (!e || e->below || !(e->mode == 0 || S_ISREG(e->mode)) || is_ours(s, dir, name))
			return;
		if (e->work && !e->work->modified && e->state == ENTRY_CLOSED) {
			plan_seen(e, moved);
			return; /* this close was already handled */
		}
	}
	entry_path(e, &path);
	if (buf_failed(&path))
		return observe_no_memory(s);
	if (fstatat(s->root_fd, buf_str(&path), &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		!S_ISREG(st.st_mode))
		return; /* the file is gone or replaced: another event follows */
	ident_of_stat(&ident, &st);
	kind = moved || !e->work ? CLOSE_TRUE : plan_judge(e->work);
	if (moved)
		plan_rewritten(e);
	/*
	 * The file was opened again already: the file keeps its place in the queue, but the journal
	 * must not record its present content as closed. Checked after the fstat(), so that content
	 * written in between is not recorded either.
	 */
	reopened = kind != CLOSE_KILLED && observe_lease(s, buf_str(&path)) == LEASE_WRITER;
	rc = plan_closed(&s->plan, e, &ident, st.st_mode, reopened ? CLOSE_EXIT : kind, now_ms);
	if (rc < 0 || (reopened && plan_refused(&s->plan, e, kind, now_ms) < 0))
		observe_no_memory(s);
}

static void see_modified(struct sync *s, struct dir *dir, const char *name, int64_t now_ms)
{
	struct entry *e;

	if (is_ours(s, dir, name))
		return;
	e = table_get(&s->table, dir, name);
	if (!e)
		return observe_no_memory(s);
	if (e->below || S_ISLNK(e->mode))
		return;
	if (plan_changed(&s->plan, e, now_ms) < 0)
		observe_no_memory(s);
}

static void on_watch(
	void *cookie, enum watch_event event, int wd, const char *name, bool is_dir, bool moved)
{
	struct sync *s = cookie;
	int64_t now_ms = clock_monotonic_ms();
	struct dir *dir = wd < 0 ? NULL : dirs_of_watch(s, wd);
	struct entry *e;

	if (event == WATCH_OVERFLOW) {
		sync_emit(s, SYNC_WARNING, NULL, 0,
			"too many changes at once: events were lost, so the output is scanned");
		s->events_lost = true;
		dirs_push_all(s);
		return;
	}
	if (!dir || commits_is_hidden(name))
		return;
	switch (event) {
	case WATCH_MODIFIED:
		if (*name)
			see_modified(s, dir, name, now_ms);
		break;
	case WATCH_CLOSED:
		if (*name)
			see_closed(s, dir, name, moved, now_ms);
		break;
	case WATCH_APPEARED:
		observe_name(s, dir, name, now_ms);
		break;
	case WATCH_GONE:
		e = table_find(&s->table, dir, name);
		if (e && (is_dir || !e->below))
			observe_name(s, dir, name, now_ms); /* the name may exist again by now */
		break;
	case WATCH_ATTRIB:
		if (!*name || is_dir)
			/* the manifest has the times and modes of directories */
			s->plan.manifest_dirty = true;
		else if (table_find(&s->table, dir, name))
			observe_name(s, dir, name, now_ms);
		break;
	case WATCH_IGNORED:
		dirs_unwatch(s, dir);
		break;
	case WATCH_OVERFLOW:
		break;
	}
}

bool observe_events(struct sync *s)
{
	MUST_HOLD(&s->lock);
	return s->watch && watch_read(s->watch, on_watch, s);
}

void observe_catch_up(struct sync *s)
{
	bool any = false;

	for (unsigned n = 0; n < CATCH_UP_READS && observe_events(s); n++)
		any = true;
	if (!any)
		return;
	state_write_journal(s);
	sync_wake_owner(s); /* the owner thread searches for writers */
}
