/* The directories of the output: their watches, and the list of directories to be read. */
#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "sync/internal.h"

#define AGAIN_MS 100 /* first pause before the scan for a name that had to wait */
#define SHORT_MS 60000 /* minimum time between two warnings of observe_short() */

/* observe_scan() lengthens the pause after each scan, because a name may have to wait long (for an
 * unavailable store), and each attempt scans the whole output. */
void observe_again(struct sync *s, int64_t now_ms)
{
	if (s->look_again)
		return;
	s->look_again = true;
	s->again_ms = now_ms + (s->again_pause_ms ? s->again_pause_ms : AGAIN_MS);
}

void observe_short(struct sync *s, const char *what)
{
	int64_t now_ms = clock_monotonic_ms();

	if (!s->short_ms || now_ms - s->short_ms > SHORT_MS) {
		sync_emit(s, SYNC_WARNING, NULL, 0,
			"cannot examine all of the output: %s; the next scan tries again", what);
		s->short_ms = now_ms;
	}
	observe_again(s, now_ms);
}

void observe_no_memory(struct sync *s)
{
	observe_short(s, "out of memory");
}

/* ---- directories to be read ---- */

void dirs_push_first(struct sync *s, struct dir *d)
{
	if (d->scan)
		return;
	d->scan = true;
	DL_PREPEND2(s->scan_first, d, scan_prev, scan_next);
}

void dirs_remove(struct sync *s, struct dir *d)
{
	if (!d->scan)
		return;
	d->scan = false;
	DL_DELETE2(s->scan_first, d, scan_prev, scan_next);
}

void dirs_push_all(struct sync *s)
{
	for (struct dir *d = s->table.dirs; d; d = d->all_next) {
		if (!d->scan)
			DL_APPEND2(s->scan_first, d, scan_prev, scan_next);
		d->scan = true;
	}
	s->scan_all = true;
	s->status.scans++;
	s->look_again = false;
	s->scan_for = s->scans_wanted;
	s->scan_cost_ms = 0;
}

/* ---- watches ---- */

static struct dir **wd_slot(struct sync *s, int wd)
{
	return &s->wd_map[(unsigned)wd % ARRAY_SIZE(s->wd_map)];
}

struct dir *dirs_of_watch(struct sync *s, int wd)
{
	struct dir *d = *wd_slot(s, wd);

	while (d && d->wd != wd)
		d = d->wd_next;
	return d;
}

void dirs_unwatch(struct sync *s, struct dir *d)
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

/* Watches the directory, which is open as `fd`. At the limit on watches, the sync polls instead. */
void dirs_watch(struct sync *s, struct dir *d, int fd)
{
	struct dir *other;
	int wd;

	if (!s->watch || d->wd >= 0)
		return;
	wd = watch_add(s->watch, fd);
	if (wd < 0) {
		if (!s->status.polling)
			sync_emit(s, SYNC_WARNING, NULL, 0,
				"cannot watch more directories: %s; changes are found by scanning; "
				"to avoid this raise fs.inotify.max_user_watches",
				strerror(errno));
		s->status.polling = true;
		return;
	}
	/* A directory that is watched under another name has been moved. */
	other = dirs_of_watch(s, wd);
	if (other)
		dirs_unwatch(s, other);
	d->wd = wd;
	d->wd_next = *wd_slot(s, wd);
	*wd_slot(s, wd) = d;
}

void dirs_forget(struct sync *s, struct dir *d)
{
	if (d->wd >= 0)
		watch_remove(s->watch, d->wd);
	dirs_unwatch(s, d);
	dirs_remove(s, d);
	if (s->scan_dir == d) {
		closedir(s->scan_stream);
		s->scan_stream = NULL;
		s->scan_dir = NULL;
	}
}
