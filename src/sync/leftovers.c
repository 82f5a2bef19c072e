/*
 * Leftovers of a sync that was killed. The journal names the last syncs of this directory. The
 * journal also has every upload in parts, from before its request until the store has no part of
 * the upload, so that leftovers can be distinguished from uploads of other programs.
 */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "sync/internal.h"

/* Stores refuse signed requests if the clocks differ by more than this, so the store's date of an
 * upload differs from the date in the journal by less. */
#define CLOCKS_DIFFER (INT64_C(15) * 60 * NS_PER_S)

struct leftover {
	struct leftover *next;
	char *key;
	char *id; /* NULL if the upload was requested and no reply arrived */
	int64_t asked_ns; /* time of the request, wall clock */
};

static void leftover_free(struct leftover *l)
{
	free(l->key);
	free(l->id);
	free(l);
}

void leftovers_free(struct sync *s)
{
	struct leftover *l, *next;

	LL_FOREACH_SAFE(s->leftovers, l, next)
	leftover_free(l);
}

/* ---- the journal ---- */

static void note(struct journal *to, const struct leftover *l, bool over)
{
	journal_add(to, &(struct journal_record){.type = over ? JOURNAL_PARTS_OVER : JOURNAL_PARTS,
				.key = l->key,
				.etag = l->id,
				.ident.mtime_ns = l->asked_ns});
}

void leftovers_fill(const struct sync *s, struct journal *to)
{
	for (const struct leftover *l = s->leftovers; l; l = l->next)
		note(to, l, false);
}

/* Returns the leftover with this id or, if no leftover has the id, the latest request for the key
 * that got no id. Earlier requests without an id belong to attempts that were killed. */
static struct leftover *find(const struct sync *s, const char *key, const char *id)
{
	struct leftover *unnamed = NULL;

	for (struct leftover *l = s->leftovers; l; l = l->next) {
		if (strcmp(l->key, key) != 0)
			continue;
		if (id && l->id && strcmp(l->id, id) == 0)
			return l;
		if (!l->id && (!unnamed || l->asked_ns > unnamed->asked_ns))
			unnamed = l;
	}
	return unnamed;
}

static struct leftover *add(struct sync *s, const char *key, const char *id, int64_t asked_ns)
{
	struct leftover *l = id ? find(s, key, id) : NULL;

	if (!l) {
		l = calloc(1, sizeof(*l));
		if (!l)
			return NULL;
		l->key = strdup(key);
		l->asked_ns = asked_ns;
		if (!l->key) {
			leftover_free(l);
			return NULL;
		}
		LL_PREPEND(s->leftovers, l);
	}
	if (id && !l->id)
		l->id = strdup(id);
	return l;
}

static void forget(struct sync *s, struct leftover *l)
{
	LL_DELETE(s->leftovers, l);
	leftover_free(l);
}

int leftovers_replay(struct sync *s, const struct journal_record *r)
{
	const char *id = r->etag && *r->etag ? r->etag : NULL;
	struct leftover *l;

	if (r->type == JOURNAL_PARTS)
		return add(s, r->key, id, r->ident.mtime_ns) ? 0 : -1;
	l = find(s, r->key, id);
	if (l)
		forget(s, l);
	return 0;
}

/* The record is written at once, because a kill may follow. */
void leftovers_parts(void *sync, const char *key, const char *id, bool over)
{
	struct sync *s = sync;
	struct leftover *l;

	LOCK_SCOPE(&s->lock);
	l = over ? find(s, key, id) : add(s, key, id, clock_wall_ns());
	if (l)
		note(s->journal, l, over);
	if (l && over)
		forget(s, l);
	journal_write(s->journal);
}

/* ---- the bucket ---- */

struct search {
	struct sync *s;
	const struct leftover *of;
	struct penstock_error *err;
	int rc;
};

static int on_upload(void *cookie, const char *key, const char *id, int64_t initiated_ns)
{
	struct search *search = cookie;
	const struct sync_options *o = &search->s->o;
	int64_t apart = initiated_ns - search->of->asked_ns;

	if (strcmp(key, search->of->key) == 0 && apart > -CLOCKS_DIFFER && apart < CLOCKS_DIFFER)
		search->rc = object_abort_upload(
			object_at(o->client, o->bucket, key), id, search->err);
	return search->rc < 0;
}

static int end(struct sync *s, const struct leftover *l, struct penstock_error *err)
{
	struct search search = {.s = s, .of = l, .err = err};
	int rc;

	if (l->id)
		return object_abort_upload(sync_at(s, l->key), l->id, err);
	rc = object_list_uploads(sync_at(s, l->key), on_upload, &search, err);
	return rc < 0 ? rc : search.rc;
}

static int on_probe_upload(void *cookie, const char *key, const char *id, int64_t initiated_ns)
{
	const struct sync_options *o = cookie;

	(void)initiated_ns;
	object_abort_upload(object_at(o->client, o->bucket, key), id, NULL);
	return 0;
}

static int on_probe(void *cookie, const struct object_info *info)
{
	const struct sync_options *o = cookie;

	object_delete(object_at(o->client, o->bucket, info->key), NULL, NULL);
	return 0;
}

/* Removes objects and uploads that are left if an attempt was killed while it probed the store. The
 * keys of the probes have this run's prefix, so no other run uses them. */
static void end_probes(struct sync *s)
{
	_cleanup_(buf_release) struct buf prefix = BUF_INIT(LIMIT_S3_KEY * 3);

	buf_printf(&prefix, "%sprobe-", s->state);
	/* After a failure the prefix is empty, and would match the whole bucket. */
	if (buf_failed(&prefix))
		return;
	object_list_uploads(sync_at(s, buf_str(&prefix)), on_probe_upload, &s->o, NULL);
	object_list(sync_at(s, buf_str(&prefix)), NULL, on_probe, &s->o, s->o.cancel, NULL);
}

/* Reads the list without the lock, because no upload is added before the sync is attached. */
void leftovers_end(struct sync *s, bool earlier)
{
	struct leftover *l, *next;

	if (s->continued || earlier)
		end_probes(s);
	LL_FOREACH_SAFE(s->leftovers, l, next)
	{
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

		if (end(s, l, &err) < 0) {
			sync_emit(s, SYNC_WARNING, NULL, 0,
				"cannot remove the parts of an interrupted upload of '%s', which "
				"stay in the store for now: %s",
				l->key, err.message ? err.message : "");
			continue;
		}
		LOCK_SCOPE(&s->lock);
		note(s->journal, l, true);
		forget(s, l);
	}
}

/* ---- the manifest ---- */

bool leftovers_is_ours(const struct sync *s, const struct object_info *manifest)
{
	const char *by = strlist_get(&manifest->metadata, "penstock-upload");

	for (size_t i = 0; by && i < s->nonces.n; i++) {
		size_t len = strlen(s->nonces.items[i]);

		if (strncmp(by, s->nonces.items[i], len) == 0 && by[len] == '-')
			return true;
	}
	return false;
}
