#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "sync/commits.h"
#include "sync/lease.h"
#include "sync/sync_internal.h"
#include "base/banned.h"

#define SCAN_STEP    512  /* names looked at while the lock is held */
#define SCAN_POLL_MS 1000 /* least time between two scans where there is no watch */
#define MISSED_MS    1000 /* an open file without a writer for so long: its close was missed */
#define STILL_MS     5000 /* the same where nobody can tell whether it has a writer */
#define AGAIN_MS                                                                                   \
	100 /* until a name is looked at again that could not be dealt with; then twice that, … */
#define AGAIN_MAX_MS 5000
#define SHORT_MS     60000 /* between two warnings of being short of something */
#define LOOK_STEP_MS 5	   /* between two searches for writers */
#define LOOK_WORKS   1024  /* changes that one search is for */
#define LOOK_TIMES   3	   /* searches for one opening */

/* What it waits for may take long, a store that is away, and the next look is a scan of everything. */
static void look_again(struct sync *s, int64_t now_ms)
{
	if (s->look_again)
		return;
	s->look_again = true;
	s->again_ms = now_ms + (s->again_pause_ms ? s->again_pause_ms : AGAIN_MS);
}

/* Memory, or descriptors. A flush waits for the next look. */
static void run_short(struct sync *s, const char *what)
{
	int64_t now_ms = clock_monotonic_ms();

	if (!s->short_ms || now_ms - s->short_ms > SHORT_MS) {
		sync_emit(s, SYNC_WARNING, NULL, 0, "%s: the next scan of the output looks again",
			what);
		s->short_ms = now_ms;
	}
	look_again(s, now_ms);
}

static void out_of_memory(struct sync *s)
{
	run_short(s, "out of memory");
}

/* Warns about a name once. */
static void warn_name(struct sync *s, struct entry *e, const char *why)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);

	if (e->flags & ENTRY_WARNED)
		return;
	e->flags |= ENTRY_WARNED;
	entry_path(e, &path);
	sync_emit(
		s, SYNC_WARNING, buf_str(&path), 0, "%s is not published: %s", buf_str(&path), why);
}

/* The directories that are to be read. */

static void scan_push_first(struct sync *s, struct dir *d)
{
	if (d->scan)
		return;
	d->scan = true;
	d->scan_prev = NULL;
	d->scan_next = s->scan_first;
	if (s->scan_first)
		s->scan_first->scan_prev = d;
	else
		s->scan_last = d;
	s->scan_first = d;
}

static void scan_push(struct sync *s, struct dir *d)
{
	if (d->scan)
		return;
	d->scan = true;
	d->scan_prev = s->scan_last;
	d->scan_next = NULL;
	if (s->scan_last)
		s->scan_last->scan_next = d;
	else
		s->scan_first = d;
	s->scan_last = d;
}

static void scan_remove(struct sync *s, struct dir *d)
{
	if (!d->scan)
		return;
	d->scan = false;
	if (d->scan_prev)
		d->scan_prev->scan_next = d->scan_next;
	else
		s->scan_first = d->scan_next;
	if (d->scan_next)
		d->scan_next->scan_prev = d->scan_prev;
	else
		s->scan_last = d->scan_prev;
	d->scan_next = d->scan_prev = NULL;
}

void observe_scan_all(struct sync *s)
{
	for (struct dir *d = s->table.dirs; d; d = d->all_next)
		scan_push(s, d);
	s->scan_all = true;
	s->scans++;
	s->look_again = false;
	s->scan_for = s->scans_wanted;
	s->scan_cost_ms = 0;
}

/* Watches. */

static struct dir **wd_slot(struct sync *s, int wd)
{
	return &s->wd_map[(unsigned)wd % ARRAY_SIZE(s->wd_map)];
}

static struct dir *wd_dir(struct sync *s, int wd)
{
	struct dir *d = *wd_slot(s, wd);

	while (d && d->wd != wd)
		d = d->wd_next;
	return d;
}

static void wd_forget(struct sync *s, struct dir *d)
{
	if (d->wd < 0)
		return;
	for (struct dir **at = wd_slot(s, d->wd); *at; at = &(*at)->wd_next) {
		if (*at == d) {
			*at = d->wd_next;
			break;
		}
	}
	d->wd = -1;
	d->wd_next = NULL;
}

