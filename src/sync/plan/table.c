#include "sync/plan/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/clock.h"
#include "base/str.h"

#define FIRST_SLOTS 256

void ident_of_stat(struct ident *ident, const struct stat *st)
{
	*ident = (struct ident){
		.size = (uint64_t)st->st_size,
		.mtime_ns = st->st_mtim.tv_sec * NS_PER_S + st->st_mtim.tv_nsec,
		.ctime_ns = st->st_ctim.tv_sec * NS_PER_S + st->st_ctim.tv_nsec,
		.ino = st->st_ino,
	};
}

bool ident_equal(const struct ident *a, const struct ident *b)
{
	return a->size == b->size && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns &&
	       a->ino == b->ino;
}

static size_t hash_name(const struct dir *dir, const char *name)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325) ^ dir->id;

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
	h ^= h >> 32;
	return (size_t)h;
}

static struct dir *dir_new(struct table *t, struct entry *self)
{
	struct dir *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->self = self;
	d->wd = -1;
	d->id = t->next_dir++;
	DL_PREPEND2(t->dirs, d, all_prev, all_next);
	return d;
}

int table_init(struct table *t)
{
	memset(t, 0, sizeof(*t));
	t->slots = calloc(FIRST_SLOTS, sizeof(struct entry *));
	if (!t->slots)
		return -1;
	t->n_slots = FIRST_SLOTS;
	t->top = dir_new(t, NULL);
	if (!t->top) {
		free(t->slots);
		memset(t, 0, sizeof(*t));
		return -1;
	}
	return 0;
}

/* Returns the slot of the name, or the free slot where the name belongs. */
static size_t slot_of(const struct table *t, const struct dir *dir, const char *name)
{
	size_t mask = t->n_slots - 1;
	size_t i = hash_name(dir, name) & mask;

	while (t->slots[i] && (t->slots[i]->dir != dir || strcmp(t->slots[i]->name, name) != 0))
		i = (i + 1) & mask;
	return i;
}

static int slots_grow(struct table *t)
{
	struct entry **old = t->slots;
	size_t n_old = t->n_slots;

	t->slots = calloc(n_old * 2, sizeof(struct entry *));
	if (!t->slots) {
		t->slots = old;
		return -1;
	}
	t->n_slots = n_old * 2;
	for (size_t i = 0; i < n_old; i++)
		if (old[i])
			t->slots[slot_of(t, old[i]->dir, old[i]->name)] = old[i];
	free(old);
	return 0;
}

/* Closes the gap, so that no tombstones are needed. */
static void slot_remove(struct table *t, size_t gap)
{
	size_t mask = t->n_slots - 1;

	for (size_t i = (gap + 1) & mask; t->slots[i]; i = (i + 1) & mask) {
		size_t home = hash_name(t->slots[i]->dir, t->slots[i]->name) & mask;

		if (((i - home) & mask) >= ((i - gap) & mask)) {
			t->slots[gap] = t->slots[i];
			gap = i;
		}
	}
	t->slots[gap] = NULL;
}

struct entry *table_find(const struct table *t, const struct dir *dir, const char *name)
{
	return t->slots[slot_of(t, dir, name)];
}

struct entry *table_get(struct table *t, struct dir *dir, const char *name)
{
	size_t len = strlen(name), slot = slot_of(t, dir, name);
	struct entry *e = t->slots[slot];

	if (e)
		return e;
	if (t->n_entries * 8 >= t->n_slots * 7) {
		if (slots_grow(t) < 0)
			return NULL;
		slot = slot_of(t, dir, name);
	}
	e = calloc(1, offsetof(struct entry, name) + len + 1);
	if (!e)
		return NULL;
	memcpy(e->name, name, len);
	e->dir = dir;
	DL_PREPEND2(dir->first, e, before, sibling);
	t->slots[slot] = e;
	t->n_entries++;
	return e;
}

struct dir *table_make_dir(struct table *t, struct entry *e)
{
	if (!e->below)
		e->below = dir_new(t, e);
	if (e->below)
		e->mode = S_IFDIR | (e->mode & 07777);
	return e->below;
}

static struct entry *walk_path(struct table *t, const char *path, bool make)
{
	struct dir *dir = t->top;
	char name[256];

	for (;;) {
		size_t len = strcspn(path, "/");
		struct entry *e;

		errno = ENOTDIR;
		if (len == 0 || len >= sizeof(name))
			return NULL;
		memcpy(name, path, len);
		name[len] = '\0';
		e = make ? table_get(t, dir, name) : table_find(t, dir, name);
		if (!e)
			errno = ENOMEM;
		if (!e || !path[len])
			return e;
		/* The name is a file or link that exists or is to be restored, and not a
		 * directory. */
		if (make && !e->below && e->mode && !S_ISDIR(e->mode) &&
			(e->state != ENTRY_GONE || (e->flags & ENTRY_KEEP)))
			return NULL;
		if (make && !table_make_dir(t, e)) {
			errno = ENOMEM;
			return NULL;
		}
		if (!e->below)
			return NULL;
		dir = e->below;
		path += len + 1;
	}
}

struct entry *table_get_path(struct table *t, const char *path)
{
	return walk_path(t, path, true);
}

struct entry *table_find_path(const struct table *t, const char *path)
{
	return walk_path((struct table *)t, path, false);
}

static void free_entry(struct table *t, struct entry *e)
{
	if (e->work)
		table_drop_work(t, e);
	if (e->below) {
		DL_DELETE2(t->dirs, e->below, all_prev, all_next);
		free(e->below);
	}
	free(e->text);
	free(e);
}

