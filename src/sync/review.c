/*
 * The last check of the bucket in a flush: every object of this run must still exist, because
 * otherwise the local file is the only copy. The bucket is listed once; objects that the list does
 * not show as expected are requested by name, so encoded keys need no special rule. The use of
 * memory does not depend on the size of the bucket.
 *
 * With deleteSync the list also shows objects that this sync uploaded and that have no file: an
 * upload may reach the store after the deletion of its name, if its request was delayed on the way.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "sync/record/names.h"
#include "sync/internal.h"

/* the list stops after LIST_MORE keys plus LIST_TIMES keys for each file of this run; files that it
 * has not shown are requested by name */
#define LIST_MORE  10000
#define LIST_TIMES 4 /* keys of the list for each file of this run */
#define BATCH	   64 /* files requested between two passes over the table */
#define UNKNOWN	   1000 /* new objects without a file that are requested */
/* stores refuse signed requests if the clocks differ by more than this */
#define SKEW_NS (INT64_C(15) * 60 * NS_PER_S)

struct review {
	struct sync *s;
	uint64_t expected; /* files with an object */
	uint64_t listed;
	uint64_t again;
	/* files that are not on this machine and whose object was removed or replaced */
	uint64_t nowhere;
	char first[128]; /* path of the first of these files */
	bool blind; /* the credentials do not permit reads */
	bool memory;
	struct strlist paths; /* paths of files to be requested */
	struct strlist unknown; /* new objects without a file */
};

/* Returns false for objects of an attempt before the run started over, and for files that were
 * deleted locally or have an unpublished change: these objects are not checked. */
static bool is_expected(const struct entry *e)
{
	return (e->flags & ENTRY_PUBLISHED) && !(e->flags & ENTRY_OLDER) && !e->below &&
	       (e->state == ENTRY_CLEAN || (e->state == ENTRY_GONE && (e->flags & ENTRY_KEEP)));
}

static int begin(void *cookie, struct entry *e)
{
	struct review *r = cookie;

	e->flags &= (uint16_t)~ENTRY_THERE;
	r->expected += is_expected(e);
	return 0;
}

/* Returns true if no file has the name, and no file had the name before the run started over. */
static bool is_free(const struct entry *e)
{
	return !e || (e->state == ENTRY_GONE && !e->work && !e->below &&
			     !(e->flags & (ENTRY_KEEP | ENTRY_OLDER)));
}

static int on_object(void *cookie, const struct object_info *info)
{
	_cleanup_(buf_release) struct buf decoded = BUF_INIT(LIMIT_SYNC_NAME);
	struct review *r = cookie;
	struct sync *s = r->s;
	const char *path = info->key + strlen(s->o.prefix);
	struct entry *e;

	if (++r->listed > r->expected * LIST_TIMES + LIST_MORE)
		return 1;
	LOCK_SCOPE(&s->lock);
	e = table_find_path(&s->table, path);
	if (e && is_expected(e) && entry_may_have_etag(e, info->etag))
		e->flags |= ENTRY_THERE;
	if (!is_free(e) || !s->plan.may_delete || r->unknown.n == UNKNOWN ||
		info->modified_ns < s->started_ns - SKEW_NS || str_starts(path, ".penstock/"))
		return 0;
	path = names_of_key(&decoded, path);
	if (is_free(table_find_path(&s->table, path)))
		r->memory |= strlist_add(&r->unknown, path) < 0;
	return r->memory;
}

/* Handles the result for the object of a file: the object is as expected, the file is sent again,
 * or the file is lost. Under lock. */
static void judge(struct review *r, struct entry *e, const char *path, bool there, bool same)
{
	if (same) {
		e->flags |= ENTRY_THERE;
	} else if (e->state == ENTRY_CLEAN) {
		sync_emit(r->s, SYNC_WARNING, path, 0,
			"'%s': its object was %s by another program; the file is sent again", path,
			there ? "replaced" : "removed");
		r->memory |= plan_again(&r->s->plan, e, !there, clock_monotonic_ms()) < 0;
		r->again++;
	} else {
		e->flags |= ENTRY_THERE; /* do not request the object again */
		if (!r->nowhere++)
			snprintf(r->first, sizeof(r->first), "%s", path);
	}
}

