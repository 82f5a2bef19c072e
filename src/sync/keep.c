/*
 * Keeps objects of other programs and runs before they are overwritten: as a version if the bucket
 * has versions, else as one copy made by the store. The name of the copy contains the ETag of the
 * original, so no later copy can replace it. If an attempt is killed between copy and overwrite,
 * the next attempt finds the copy.
 */
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/must.h"
#include "base/str.h"
#include "sync/record/names.h"
#include "sync/internal.h"

int sync_key(const struct sync *s, const char *path, struct buf *key, struct penstock_error *err)
{
	buf_add_str(key, s->o.prefix);
	names_key(key, path);
	return buf_failed(key) ? buf_error(key, "the key of a file", err) : 0;
}

void sync_partial_key(const struct sync *s, const char *path, struct buf *key)
{
	buf_printf(key, "%spartial/", s->state);
	names_key(key, path);
}

int sync_head(
	struct sync *s, const char *path, struct object_info *there, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_S3_KEY * 3);
	int rc = sync_key(s, path, &key, err);

	return rc < 0 ? rc : object_head(sync_at(s, buf_str(&key)), there, err);
}

/* Returns true if the store has refused to list, and clears the error. Many access keys permit
 * writes but not lists. */
static bool is_refused(int rc, struct penstock_error *err)
{
	return error_expected(rc, PENSTOCK_E_PERMISSION, err) ||
	       error_expected(rc, PENSTOCK_E_UNSUPPORTED, err) ||
	       error_expected(rc, PENSTOCK_E_NOT_FOUND, err);
}

int sync_list(struct sync *s, const char *prefix, object_list_fn fn, void *cookie,
	struct penstock_error *err)
{
	int rc = object_list(sync_at(s, prefix), NULL, fn, cookie, s->o.cancel, err);

	return is_refused(rc, err) ? 0 : rc;
}

#define NAMES 9 /* names tried for a copy: a name that another object has is skipped */

static struct kept *find_kept(const struct sync *s, const char *key)
{
	struct kept *k;

	HASH_FIND_STR(s->kept, key, k);
	return k;
}

static void free_kept(struct kept *k)
{
	free(k->path);
	free(k->etag);
	free(k->key);
	free(k);
}

void keep_free(struct sync *s)
{
	struct kept *k, *next;

	HASH_ITER (hh, s->kept, k, next) {
		HASH_DEL(s->kept, k);
		free_kept(k);
	}
}

int keep_add(struct sync *s, const char *path, const char *etag, const char *key, uint64_t size)
{
	struct kept *k;

	if (find_kept(s, key))
		return 0;
	k = calloc(1, sizeof(*k));
	if (!k)
		return -1;
	k->size = size;
	k->path = strdup(path);
	k->etag = strdup(etag);
	k->key = strdup(key);
	if (k->path && k->etag && k->key)
		HASH_ADD_KEYPTR(hh, s->kept, k->key, strlen(k->key), k);
	if (!k->hh.tbl) {
		free_kept(k);
		return -1;
	}
	if (s->journal)
		journal_add(s->journal, &(struct journal_record){.type = JOURNAL_KEPT,
						.path = path,
						.etag = etag,
						.key = key,
						.ident.size = size});
	s->plan.manifest_dirty = true;
	return 0;
}

void keep_drop(struct sync *s, const char *key)
{
	struct kept *k = find_kept(s, key);

	if (!k)
		return;
	if (s->journal)
		journal_add(s->journal,
			&(struct journal_record){
				.type = JOURNAL_UNKEPT, .path = k->path, .key = k->key});
	MUST(s->kept);
	HASH_DEL(s->kept, k);
	free_kept(k);
	s->plan.manifest_dirty = true;
}

bool keep_is_of_run(const struct sync *s, const struct object_info *there)
{
	const char *run = strlist_get(&there->metadata, "penstock-run");

	return run && strcmp(run, s->o.run_id) == 0;
}

