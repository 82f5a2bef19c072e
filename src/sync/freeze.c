/*
 * Copies small files that are rewritten while they wait for their upload, such as `latest`, which
 * names the newest checkpoint. When the turn of a rewritten file comes, the file may name other
 * files that were closed later. Therefore all small files of a directory are copied into memory at
 * the same moment, and published after everything that was closed before that moment.
 */
#include <stdlib.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/must.h"
#include "sync/kernel/lease.h"
#include "sync/internal.h"

#define LOOKED_AT   1024 /* files of a queue that are examined */
#define BYTES	    (1 * MIB) /* limit of the bytes copied from one directory */
#define BYTES_ALL   (4 * MIB) /* limit of the bytes copied from all directories */
#define PATIENCE_MS 250 /* time to wait for a moment when all these files are closed */
#define AGAIN_MS    2 /* pause before the next attempt */

struct frozen *freeze_file(int fd, enum lease *lease)
{
	struct frozen *f = NULL;
	struct ident after;
	struct stat st;

	*lease = LEASE_UNKNOWN;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > PLAN_MARKER)
		return NULL;
	f = malloc(sizeof(*f) + (size_t)st.st_size);
	if (!f)
		return NULL;
	*f = (struct frozen){.mode = st.st_mode, .len = (size_t)st.st_size};
	ident_of_stat(&f->ident, &st);
	if (lease_read(fd, f->data, f->len, lease) == 0 && fstat(fd, &st) == 0) {
		ident_of_stat(&after, &st);
		if (ident_equal(&after, &f->ident))
			return f;
	}
	free(f);
	return NULL;
}

static int open_entry(struct sync *s, const struct entry *e)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);

	entry_path(e, &path);
	return buf_failed(&path) ? -1 : sync_open_file(s, buf_str(&path));
}

/* Copies the file of `w` if the file has not changed since its last close. */
static bool freeze(struct sync *s, struct work *w)
{
	_cleanup_close_ int fd = open_entry(s, w->entry);
	enum lease lease;
	struct frozen *f = fd < 0 ? NULL : freeze_file(fd, &lease);

	if (f && !ident_equal(&f->ident, &w->entry->seen)) {
		free(f);
		f = NULL;
	}
	if (!f)
		return false;
	f->close = w->close;
	plan_freeze(&s->plan, w, f);
	return true;
}

static bool is_as_frozen(struct sync *s, const struct work *w)
{
	_cleanup_close_ int fd = open_entry(s, w->entry);
	struct ident now;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return false;
	ident_of_stat(&now, &st);
	return ident_equal(&now, &w->frozen->ident);
}

/* Copies the small files of `d` that were closed. Returns false if there was no moment at which all
 * copies were valid. */
static bool freeze_all(struct sync *s, struct dir *d)
{
	size_t bytes = 0, n = 0, looked = 0;

	for (struct work *w = d->head; w && looked < LOOKED_AT && n < PLAN_FROZEN;
		w = w->next, looked++) {
		const struct entry *e = w->entry;

		if (e->seen.size > PLAN_MARKER || e->below || w->send != SEND_IDLE ||
			w->how == HOW_REST || w->settled)
			continue;
		if (e->state == ENTRY_OPEN)
			return false;
		if (e->state != ENTRY_CLOSED)
			continue;
		bytes += e->seen.size;
		if (bytes > BYTES || s->plan.frozen_bytes > BYTES_ALL)
			break;
		if (!freeze(s, w))
			return false;
		n++;
	}
	for (struct work *w = d->head; w && n; w = w->next) {
		if (!w->frozen)
			continue;
		if (!is_as_frozen(s, w))
			return false;
		n--;
	}
	return true;
}

void freeze_dir(struct sync *s, struct dir *d)
{
	int64_t now_ms = clock_monotonic_ms();
	bool frozen;

	MUST_HOLD(&s->lock);
	if (!d->freeze_since_ms)
		d->freeze_since_ms = now_ms;
	d->busy = true; /* keeps the directory while events are read */
	observe_catch_up(s);
	frozen = freeze_all(s, d);
	for (struct work *w = d->head; w && d->n_frozen && !frozen; w = w->next)
		plan_thaw(&s->plan, w);
	if (!frozen && now_ms - d->freeze_since_ms < PATIENCE_MS) {
		d->freeze_ms = now_ms + AGAIN_MS;
	} else {
		observe_catch_up(s);
		plan_queue_frozen(&s->plan, d);
		plan_freeze_failed(&s->plan, d);
		d->freeze_since_ms = 0;
	}
	d->busy = false;
}