static int collect(void *cookie, struct entry *e)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
	struct review *r = cookie;

	if (!is_expected(e) || (e->flags & ENTRY_THERE) || e->work)
		return 0;
	entry_path(e, &path);
	r->memory |= buf_failed(&path) || strlist_add(&r->paths, buf_str(&path)) < 0;
	return r->memory || r->paths.n == BATCH;
}

static int ask_for(struct review *r, const char *path, struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info there = {0};
	struct sync *s = r->s;
	struct entry *e;
	int rc = sync_head(s, path, &there, err);

	r->blind = error_expected(rc, PENSTOCK_E_PERMISSION, err);
	if (r->blind || (rc < 0 && !error_expected(rc, PENSTOCK_E_NOT_FOUND, err)))
		return r->blind ? 0 : rc;
	LOCK_SCOPE(&s->lock);
	e = table_find_path(&s->table, path);
	if (e && is_expected(e) && !e->work)
		judge(r, e, path, rc == 0, rc == 0 && entry_may_have_etag(e, there.etag));
	return 0;
}

/* Deletes the object if this sync uploaded it. */
static int ask_for_unknown(struct review *r, const char *path, struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info there = {0};
	struct sync *s = r->s;
	struct entry *e;
	int rc = sync_head(s, path, &there, err);

	if (error_expected(rc, PENSTOCK_E_PERMISSION, err) ||
		error_expected(rc, PENSTOCK_E_NOT_FOUND, err))
		return 0;
	if (rc < 0 || !keep_is_of_sync(s, &there))
		return rc;
	LOCK_SCOPE(&s->lock);
	if (!is_free(table_find_path(&s->table, path)))
		return 0;
	e = table_get_path(&s->table, path);
	if (!e) /* a file has the name of one of its directories, or out of memory */
		return errno == ENOMEM ? error_memory(err) : 0;
	plan_late(&s->plan, e, clock_monotonic_ms());
	r->again++;
	return 0;
}

static int ask_for_rest(struct review *r, struct penstock_error *err)
{
	struct sync *s = r->s;
	bool more = true;
	int rc = 0;

	while (more && rc == 0 && !r->memory && !r->blind) {
		pthread_mutex_lock(&s->lock);
		table_each(&s->table, collect, r);
		pthread_mutex_unlock(&s->lock);
		more = r->paths.n > 0;
		for (size_t i = 0; i < r->paths.n && rc == 0 && !r->memory && !r->blind; i++)
			rc = s->o.cancel && atomic_load(s->o.cancel)
				     ? error_set(err, PENSTOCK_E_CANCELLED,
					       "the flush of the output was interrupted")
				     : ask_for(r, r->paths.items[i], err);
		strlist_release(&r->paths);
	}
	for (size_t i = 0; i < r->unknown.n && rc == 0 && !r->memory; i++)
		rc = ask_for_unknown(r, r->unknown.items[i], err);
	return rc < 0 ? rc : r->memory ? error_memory(err) : 0;
}

int review_output(struct sync *s, uint64_t *again, struct penstock_error *err)
{
	struct review r = {.s = s};
	bool look;
	int rc;

	pthread_mutex_lock(&s->lock);
	table_each(&s->table, begin, &r);
	look = r.expected || s->plan.may_delete;
	pthread_mutex_unlock(&s->lock);
	if (!look)
		return 0;
	rc = sync_list(s, s->o.prefix, on_object, &r, err);
	if (rc == 0)
		rc = ask_for_rest(&r, err);
	strlist_release(&r.unknown);
	*again = r.again;
	if (rc < 0)
		return error_prefix(err, "cannot check that all of the output is in the bucket");
	if (r.nowhere)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"another program removed or replaced %" PRIu64
			" file%s that this run published and that %s not on this machine: '%s'%s",
			r.nowhere, r.nowhere == 1 ? "" : "s", r.nowhere == 1 ? "is" : "are",
			r.first, r.nowhere == 1 ? "" : ", …");
	return 0;
}