static void watch_dir(struct sync *s, struct dir *d, int fd)
{
	struct dir *other;
	int wd;

	if (!s->watch || d->wd >= 0)
		return;
	wd = watch_add(s->watch, fd);
	if (wd < 0) {
		if (!s->polling)
			sync_emit(s, SYNC_WARNING, NULL, 0,
				"cannot watch more directories (%s): changes are found by "
				"scanning; raise fs.inotify.max_user_watches",
				strerror(errno));
		s->polling = true;
		return;
	}
	/* The same directory under another name: it was moved, and this is where it is now. */
	other = wd_dir(s, wd);
	if (other)
		wd_forget(s, other);
	d->wd = wd;
	d->wd_next = *wd_slot(s, wd);
	*wd_slot(s, wd) = d;
}

/* A name is gone. */

static void forget_dir(struct sync *s, struct dir *d)
{
	if (d->wd >= 0)
		watch_remove(s->watch, d->wd);
	wd_forget(s, d);
	scan_remove(s, d);
	if (s->scan_dir == d) {
		closedir(s->scan_stream);
		s->scan_stream = NULL;
		s->scan_dir = NULL;
	}
}

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
	forget_dir(s, d);
	s->plan.manifest_dirty = true;
	/* Objects of files below are still to be deleted, or stay; or the one of a file that was
	 * there before the directory. */
	if (d->first || d->head || d->busy || d->lined || e->work)
		e->state = ENTRY_GONE;
	else
		table_remove(&s->table, e);
}

/* A name is there. */

static enum lease writer_of(struct sync *s, const char *path)
{
	_cleanup_close_ int fd = openat(
		s->root_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);

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
		out_of_memory(s);
	e->state = ENTRY_CLEAN;
	ident_of_stat(&e->seen, st);
	s->plan.manifest_dirty = true;
}

/* Nothing but the inode changed: mode, owner, links, or times that were set back. */
static bool only_inode_changed(const struct ident *a, const struct ident *b)
{
	return a->size == b->size && a->mtime_ns == b->mtime_ns && a->ino == b->ino &&
	       a->ctime_ns != b->ctime_ns;
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
	if (ident_equal(&e->seen, ident) && !(e->flags & ENTRY_APPENDED))
		return;
	if ((e->flags & ENTRY_PUBLISHED) && !s->polling && !(e->flags & ENTRY_APPENDED) &&
		only_inode_changed(&e->seen, ident)) {
		e->seen = *ident;
		state_note(s, JOURNAL_PUBLISHED, e, ident);
		return;
	}
	if (s->initial && s->continued && !(e->flags & ENTRY_PUBLISHED)) {
		/* An earlier attempt was killed before it saw the close of this one. */
		e->mode = st->st_mode;
		if (plan_suspect(&s->plan, e, ident, now_ms) < 0)
			out_of_memory(s);
		return;
	}
	/* Where nobody can tell whether it has a writer, it must first stay unchanged. */
	lease = writer_of(s, path);
	/* But when the tasks are gone it has rested long enough. */
	if (lease == LEASE_UNKNOWN && s->plan.flushing)
		lease = LEASE_FREE;
	if (lease != LEASE_FREE)
		rc = plan_changed(&s->plan, e, now_ms);
	else
		rc = plan_closed(&s->plan, e, ident, st->st_mode, CLOSE_UNSEEN, now_ms);
	if (rc < 0)
		out_of_memory(s);
	else if (lease == LEASE_FREE && e->work)
		e->work->found = true;
}

/* The scan found a file that was being written. */
static void see_open(struct sync *s, struct entry *e, const char *path, const struct stat *st,
	const struct ident *ident, int64_t now_ms)
{
	struct work *w = e->work;
	enum lease lease;

	if (s->polling && !ident_equal(ident, &e->seen)) {
		e->seen = *ident;
		w->changed_ms = now_ms;
		w->modified = true;
	}
	/* A worker is just sending what it holds so far: a flush does not end with that. */
	if (w->busy && s->plan.flushing)
		look_again(s, now_ms);
	if (w->busy || (now_ms - w->changed_ms < MISSED_MS && !s->plan.flushing))
		return;
	lease = writer_of(s, path);
	if (lease == LEASE_WRITER ||
		(lease == LEASE_UNKNOWN && now_ms - w->changed_ms < STILL_MS && !s->plan.flushing))
		return;
	if (plan_closed(&s->plan, e, ident, st->st_mode, plan_judge(w), now_ms) < 0)
		out_of_memory(s);
}

/* The scan, or a creation, found a file. */
static void see_file(
	struct sync *s, struct entry *e, const char *path, const struct stat *st, int64_t now_ms)
{
	struct work *w = e->work;
	struct ident ident;

