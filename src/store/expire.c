/* Lifecycle: walks over all versions of a bucket, and deletes versions that have expired. */
#include "store/internal.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "store/header.h"

/* --- the walk -------------------------------------------------------------------------------- */

/* Reads one row, and moves the walk past the row. */
static int read_row(struct db *db, int64_t bucket, sqlite3_stmt *st, struct store_walk *walk,
	struct store_row *row)
{
	size_t len = (size_t)sqlite3_column_bytes(st, 0);
	int64_t modified_ns = sqlite3_column_int64(st, 1);
	_cleanup_reset_ sqlite3_stmt *older = NULL;
	bool same = walk->modified_ns && strlen(walk->key) == len &&
		    memcmp(walk->key, sqlite3_column_blob(st, 0), len) == 0;
	int rc;

	if (len >= sizeof(walk->key))
		return SQLITE_CORRUPT;
	if (!same) {
		memcpy(walk->key, sqlite3_column_blob(st, 0), len);
		walk->key[len] = '\0';
		walk->n_noncurrent = 0;
	}
	*row = (struct store_row){.key = walk->key,
		.modified_ns = modified_ns,
		.newer_ns = same ? walk->modified_ns : 0,
		.n_newer = walk->n_noncurrent,
		.size = (uint64_t)sqlite3_column_int64(st, 2),
		.marker = sqlite3_column_int(st, 3) != 0,
		.is_null = sqlite3_column_int(st, 4) != 0,
		.headers = sqlite3_column_blob(st, 5),
		.headers_len = (size_t)sqlite3_column_bytes(st, 5)};
	walk->modified_ns = modified_ns;
	walk->n_noncurrent += same && !row->marker;
	if (same || !row->marker)
		return 0;
	older = db_bound(db, SQL_VERSION_HAS_OLDER, "iki", bucket, walk->key, modified_ns);
	rc = db_step(db, older);
	row->alone = rc == SQLITE_DONE;
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : rc;
}

/* Walks over up to `*left` rows of a statement. */
static int walk_rows(struct db *db, int64_t bucket, sqlite3_stmt *st, struct store_walk *walk,
	const struct store_walk_step *step, size_t *left)
{
	size_t prefix_len = strlen(step->prefix);
	struct store_row row;
	int rc = 0;

	while (*left && !walk->ended && (rc = db_step(db, st)) == SQLITE_ROW) {
		if ((size_t)sqlite3_column_bytes(st, 0) < prefix_len ||
			memcmp(sqlite3_column_blob(st, 0), step->prefix, prefix_len) != 0) {
			walk->ended = true;
			return 0;
		}
		rc = read_row(db, bucket, st, walk, &row);
		if (rc)
			return rc;
		if (!step->row(step->cookie, &row))
			return SQLITE_NOMEM;
		--*left;
	}
	return rc == SQLITE_ROW ? 0 : rc;
}

static int walk_on(struct db *db, int64_t bucket, struct store_walk *walk,
	const struct store_walk_step *step, size_t left)
{
	char from[LIMIT_S3_KEY + 2];
	size_t len = strlen(walk->modified_ns ? walk->key : step->prefix);
	int rc = SQLITE_DONE;

	memcpy(from, walk->modified_ns ? walk->key : step->prefix, len + 1);
	if (walk->modified_ns) {
		_cleanup_reset_ sqlite3_stmt *st = db_bound(
			db, SQL_WALK_REST, "iki", bucket, from, walk->modified_ns);

		rc = walk_rows(db, bucket, st, walk, step, &left);
		len++; /* the key with its NUL sorts directly after the key */
	}
	if (rc == SQLITE_DONE) {
		_cleanup_reset_ sqlite3_stmt *st = db_bound(db, SQL_WALK, "ib", bucket, from, len);

		rc = walk_rows(db, bucket, st, walk, step, &left);
		walk->ended = walk->ended || rc == SQLITE_DONE;
	}
	return rc == SQLITE_DONE ? 0 : rc;
}

enum store_status store_walk(struct store *store, const struct store_walk_step *step,
	struct store_walk *walk, struct penstock_error *err)
{
	_cleanup_reader_ struct db *db = db_reader(store, err);
	_cleanup_reset_ sqlite3_stmt *bucket = NULL;
	enum store_status status;
	int rc;

	if (!db)
		return STORE_FAILED;
	bucket = db_bound(db, SQL_BUCKET_ID, "t", step->bucket);
	status = db_look_up(db, bucket, STORE_NO_SUCH_BUCKET, "look up a bucket", err);
	if (status != STORE_OK)
		return status;
	rc = walk_on(db, sqlite3_column_int64(bucket, 0), walk, step, step->max);
	return rc ? db_error(db, rc, "walk over a bucket", err) : STORE_OK;
}

/* --- deletions ------------------------------------------------------------------------------- */

