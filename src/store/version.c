/* Older versions of objects, and delete markers. */
#include "store/internal.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"

/* --- reading --------------------------------------------------------------------------------- */

/* Searches the older versions and the delete markers. */
static enum store_status get_older(struct db *db, const char *bucket, const char *key,
	const char *version, struct store_object **out, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = NULL;

	if (!version)
		st = db_bound(db, SQL_VERSION_GET_NEWEST, "tk", bucket, key);
	else if (version_is_null(version))
		st = db_bound(db, SQL_VERSION_GET_NULL, "tk", bucket, key);
	else
		st = db_bound(db, SQL_VERSION_GET, "tki", bucket, key, version_modified(version));
	return object_look_up(
		db, st, version ? STORE_NO_SUCH_VERSION : STORE_NO_SUCH_KEY, out, err);
}

static enum store_status get_version(struct db *db, const char *bucket, const char *key,
	const char *version, struct store_object **out, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(db, SQL_BUCKET_ID, "t", bucket);
	enum store_status status = db_look_up(
		db, st, STORE_NO_SUCH_BUCKET, "look up a bucket", err);
	enum store_status older;

	if (status != STORE_OK)
		return status;
	{
		_cleanup_reset_ sqlite3_stmt *current = db_bound(
			db, SQL_OBJECT_GET, "tk", bucket, key);

		status = object_look_up(db, current, STORE_NO_SUCH_KEY, out, err);
	}
	if (status == STORE_OK && (!version || strcmp((*out)->version, version) == 0))
		return status;
	if (status == STORE_OK) {
		store_object_unref(*out);
		*out = NULL;
	}
	if (status == STORE_OK || status == STORE_NO_SUCH_KEY)
		return get_older(db, bucket, key, version, out, err);
	/* The caller may want an older version, which can be read even if the current version is
	 * damaged. */
	older = version ? get_older(db, bucket, key, version, out, NULL) : STORE_FAILED;
	if (older == STORE_FAILED || older == STORE_NO_SUCH_VERSION)
		return status;
	penstock_error_release(err);
	return older;
}

enum store_status store_version_get(struct store *store, const char *bucket, const char *key,
	const char *version, struct store_object **out, struct penstock_error *err)
{
	_cleanup_reader_ struct db *db = NULL;
	enum store_status status;
	uint64_t ticket;

	/* All readers of the current version share a snapshot, even if they name the version. */
	*out = version ? cache_get(store->cache, bucket, key, &ticket) : NULL;
	if (*out && strcmp((*out)->version, version) == 0)
		return STORE_OK;
	store_object_unref(take_pointer(*out));
	db = db_reader(store, err);
	if (!db)
		return STORE_FAILED;
	/* Reads in one transaction: a version that becomes the current version between two reads
	 * must not be missed. */
	pthread_rwlock_rdlock(&store->pinning);
	if (db_run(db_statement(db, SQL_BEGIN_READ)) == 0) {
		status = get_version(db, bucket, key, version, out, err);
		db_run(db_statement(db, SQL_COMMIT));
	} else {
		status = db_failed(db, "read a version", err);
	}
	pthread_rwlock_unlock(&store->pinning);
	return status == STORE_OK ? snapshot_count(store, bucket, out, err) : status;
}

/* --- changes -------------------------------------------------------------------------------- */

static int newest(
	struct store *store, int64_t bucket, const char *key, int64_t *modified_ns, bool *marker)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(
		store->writer, SQL_VERSION_NEWEST, "ik", bucket, key);
	int rc = db_step(store->writer, st);

	*modified_ns = 0;
	*marker = false;
	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? 0 : rc;
	*modified_ns = sqlite3_column_int64(st, 0);
	*marker = sqlite3_column_int(st, 1) != 0;
	return 0;
}

int version_old(struct store *store, int64_t bucket, const char *key, const char *version,
	struct old_object *old)
{
	_cleanup_reset_ sqlite3_stmt *st =
		version_is_null(version)
			? db_bound(store->writer, SQL_VERSION_OLD_NULL, "ik", bucket, key)
			: db_bound(store->writer, SQL_VERSION_OLD, "iki", bucket, key,
				  version_modified(version));
	int rc = db_step(store->writer, st);

	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? 0 : rc;
	old->exists = true;
	old->modified_ns = sqlite3_column_int64(st, 0);
	old->marker = sqlite3_column_int(st, 1) != 0;
	db_column_text(st, 3, old->etag, sizeof(old->etag));
	old->size = (uint64_t)sqlite3_column_int64(st, 4);
	old->body = sqlite3_column_int64(st, 5);
	return db_column_add(st, 2, &old->layout);
}

int version_headers(struct store *store, int64_t bucket, const char *key,
	const struct old_object *old, struct buf *out)
{
	_cleanup_reset_ sqlite3_stmt *st = old->older
						   ? db_bound(store->writer, SQL_VERSION_HEADERS,
							     "iki", bucket, key, old->modified_ns)
						   : db_bound(store->writer, SQL_OBJECT_HEADERS,
							     "ik", bucket, key);
	int rc = db_step(store->writer, st);

	/* The caller has just found the row. */
	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? SQLITE_CORRUPT : rc;
	return db_column_add(st, 0, out);
}