	ident_of_stat(&ident, st);
	if (!w || e->state == ENTRY_GONE) {
		if (e->state == ENTRY_GONE)
			e->state = ENTRY_CLEAN;
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
		if (!w->busy && !ident_equal(&ident, &e->seen) &&
			writer_of(s, path) != LEASE_WRITER) {
			w->modified = true;
			if (plan_closed(&s->plan, e, &ident, st->st_mode,
				    e->state == ENTRY_HELD ? CLOSE_EXIT : CLOSE_UNSEEN, now_ms) < 0)
				out_of_memory(s);
		}
		break;
	case ENTRY_CLEAN:
	case ENTRY_GONE:
	case ENTRY_PARKED:
		break;
	}
}

/*
 * What is there now must wait for what stood there before: an upload under way, or objects that are
 * still to be deleted. A flush waits for it.
 */
static struct entry *later(struct sync *s, int64_t now_ms)
{
	look_again(s, now_ms);
	return NULL;
}

/* Forgets what was below a directory that is something else now; false: some of it is in use. */
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

/* Something else stood under this name before. */
static struct entry *change_kind(struct sync *s, struct entry *e, mode_t mode, int64_t now_ms)
{
	bool was_dir = e->below && e->state != ENTRY_GONE;
	struct dir *dir = e->dir;
	_cleanup_free_ char *name = NULL;