struct expire_txn {
	struct txn txn;
	const char *bucket;
	const struct store_rules *rules; /* may be NULL */
	struct store_expiry *items;
	size_t n;
};

/* Sets STORE_CHANGED if the rules of the bucket have changed. */
static int compare_rules(struct store *store, struct expire_txn *t, int64_t bucket)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(
		store->writer, SQL_CONFIG_OF, "it", bucket, t->rules->name);
	int rc = db_step(store->writer, st);

	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		return rc;
	if (rc == SQLITE_DONE || (size_t)sqlite3_column_bytes(st, 0) != t->rules->len ||
		memcmp(sqlite3_column_blob(st, 0), t->rules->text, t->rules->len) != 0)
		t->txn.status = STORE_CHANGED;
	return 0;
}

static int has_older(
	struct store *store, int64_t bucket, const char *key, int64_t modified_ns, bool *older)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(
		store->writer, SQL_VERSION_HAS_OLDER, "iki", bucket, key, modified_ns);
	int rc = db_step(store->writer, st);

	*older = rc == SQLITE_ROW;
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : rc;
}

/* Sets *allowed if the headers of the version allow its deletion. */
static int compare_headers(struct store *store, int64_t bucket, const struct store_expiry *item,
	const struct old_object *old, bool *allowed)
{
	_cleanup_(buf_release) struct buf headers = BUF_INIT(LIMIT_STORE_LAYOUT);
	int rc = version_headers(store, bucket, item->key, old, &headers);
	const char *p = NULL, *name, *value;

	*allowed = rc == 0;
	while (*allowed && store_header_next(headers.data, headers.len, &p, &name, &value))
		*allowed = !store_header_waits(name, value);
	if (!*allowed || !item->header || old->marker)
		return rc;
	value = store_header_find(buf_str(&headers), headers.len, item->header);
	*allowed = value && item->value ? strcmp(value, item->value) == 0 : !value && !item->value;
	return 0;
}

/* Sets *still to true if the version has not changed since the walk read it, else to false. */
static int is_still(struct store *store, int64_t bucket, const struct store_expiry *item,
	const struct old_object *old, bool *still)
{
	bool newer = false, older = false;
	int rc;

	*still = old->exists && old->modified_ns == item->modified_ns &&
		 (item->kind == STORE_EXPIRE_OBJECT) == !old->older;
	if (!*still || item->kind == STORE_EXPIRE_OBJECT)
		return 0;
	if (version_is_newer(store->writer, bucket, item->key, old->modified_ns + 1, &newer) < 0)
		return sqlite3_extended_errcode(store->writer->handle);
	if (item->kind == STORE_EXPIRE_MARKER) {
		rc = has_older(store, bucket, item->key, old->modified_ns, &older);
		*still = old->marker && !newer && !older;
		return rc;
	}
	*still = newer;
	return 0;
}

static int expire_one(
	struct store *store, struct expire_txn *t, int64_t bucket, struct store_expiry *item)
{
	_cleanup_(old_object_release) struct old_object old = OLD_OBJECT_INIT;
	char version[STORE_VERSION_SIZE];
	struct store_delete wanted = {.key = item->key, .origin = item->origin, .unseen = true};
	bool still;
	int rc;

	version_name(version, item->modified_ns, item->is_null);
	if (item->kind != STORE_EXPIRE_OBJECT)
		wanted.version = version;
	rc = object_find(store, bucket, item->key, wanted.version, &old);
	if (rc == 0)
		rc = is_still(store, bucket, item, &old, &still);
	if (rc == 0 && still)
		rc = compare_headers(store, bucket, item, &old, &still);
	if (rc || !still)
		return rc;
	rc = object_remove(store, &t->txn, bucket, t->bucket, &wanted);
	item->done = rc == 0 && wanted.status == STORE_OK;
	return rc;
}

static int apply_expire(struct store *store, struct txn *txn)
{
	struct expire_txn *t = (struct expire_txn *)txn;
	int64_t bucket = txn_bucket(store, txn, t->bucket, 0);
	int rc = 0;

	if (bucket <= 0)
		return (int)-bucket;
	if (t->rules)
		rc = compare_rules(store, t, bucket);
	while (rc == 0 && txn->status == STORE_OK && txn->next_item < t->n &&
		txn_has_room(store, txn)) {
		struct store_expiry *item = &t->items[txn->next_item++];

		item->done = false;
		rc = expire_one(store, t, bucket, item);
	}
	txn->more = txn->next_item < t->n;
	return rc;
}

enum store_status store_expire(struct store *store, const char *bucket,
	const struct store_rules *rules, struct store_expiry *items, size_t n,
	struct penstock_error *err)
{
	struct expire_txn t = {.txn = {.apply = apply_expire, .frees = true},
		.bucket = bucket,
		.rules = rules,
		.items = items,
		.n = n};

	return txn_run(store, &t.txn, err);
}