int version_delete(
	struct store *store, int64_t bucket, const char *key, const struct old_object *old)
{
	int rc = db_exec(store->writer, SQL_VERSION_DELETE, "iki", bucket, key, old->modified_ns);

	return rc ? rc : txn_drop_bytes(store, old);
}

/* Deletes the older version "null". */
static int delete_null(struct store *store, int64_t bucket, const char *key)
{
	_cleanup_(old_object_release) struct old_object old = OLD_OBJECT_INIT;
	int rc = version_old(store, bucket, key, VERSION_NULL, &old);

	return rc || !old.exists ? rc : version_delete(store, bucket, key, &old);
}

int version_make_room(struct store *store, const struct txn *txn, int64_t bucket, const char *key,
	struct old_object *old, int64_t *modified_ns)
{
	bool makes_null = txn->versioning == STORE_SUSPENDED, marker;
	int64_t last;
	int rc = newest(store, bucket, key, &last, &marker);

	/* The clock of the machine may have been set back. */
	if (*modified_ns <= last)
		*modified_ns = last + 1;
	if (*modified_ns <= old->modified_ns)
		*modified_ns = old->modified_ns + 1;
	if (rc == 0 && makes_null)
		rc = delete_null(store, bucket, key);
	if (rc || !old->exists || (makes_null && old->is_null))
		return rc;
	old_object_keep_bytes(old);
	return db_exec(store->writer, SQL_VERSION_KEEP, "ik", bucket, key);
}

/* Looks for the version of a replica, and compares its ETag. */
static int find_replica(struct store *store, enum db_sql sql, int64_t bucket, const char *key,
	const char *etag, struct replica *out)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(
		store->writer, sql, "iki", bucket, key, out->modified_ns);
	char found[STORE_ETAG_SIZE];
	int rc = db_step(store->writer, st);

	out->exists = rc == SQLITE_ROW;
	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? 0 : rc;
	db_column_text(st, 0, found, sizeof(found));
	out->differs = strcmp(found, etag) != 0;
	return 0;
}

int version_place(struct store *store, const struct txn *txn, int64_t bucket, const char *key,
	const char *name, const char *etag, struct replica *out)
{
	int rc;

	*out = (struct replica){0};
	if (!name || txn->versioning != STORE_VERSIONED || !store_replica_is_valid(name))
		return 0;
	out->modified_ns = version_modified(name);
	rc = find_replica(store, SQL_HAS_OBJECT, bucket, key, etag, out);
	if (rc == 0 && !out->exists)
		rc = find_replica(store, SQL_HAS_VERSION, bucket, key, etag, out);
	if (rc == 0 &&
		version_is_newer(store->writer, bucket, key, out->modified_ns, &out->older) < 0)
		rc = sqlite3_extended_errcode(store->writer->handle);
	return rc;
}

int version_mark(struct store *store, const struct txn *txn, int64_t bucket, const char *key,
	int64_t modified_ns, const struct buf *headers)
{
	_cleanup_(buf_release) struct buf layout = BUF_INIT(LIMIT_STORE_LAYOUT);

	if (layout_encode(&layout, NULL, 0, NULL, 0) < 0)
		return SQLITE_NOMEM;
	return db_exec(store->writer, SQL_VERSION_MARK, "ikiibb", bucket, key, modified_ns,
		(int64_t)(txn->versioning == STORE_SUSPENDED), buf_str(headers), headers->len,
		layout.data, layout.len);
}

int version_restore(struct store *store, int64_t bucket, const char *key)
{
	int64_t modified_ns;
	bool marker;
	int rc = newest(store, bucket, key, &modified_ns, &marker);

	if (rc || !modified_ns || marker)
		return rc;
	rc = db_exec(store->writer, SQL_VERSION_RESTORE, "iki", bucket, key, modified_ns);
	return rc ? rc
		  : db_exec(store->writer, SQL_VERSION_DELETE, "iki", bucket, key, modified_ns);
}

/* --- the list -------------------------------------------------------------------------------- */

int version_limit(
	struct db *db, int64_t bucket, const char *key, const char *version, int64_t *modified_ns)
{
	_cleanup_reset_ sqlite3_stmt *st = NULL;
	int rc;

	*modified_ns = version_modified(version);
	if (!version_is_null(version))
		return 0;
	/* If the version "null" has been deleted since the last page, the list repeats versions
	 * rather than omit some. */
	*modified_ns = INT64_MAX;
	st = db_bound(db, SQL_VERSION_TIME_NULL, "ik", bucket, key);
	rc = db_step(db, st);
	if (rc == SQLITE_ROW)
		*modified_ns = sqlite3_column_int64(st, 0);
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : -1;
}

int version_is_newer(
	struct db *db, int64_t bucket, const char *key, int64_t modified_ns, bool *newer)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(
		db, SQL_VERSION_IS_NEWER, "iki", bucket, key, modified_ns);
	int rc = db_step(db, st);

	*newer = rc == SQLITE_ROW;
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : -1;
}