bool keep_is_of_sync(const struct sync *s, const struct object_info *there)
{
	const char *upload = strlist_get(&there->metadata, "penstock-upload");

	return keep_is_of_run(s, there) && upload && str_starts(upload, s->nonce);
}

bool keep_is_ours(const struct sync *s, const struct object_info *there, bool older)
{
	const char *by = strlist_get(&there->metadata, "penstock-attempt");
	uint64_t attempt = 0;

	if (!keep_is_of_run(s, there))
		return false;
	if (keep_is_of_sync(s, there))
		return true;
	/* Another machine may have counted its attempts differently, so the numbers of attempts are
	 * compared last. */
	if (older || s->o.began > s->o.attempt)
		return false;
	if (by)
		str_to_u64(by, 0, INT32_MAX, &attempt);
	return s->o.began <= 0 || attempt >= (uint64_t)s->o.began;
}

/* Records the copy before anything is overwritten. The record is passed to the kernel at once, so a
 * kill of penstock does not lose the record. Returns 1, or a negative code. */
static int note_kept(struct sync *s, const char *path, const struct object_info *there,
	const char *key, struct penstock_error *err)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = keep_add(s, path, there->etag, key, there->size);
	if (rc == 0)
		find_kept(s, key)->fresh = true;
	if (rc == 0 && s->journal)
		journal_write(s->journal);
	pthread_mutex_unlock(&s->lock);
	if (rc < 0)
		return error_memory(err);
	sync_emit(s, SYNC_KEPT, path, there->size, "%s", key);
	return 1;
}

/* Returns true if this sync has made or seen the copy. A copy of an earlier attempt may have been
 * removed since. */
static bool is_fresh(struct sync *s, const char *key)
{
	LOCK_SCOPE(&s->lock);
	const struct kept *k = find_kept(s, key);

	return k && k->fresh;
}

/* Examines the key of the copy. Returns 1 if the copy exists, 2 if the key has another object, 0 if
 * the key has no object or may not be read, or a negative code. */
static int look_for_copy(struct sync *s, const char *key, const struct object_info *there,
	struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info copy = {0};
	int rc = object_head(sync_at(s, key), &copy, err);

	if (error_expected(rc, PENSTOCK_E_NOT_FOUND, err) ||
		error_expected(rc, PENSTOCK_E_PERMISSION, err))
		return 0;
	if (rc < 0)
		return rc;
	return copy.size == there->size ? 1 : 2;
}

/* Makes the copy unless it exists. Returns 1 if the copy exists now, 0 if the object under `from`
 * must be examined again, or a negative code. */
static int copy_once(struct sync *s, const char *path, const char *from,
	const struct object_info *there, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_S3_KEY * 4);
	int rc = 2;

	for (unsigned n = 1; rc == 2 && n <= NAMES; n++) {
		rc = replaced_key(s->state, path, there, n, &key, err);
		if (rc == 0 && is_fresh(s, buf_str(&key)))
			return 1;
		if (rc == 0)
			rc = look_for_copy(s, buf_str(&key), there, err);
	}
	if (rc == 0)
		rc = object_copy(sync_at(s, from), sync_at(s, buf_str(&key)),
			&(struct object_copy_options){
				.if_match = there->etag, .if_none_match = s->conditions},
			NULL, err);
	/* The object changed or was removed, or an attempt of this request whose reply was lost has
	 * made the copy. */
	if (error_expected(rc, PENSTOCK_E_PRECONDITION, err) ||
		error_expected(rc, PENSTOCK_E_NOT_FOUND, err))
		return 0;
	if (rc == 2)
		return error_set(err, PENSTOCK_E_EXISTS, "another object has the name of the copy");
	return rc < 0 ? rc : note_kept(s, path, there, buf_str(&key), err);
}