	if (e->mode == 0 || (e->mode & S_IFMT) == (mode & S_IFMT) ||
		(!was_dir && e->state == ENTRY_GONE && !e->below))
		return e;
	if (e->work && e->work->busy)
		return later(s, now_ms);
	name = strdup(e->name);
	if (!name)
		return later(s, now_ms);
	gone(s, e, now_ms);
	e = table_get(&s->table, dir, name);
	if (!e)
		return later(s, now_ms);
	if (e->below && !S_ISDIR(mode)) {
		/* Objects below a directory of that name are deleted first, or stay for good. */
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

static void see_name(struct sync *s, struct dir *dir, const char *name, int64_t now_ms)
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
	/* Whatever has a part of this path is something else. */
	if (buf_failed(&path))
		return out_of_memory(s);
	if (fstatat(s->root_fd, buf_str(&path), &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (e && (errno == ENOENT || errno == ENOTDIR))
			gone(s, e, now_ms);
		else if (errno == ENAMETOOLONG && dir->self)
			warn_name(s, dir->self,
				"paths below it have more than 4,096 bytes, which is the longest "
				"that the system takes: use shorter names");
		return;
	}
	if (!e)
		e = table_get(&s->table, dir, name);
	if (!e)
		return out_of_memory(s);
	e = change_kind(s, e, st.st_mode, now_ms);
	if (!e)
		return;
	e->flags |= ENTRY_SEEN;
	e->flags &= (uint16_t)~ENTRY_KEEP;
	if (is_ours(s, dir, name)) {
		warn_name(s, e, "the name is reserved for the state of penstock");
	} else if (S_ISDIR(st.st_mode)) {
		bool fresh = !e->below || e->state == ENTRY_GONE;
		struct dir *d = table_make_dir(&s->table, e);

		if (!d)
			return out_of_memory(s);
		e->state = ENTRY_CLEAN;
		ident_of_stat(&e->seen, &st);
		if (fresh) {
			s->plan.manifest_dirty = true;
			scan_push_first(s, d);
		}
	} else if (S_ISLNK(st.st_mode)) {
		see_link(s, e, buf_str(&path), &st);
	} else if (S_ISREG(st.st_mode)) {
		see_file(s, e, buf_str(&path), &st, now_ms);
	} else {
		warn_name(s, e, "it is a pipe, a socket or a device");
	}
}

/* Events. */

static void see_closed(
	struct sync *s, struct dir *dir, const char *name, bool moved, int64_t now_ms)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
	struct entry *e = table_find(&s->table, dir, name);
	enum close_kind kind;
	struct ident ident;
	struct stat st;

	if (!e || !e->work || e->below || S_ISLNK(e->mode)) {
		/* The kind of thing may have changed, and a name may be new: look first. */
		see_name(s, dir, name, now_ms);
		e = table_find(&s->table, dir, name);
		if (!e || e->below || !(e->mode == 0 || S_ISREG(e->mode)) || is_ours(s, dir, name))
			return;
		if (e->work && !e->work->modified && e->state == ENTRY_CLOSED) {
			e->work->unseen = !moved;
			return; /* that was it */
		}
	}
	entry_path(e, &path);
	if (buf_failed(&path))
		return out_of_memory(s);
	if (fstatat(s->root_fd, buf_str(&path), &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		!S_ISREG(st.st_mode))
		return; /* its own event is on the way */
	ident_of_stat(&ident, &st);
	kind = moved || !e->work ? CLOSE_TRUE : plan_judge(e->work);
	if (moved && e->work)
		e->work->modified = true;
	if (plan_closed(&s->plan, e, &ident, st.st_mode, kind, now_ms) < 0)
		out_of_memory(s);
}

static void see_modified(struct sync *s, struct dir *dir, const char *name, int64_t now_ms)
{
	struct entry *e;

	if (is_ours(s, dir, name))
		return;
	e = table_get(&s->table, dir, name);
	if (!e)
		return out_of_memory(s);
	if (e->below || S_ISLNK(e->mode))
		return;
	if (plan_changed(&s->plan, e, now_ms) < 0)
		out_of_memory(s);
}

static void on_watch(
	void *cookie, enum watch_event event, int wd, const char *name, bool is_dir, bool moved)
{
	struct sync *s = cookie;
	int64_t now_ms = clock_monotonic_ms();
	struct dir *dir = wd < 0 ? NULL : wd_dir(s, wd);
	struct entry *e;

	if (event == WATCH_OVERFLOW) {
		sync_emit(s, SYNC_WARNING, NULL, 0,
			"too many changes at once: the output is scanned");
		s->events_lost = true;
		observe_scan_all(s);
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
		see_name(s, dir, name, now_ms);
		break;
	case WATCH_GONE:
		e = table_find(&s->table, dir, name);
		if (e && (is_dir || !e->below))
			see_name(s, dir, name, now_ms); /* it may be there again by now */
		break;
	case WATCH_ATTRIB:
		if (!*name || is_dir)
			s->plan.manifest_dirty = true; /* times and mode of a directory */
		else if (table_find(&s->table, dir, name))
			see_name(s, dir, name, now_ms);
		break;
	case WATCH_IGNORED:
		wd_forget(s, dir);
		break;
	case WATCH_OVERFLOW:
		break;
	}
}

bool observe_events(struct sync *s)
{
	return s->watch && watch_read(s->watch, on_watch, s);
}

/* The scan. */

static bool scan_open(struct sync *s, struct dir *d)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
	_cleanup_close_ int fd = -1;

	dir_path(d, &path);
	if (buf_failed(&path)) {
		out_of_memory(s);
		return false;
	}
	fd = openat(s->root_fd, path.len ? buf_str(&path) : ".",
		O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
			run_short(s, strerror(errno));
		else if (d->self && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
			warn_name(s, d->self, strerror(errno));
		return false;
	}
	/* First the watch, then the names: what comes in between is seen by both. */
	watch_dir(s, d, fd);
	s->scan_stream = fdopendir(fd);
	if (!s->scan_stream) {
		out_of_memory(s);
		return false;
	}
	fd = -1;
	s->scan_dir = d;
	for (struct entry *e = d->first; e; e = e->sibling)
		e->flags &= (uint16_t)~ENTRY_SEEN;
	return true;
}

/* The directory was read to its end: what was not in it is gone. */
static void scan_close(struct sync *s, int64_t now_ms)
{
	struct dir *d = s->scan_dir;

	closedir(s->scan_stream);
	s->scan_stream = NULL;
	s->scan_dir = NULL;
	for (struct entry *e = d->first, *next; e; e = next) {
		next = e->sibling;
		if (!(e->flags & (ENTRY_SEEN | ENTRY_KEEP)) && e->state != ENTRY_GONE) {
			_cleanup_free_ char *name = strdup(e->name);

			if (name)
				see_name(s, d, name, now_ms);
			else
				out_of_memory(s);
		}
	}
}

int observe_scan(struct sync *s, int64_t now_ms)
{
	int64_t pause;
	unsigned n = 0;

	if (!s->scan_dir && !s->scan_first && !s->scan_all &&
		(now_ms >= s->scan_ms || (s->look_again && now_ms >= s->again_ms)))
		observe_scan_all(s);
	while (n < SCAN_STEP && (s->scan_dir || s->scan_first)) {
		struct dirent *d;

		if (!s->scan_dir) {
			struct dir *next = s->scan_first;

			scan_remove(s, next);
			n++;
			if (!scan_open(s, next))
				continue;
		}
		d = readdir(s->scan_stream);
		if (!d)
			scan_close(s, now_ms);
		else if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
			see_name(s, s->scan_dir, d->d_name, now_ms);
		n++;
	}
	s->scan_cost_ms += clock_monotonic_ms() - now_ms;
	if (s->scan_dir || s->scan_first)
		return 0;
	if (s->scan_all) {
		s->scan_all = false;
		s->scans_done = s->scan_for;
		s->again_pause_ms = !s->look_again			   ? 0
				    : s->again_pause_ms < AGAIN_MS	   ? 2 * AGAIN_MS
				    : s->again_pause_ms > AGAIN_MAX_MS / 2 ? AGAIN_MAX_MS
									   : 2 * s->again_pause_ms;
		pause = s->polling && s->o.scan_ms > SCAN_POLL_MS ? SCAN_POLL_MS : s->o.scan_ms;
		if (pause < s->scan_cost_ms * 20)
			pause = s->scan_cost_ms * 20;
		s->scan_ms = clock_monotonic_ms() + pause;
		pthread_cond_broadcast(&s->idle);
	}
	now_ms = clock_monotonic_ms();
	pause = (s->look_again && s->again_ms < s->scan_ms ? s->again_ms : s->scan_ms) - now_ms;
	return pause > 0 ? (int)pause : 0;
}

/* Writers. */

static int by_ino(const void *a, const void *b)
{
	const struct wanted *x = a, *y = b;

	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static void on_writer(void *cookie, void *tag, struct proc *p, bool append)
{
	struct sync *s = cookie;

	plan_add_writer(&s->plan, tag, p, append);
}

int64_t observe_writers(struct sync *s, int64_t now_ms)
{
	static const int64_t again_ms[LOOK_TIMES] = {0, 20, 500};
	_cleanup_(pid_list_release) struct pid_list pids = {0};
	_cleanup_free_ struct wanted *wanted = NULL;
	int64_t next = INT64_MAX;
	size_t n = 0, looked = 0;

	for (struct work *w = s->table.works; w && looked < LOOK_WORKS; w = w->all_next, looked++) {
		_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
		struct opening *o = w->opening;
		int64_t due;
		struct stat st;

		if (w->entry->state != ENTRY_OPEN || o->looked >= LOOK_TIMES || o->writers[0])
			continue;
		due = o->opened_ms + again_ms[o->looked];
		if (due < s->look_ms)
			due = s->look_ms;
		if (now_ms < due) {
			next = due < next ? due : next;
			continue;
		}
		if (!wanted)
			wanted = calloc(LOOK_WORKS, sizeof(*wanted));
		entry_path(w->entry, &path);
		if (!wanted || buf_failed(&path) ||
			fstatat(s->root_fd, buf_str(&path), &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		w->entry->seen.size = (uint64_t)st.st_size;
		wanted[n++] = (struct wanted){.dev = st.st_dev, .ino = st.st_ino, .tag = w};
		if (++o->looked < LOOK_TIMES)
			next = now_ms + again_ms[o->looked];
	}
	if (!n)
		return next;
	qsort(wanted, n, sizeof(*wanted), by_ino);
	if (s->o.pids)
		s->o.pids(s->o.cookie, pid_list_add, &pids);
	else
		pid_list_add_descendants(&pids, s->o.root_pid ? s->o.root_pid : getpid());
	writers_find(&s->procs, &pids, wanted, n, on_writer, s);
	now_ms = clock_monotonic_ms() - now_ms;
	s->look_ms = clock_monotonic_ms() + LOOK_STEP_MS + now_ms * 20;
	return next;
}

void observe_doomed(struct sync *s)
{
	for (struct work *w = s->table.works; w; w = w->all_next) {
		_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);

		if (w->entry->state != ENTRY_OPEN)
			continue;
		entry_path(w->entry, &path);
		w->doomed = !buf_failed(&path) && writer_of(s, buf_str(&path)) == LEASE_WRITER;
	}
}

void observe_start(struct sync *s)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (s->leases_unreliable || watch_open(&s->watch, &err) < 0) {
		s->polling = true;
		sync_emit(s, SYNC_WARNING, NULL, 0,
			"%s: changes of the output are found by scanning",
			s->leases_unreliable ? "the output is on a network file system"
					     : err.message);
	}
	observe_scan_all(s);
}

void observe_stop(struct sync *s)
{
	if (s->scan_stream)
		closedir(s->scan_stream);
	s->scan_stream = NULL;
	watch_free(s->watch);
	s->watch = NULL;
}