/* Takes an entry out of the line before its turn, which is rare. */
static void leave_line(struct entry *e)
{
	struct entry *before = NULL;

	for (struct entry *at = e->dir->line; at != e; at = at->line_next)
		before = at;
	if (before)
		before->line_next = e->line_next;
	else
		e->dir->line = e->line_next;
	if (e->dir->line_tail == e)
		e->dir->line_tail = before;
	e->dir->line_out++;
}

void table_remove(struct table *t, struct entry *e)
{
	if (e->flags & ENTRY_LINE)
		leave_line(e);
	while (e->below && e->below->first)
		table_remove(t, e->below->first);
	slot_remove(t, slot_of(t, e->dir, e->name));
	t->n_entries--;
	DL_DELETE2(e->dir->first, e, before, sibling);
	free_entry(t, e);
}

void table_release(struct table *t)
{
	for (size_t i = 0; i < t->n_slots; i++)
		if (t->slots[i])
			free_entry(t, t->slots[i]);
	free(t->slots);
	if (t->top)
		free(t->top);
	memset(t, 0, sizeof(*t));
}

void table_touch_work(struct table *t, struct work *w)
{
	DL_DELETE2(t->works, w, all_prev, all_next);
	DL_PREPEND2(t->works, w, all_prev, all_next);
}

struct work *table_work(struct table *t, struct entry *e, int64_t now_ms)
{
	struct work *w = e->work;

	if (w)
		return w;
	w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	w->entry = e;
	w->dirty_ms = w->changed_ms = now_ms;
	if (e->flags & ENTRY_PUBLISHED)
		w->published = e->seen;
	DL_PREPEND2(t->works, w, all_prev, all_next);
	t->n_works++;
	e->work = w;
	return w;
}

void table_drop_work(struct table *t, struct entry *e)
{
	struct work *w = e->work;

	DL_DELETE2(t->works, w, all_prev, all_next);
	t->n_works--;
	e->work = NULL;
	free(w->opening);
	free(w->frozen);
	free(w);
}

struct opening *work_open(struct work *w)
{
	if (!w->opening)
		w->opening = calloc(1, sizeof(*w->opening));
	return w->opening;
}

int table_each_below(const struct dir *d, int (*fn)(void *cookie, struct entry *e), void *cookie)
{
	int rc = 0;

	for (struct entry *e = d->first, *next; e && !rc; e = next) {
		next = e->sibling;
		rc = fn(cookie, e);
		if (!rc && e->below)
			rc = table_each_below(e->below, fn, cookie);
	}
	return rc;
}

int table_each(const struct table *t, int (*fn)(void *cookie, struct entry *e), void *cookie)
{
	return table_each_below(t->top, fn, cookie);
}

void dir_path(const struct dir *d, struct buf *out)
{
	if (d->self)
		entry_path(d->self, out);
}

void entry_path(const struct entry *e, struct buf *out)
{
	if (e->dir->self) {
		entry_path(e->dir->self, out);
		buf_add_char(out, '/');
	}
	buf_add_str(out, e->name);
}

int entry_set_etag(struct entry *e, const char *etag)
{
	struct etag parsed = {.form = 1};
	char hex[33];
	uint64_t parts = 0;
	char *copy = NULL;

	if (!S_ISLNK(e->mode)) {
		free(e->text);
		e->text = NULL;
	}
	memset(&e->etag, 0, sizeof(e->etag));
	if (!etag || !*etag)
		return 0;
	if (etag[0] == '"' && strlen(etag) >= 34) {
		const char *rest = etag + 33;
		char count[8] = "";

		snprintf(hex, sizeof(hex), "%.32s", etag + 1);
		if (rest[0] == '-')
			snprintf(count, sizeof(count), "%.*s", (int)strspn(rest + 1, "0123456789"),
				rest + 1);
		if (str_unhex(hex, parsed.md5, 16) == 0 &&
			(rest[0] == '"' || str_to_u64(count, 1, 65535, &parts))) {
			char again[ENTRY_ETAG_SIZE];

			parsed.parts = (uint16_t)parts;
			e->etag = parsed;
			entry_etag(e, again);
			if (strcmp(again, etag) == 0)
				return 0;
			memset(&e->etag, 0, sizeof(e->etag));
		}
	}
	if (S_ISLNK(e->mode) || strlen(etag) >= ENTRY_ETAG_SIZE)
		return 0;
	copy = strdup(etag);
	if (!copy)
		return -1;
	e->text = copy;
	e->etag.form = 2;
	return 0;
}

void entry_etag(const struct entry *e, char out[static ENTRY_ETAG_SIZE])
{
	char hex[33];

	out[0] = '\0';
	if (e->etag.form == 2)
		snprintf(out, ENTRY_ETAG_SIZE, "%s", e->text);
	if (e->etag.form != 1)
		return;
	str_hex(e->etag.md5, 16, hex);
	if (e->etag.parts)
		snprintf(out, ENTRY_ETAG_SIZE, "\"%s-%u\"", hex, e->etag.parts);
	else
		snprintf(out, ENTRY_ETAG_SIZE, "\"%s\"", hex);
}

bool entry_may_have_etag(const struct entry *e, const char *etag)
{
	char own[ENTRY_ETAG_SIZE];

	entry_etag(e, own);
	return !own[0] || strcmp(own, etag) == 0;
}