int keep_object(struct sync *s, const char *path, const char *key, const struct object_info *there,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf version = BUF_INIT(LIMIT_STRING);
	int rc;

	/* "null" is a version that was written before the bucket had versions, or while versions
	 * were suspended. An overwrite may replace such a version. */
	if (there->version_id && strcmp(there->version_id, "null") != 0) {
		buf_printf(&version, "version:%s", there->version_id);
		if (buf_failed(&version))
			return buf_error(&version, "the version of a kept object", err);
		return is_fresh(s, buf_str(&version))
			       ? 1
			       : note_kept(s, path, there, buf_str(&version), err);
	}
	rc = copy_once(s, path, key, there, err);
	if (rc < 0)
		return error_prefix(
			err, "cannot overwrite the existing object: cannot keep a copy of it");
	return rc;
}

struct search {
	struct sync *s;
	bool memory;
};

static int on_found(void *cookie, const struct object_info *info)
{
	_cleanup_(buf_release) struct buf decoded = BUF_INIT(LIMIT_SYNC_NAME);
	struct search *search = cookie;
	const char *path = replaced_path(search->s->state, info->key, &decoded);
	struct kept *k;

	LOCK_SCOPE(&search->s->lock);
	if (path)
		search->memory |= keep_add(search->s, path, info->etag, info->key, info->size) < 0;
	k = find_kept(search->s, info->key);
	if (k)
		k->there = true;
	return search->memory;
}

/* Forgets copies that were removed since they were recorded. */
static void forget_removed(struct sync *s, const char *prefix)
{
	struct kept *k, *next;

	LOCK_SCOPE(&s->lock);
	HASH_ITER (hh, s->kept, k, next) {
		if (!k->there && !k->fresh && str_starts(k->key, prefix))
			keep_drop(s, k->key);
	}
}

int keep_find(struct sync *s, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf prefix = BUF_INIT(LIMIT_S3_KEY * 2);
	struct search search = {.s = s};
	int rc;

	buf_printf(&prefix, "%s" REPLACED_DIR, s->state);
	if (buf_failed(&prefix))
		return buf_error(&prefix, "the prefix of kept objects", err);
	/* If the store refuses to list, only the copies in the journal and the manifest are
	 * known. */
	rc = object_list(sync_at(s, buf_str(&prefix)), NULL, on_found, &search, s->o.cancel, err);
	if (rc == 0 && search.memory)
		return error_memory(err);
	if (rc == 0)
		forget_removed(s, buf_str(&prefix));
	return is_refused(rc, err) ? 0 : rc;
}

/* Returns true if the bucket has copies that are objects, not versions. Under lock. */
static bool has_copies(const struct sync *s)
{
	for (const struct kept *k = s->kept; k; k = k->hh.next) {
		if (str_starts(k->key, s->state))
			return true;
	}
	return false;
}

int sync_bound_replaced(struct sync *s, const struct replaced_bound *bound,
	struct replaced_sum *removed, struct penstock_error *err)
{
	_cleanup_(replaced_release) struct replaced_list list = {0};
	bool any;
	int rc;

	*removed = (struct replaced_sum){0};
	pthread_mutex_lock(&s->lock);
	any = has_copies(s);
	pthread_mutex_unlock(&s->lock);
	if (!any)
		return 0;
	rc = replaced_read(&list, sync_at(s, s->state), s->o.cancel, err);
	if (rc < 0)
		return is_refused(rc, err) ? 0 : rc;
	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < list.n; i++) {
		const struct kept *k = find_kept(s, list.items[i].key);

		/* A copy that this sync has used counts as the newest, even if an earlier attempt
		 * made the copy. */
		if (k && k->fresh)
			list.items[i].made_ns = INT64_MAX;
	}
	pthread_mutex_unlock(&s->lock);
	if (replaced_choose(&list, bound) == 0)
		return 0;
	rc = replaced_remove(&list, sync_at(s, s->state), removed, err);
	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < list.n; i++) {
		if (list.items[i].gone)
			keep_drop(s, list.items[i].key);
	}
	if (s->journal)
		journal_write(s->journal);
	pthread_mutex_unlock(&s->lock);
	return rc;
}
