/* Does the periodic work of the owner thread: watches and reads directories, and finds the writers
 * of files. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/must.h"
#include "sync/internal.h"

#define SCAN_STEP    512 /* names read in one call, under lock */
#define SCAN_POLL_MS 1000 /* longest pause between scans without a watch, unless scans take long */
/* Pause before a scan for a name that has to wait: AGAIN_MS (dirs.c) at first, then this time,
 * which is doubled after each further scan. */
#define AGAIN_MIN_MS 200
#define AGAIN_MAX_MS 5000
#define LOOK_STEP_MS 5 /* minimum time between two searches for writers */
#define LOOK_WORKS   1024 /* changes that one search examines */
#define LOOK_TIMES   3 /* searches for the writers of one file */

/* ---- the scan ---- */

static bool scan_open(struct sync *s, struct dir *d)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);

	dir_path(d, &path);
	if (buf_failed(&path)) {
		observe_no_memory(s);
		return false;
	}
	s->scan_stream = fs_list_at(s->root_fd, path.len ? buf_str(&path) : ".");
	if (!s->scan_stream) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
			observe_short(s, strerror(errno));
		else if (d->self && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
			observe_warn_name(s, d->self, strerror(errno));
		return false;
	}
	/* The watch is set before the names are read, so no change in between is missed. */
	dirs_watch(s, d, dirfd(s->scan_stream));
	s->scan_dir = d;
	for (struct entry *e = d->first; e; e = e->sibling)
		e->flags &= (uint16_t)~ENTRY_SEEN;
	return true;
}

/* Ends the scan of a directory: looks up the known names that the scan has not found. */
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
				observe_name(s, d, name, now_ms);
			else
				observe_no_memory(s);
		}
	}
}

/* Handles a failed read of a directory. Some names of the directory may be unknown, and a flush
 * must not succeed without them. The flush fails instead of waiting for another scan, which could
 * fail again and again. */
static void scan_failed(struct sync *s, int reason)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);

	if (!s->plan.flushing) {
		observe_short(s, strerror(reason));
		return;
	}
	dir_path(s->scan_dir, &path);
	if (!s->flush_error.message)
		error_errno(&s->flush_error, reason, "cannot read the output directory '%s'",
			path.len ? buf_str(&path) : ".");
}

int observe_scan(struct sync *s, int64_t now_ms)
{
	int64_t pause;
	unsigned n = 0;

	MUST_HOLD(&s->lock);
	if (!s->scan_dir && !s->scan_first && !s->scan_all &&
		(now_ms >= s->scan_ms || (s->look_again && now_ms >= s->again_ms)))
		dirs_push_all(s);
	while (n < SCAN_STEP && (s->scan_dir || s->scan_first)) {
		struct dirent *d;

		if (!s->scan_dir) {
			struct dir *next = s->scan_first;

			dirs_remove(s, next);
			n++;
			if (!scan_open(s, next))
				continue;
		}
		d = fs_next_entry(s->scan_stream);
		if (!d && errno)
			scan_failed(s, errno);
		if (!d)
			scan_close(s, now_ms);
		else
			observe_name(s, s->scan_dir, d->d_name, now_ms);
		n++;
	}
	s->scan_cost_ms += clock_monotonic_ms() - now_ms;
	if (s->scan_dir || s->scan_first)
		return 0;
	if (s->scan_all) {
		s->scan_all = false;
		s->scans_done = s->scan_for;
		s->again_pause_ms = !s->look_again			   ? 0
				    : s->again_pause_ms < AGAIN_MIN_MS / 2 ? AGAIN_MIN_MS
				    : s->again_pause_ms > AGAIN_MAX_MS / 2 ? AGAIN_MAX_MS
									   : 2 * s->again_pause_ms;
		pause = s->status.polling && s->o.scan_ms > SCAN_POLL_MS ? SCAN_POLL_MS
									 : s->o.scan_ms;
		if (pause < s->scan_cost_ms * 20)
			pause = s->scan_cost_ms * 20;
		s->scan_ms = clock_monotonic_ms() + pause;
		pthread_cond_broadcast(&s->idle);
	}
	now_ms = clock_monotonic_ms();
	pause = (s->look_again && s->again_ms < s->scan_ms ? s->again_ms : s->scan_ms) - now_ms;
	return pause > 0 ? (int)pause : 0;
}

/* ---- writers ---- */

static int by_ino(const void *a, const void *b)
{
	const struct wanted *x = a, *y = b;

	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static void on_writer(void *cookie, void *tag, struct proc *p, bool append)
{
	(void)cookie;
	plan_add_writer(tag, p, append);
}

int64_t observe_writers(struct sync *s, int64_t now_ms)
{
	static const int64_t again_ms[LOOK_TIMES] = {0, 20, 500};
	_cleanup_(pid_list_release) struct pid_list pids = {0};
	_cleanup_free_ struct wanted *wanted = NULL;
	int64_t next = INT64_MAX;
	size_t n = 0, looked = 0;

	MUST_HOLD(&s->lock);
	for (struct work *w = s->table.works, *after; w && looked < LOOK_WORKS;
		w = after, looked++) {
		_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
		struct opening *o = w->opening;
		struct ident ident;
		int64_t due;
		struct stat st;

		after = w->all_next; /* a close may free the work */
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
		/* When the lease was refused, the writer was still closing the file, and the event
		 * of that close was already handled: no other event will report the close. */
		if (o->by_lease && o->looked && observe_lease(s, buf_str(&path)) == LEASE_FREE) {
			ident_of_stat(&ident, &st);
			if (plan_closed(&s->plan, w->entry, &ident, st.st_mode, o->closed_as,
				    now_ms) < 0)
				observe_no_memory(s);
			continue;
		}
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
	writers_find(&s->procs, &pids, wanted, n, on_writer, NULL);
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
		plan_doom(
			w, !buf_failed(&path) && observe_lease(s, buf_str(&path)) == LEASE_WRITER);
	}
}

/* ---- start and stop ---- */

void observe_start(struct sync *s)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (s->leases_unreliable || watch_open(&s->watch, &err) < 0) {
		s->status.polling = true;
		sync_emit(s, SYNC_WARNING, NULL, 0,
			"%s: changes of the output are found by scanning",
			s->leases_unreliable ? "the output is on a network file system"
					     : err.message);
	}
	dirs_push_all(s);
}

void observe_stop(struct sync *s)
{
	if (s->scan_stream)
		closedir(s->scan_stream);
	s->scan_stream = NULL;
	watch_free(s->watch);
	s->watch = NULL;
}
