#include "store/internal.h"

#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"

struct bucket_txn {
	struct txn txn;
	const char *name;
	int64_t id;
	const struct store_new_bucket *new;
	enum store_versioning versioning;
};

/* Sets txn->status if the owner of a new bucket already has the maximum number of buckets. */
static int check_count(struct store *store, struct txn *txn, const struct store_new_bucket *new)
{
	_cleanup_reset_ sqlite3_stmt *st = NULL;
	int rc;

	if (!new->max)
		return 0;
	st = db_bound(store->writer, SQL_BUCKET_COUNT, "t", new->owner);
	rc = db_step(store->writer, st);
	if (rc != SQLITE_ROW)
		return rc;
	if ((uint64_t)sqlite3_column_int64(st, 0) >= new->max)
		txn->status = STORE_TOO_MANY_BUCKETS;
	return 0;
}

static int apply_create(struct store *store, struct txn *txn)
{
	struct bucket_txn *t = (struct bucket_txn *)txn;
	const struct store_new_bucket *new = t->new;
	int64_t id = txn_bucket(store, txn, t->name, 0);
	int rc;

	if (id < 0)
		return (int)-id;
	txn->status = id > 0 ? STORE_BUCKET_EXISTS : STORE_OK;
	if (id > 0)
		return 0;
	rc = check_count(store, txn, new);
	if (rc || txn->status != STORE_OK)
		return rc;
	rc = db_exec(store->writer, SQL_BUCKET_ADD, "ti", t->name, clock_wall_ns());
	if (rc == 0 && *new->region)
		rc = db_exec(store->writer, SQL_REGION_SET, "tt", t->name, new->region);
	store->configs_changed = true;
	if (rc || (!new->n_configs && !new->lock && !new->owner))
		return rc;
	id = txn_bucket(store, txn, t->name, 0);
	if (id < 0)
		return (int)-id;
	if (new->lock) {
		rc = db_exec(store->writer, SQL_BUCKET_SET_VERSIONING, "ii", id,
			(int64_t)STORE_VERSIONED);
		if (rc == 0)
			rc = lock_set(store, id, &(struct store_lock){0});
	}
	if (rc == 0 && new->owner)
		rc = db_exec(store->writer, SQL_CONFIG_SET, "itb", id, "owner", new->owner,
			strlen(new->owner));
	for (size_t i = 0; rc == 0 && i < new->n_configs; i++)
		rc = db_exec(store->writer, SQL_CONFIG_SET, "itb", id, new->configs[i].name,
			new->configs[i].text, strlen(new->configs[i].text));
	return rc;
}

enum store_status store_bucket_add(
	struct store *store, const struct store_new_bucket *bucket, struct penstock_error *err)
{
	struct bucket_txn t = {.txn = {.apply = apply_create}, .name = bucket->name, .new = bucket};

	return txn_run(store, &t.txn, err);
}

enum store_status store_bucket_create(
	struct store *store, const char *name, const char *region, struct penstock_error *err)
{
	return store_bucket_add(
		store, &(struct store_new_bucket){.name = name, .region = region}, err);
}

static int apply_versioning(struct store *store, struct txn *txn)
{
	struct bucket_txn *t = (struct bucket_txn *)txn;
	int64_t id = txn_bucket(store, txn, t->name, t->id);
	struct store_lock lock;
	bool locked;
	int rc;

	if (id <= 0)
		return (int)-id;
	rc = lock_of_bucket(store, id, &locked, &lock);
	if (rc)
		return rc;
	if (locked && t->versioning == STORE_SUSPENDED) {
		txn->status = STORE_BUCKET_STATE;
		return 0;
	}
	/* A snapshot of an object records whether the bucket has versioning. */
	if (txn->versioning == STORE_UNVERSIONED)
		txn_touch_all(store, t->name);
	return db_exec(store->writer, SQL_BUCKET_SET_VERSIONING, "ii", id, (int64_t)t->versioning);
}

enum store_status store_bucket_set_versioning(struct store *store, const char *name, int64_t id,
	enum store_versioning versioning, struct penstock_error *err)
{
	struct bucket_txn t = {.txn = {.apply = apply_versioning},
		.name = name,
		.id = id,
		.versioning = versioning};

	return txn_run(store, &t.txn, err);
}

/* Drops unfinished uploads; sets txn->more if some may be left. */
static int drop_uploads(struct store *store, struct txn *txn, int64_t bucket)
{
	while (txn_has_room(store, txn)) {
		_cleanup_reset_ sqlite3_stmt *st = db_bound(
			store->writer, SQL_UPLOAD_OF_BUCKET, "i", bucket);
		int rc = db_step(store->writer, st);

		if (rc != SQLITE_ROW)
			return rc == SQLITE_DONE ? 0 : rc;
		rc = txn_drop_upload(store, bucket, (const char *)sqlite3_column_blob(st, 0),
			(size_t)sqlite3_column_bytes(st, 0),
			(const char *)sqlite3_column_text(st, 1));
		if (rc)
			return rc;
	}
	txn->more = true;
	return 0;
}

static int apply_delete(struct store *store, struct txn *txn)
{
	struct bucket_txn *t = (struct bucket_txn *)txn;
	int64_t id = txn_bucket(store, txn, t->name, t->id);
	_cleanup_reset_ sqlite3_stmt *used = NULL;
	int rc;

	if (id <= 0)
		return (int)-id;
	used = db_bound(store->writer, SQL_BUCKET_USED, "i", id);
	rc = db_step(store->writer, used);
	if (rc == SQLITE_ROW) {
		txn->status = STORE_BUCKET_NOT_EMPTY;
		return 0;
	}
	if (rc != SQLITE_DONE)
		return rc;
	rc = drop_uploads(store, txn, id);
	if (rc || txn->more)
		return rc;
	store->configs_changed = true;
	rc = db_exec(store->writer, SQL_REGION_DROP, "t", t->name);
	if (rc == 0)
		rc = db_exec(store->writer, SQL_CONFIG_DROP_ALL, "i", id);
	return rc ? rc : db_exec(store->writer, SQL_BUCKET_DELETE, "i", id);
}

enum store_status store_bucket_delete(
	struct store *store, const char *name, int64_t id, struct penstock_error *err)
{
	struct bucket_txn t = {
		.txn = {.apply = apply_delete, .frees = true}, .name = name, .id = id};

	return txn_run(store, &t.txn, err);
}

enum store_status store_bucket_get(
	struct store *store, const char *name, struct store_bucket *out, struct penstock_error *err)
{
	_cleanup_reader_ struct db *db = db_reader(store, err);
	_cleanup_reset_ sqlite3_stmt *st = NULL;
	enum store_status status;

	if (!db)
		return STORE_FAILED;
	st = db_bound(db, SQL_BUCKET_GET, "t", name);
	status = db_look_up(db, st, STORE_NO_SUCH_BUCKET, "look up a bucket", err);
	if (status == STORE_OK && out) {
		snprintf(out->name, sizeof(out->name), "%s", name);
		out->id = sqlite3_column_int64(st, 0);
		out->created_ns = sqlite3_column_int64(st, 1);
		db_column_text(st, 2, out->region, sizeof(out->region));
		out->versioning = (enum store_versioning)sqlite3_column_int(st, 3);
		db_column_text(st, 4, out->owner, sizeof(out->owner));
	}
	return status;
}

enum store_status store_bucket_list(struct store *store, const struct store_bucket_query *query,
	struct store_bucket **out, size_t *n, struct penstock_error *err)
{
	_cleanup_reader_ struct db *db = db_reader(store, err);
	_cleanup_reset_ sqlite3_stmt *st = NULL;
	_cleanup_free_ struct store_bucket *list = NULL;
	size_t count = 0;
	int rc;

	if (!db)
		return STORE_FAILED;
	st = db_bound(db, SQL_BUCKET_LIST, "tttti", query->owner, query->after, query->prefix,
		query->region, (int64_t)query->max);
	while ((rc = db_step(db, st)) == SQLITE_ROW) {
		struct store_bucket *grown = array_grow(list, count, sizeof(*list));

		if (!grown) {
			error_memory(err);
			return STORE_FAILED;
		}
		list = grown;
		list[count] = (struct store_bucket){0};
		db_column_text(st, 0, list[count].name, sizeof(list[count].name));
		db_column_text(st, 2, list[count].region, sizeof(list[count].region));
		db_column_text(st, 3, list[count].owner, sizeof(list[count].owner));
		list[count++].created_ns = sqlite3_column_int64(st, 1);
	}
	if (rc != SQLITE_DONE)
		return db_error(db, rc, "list the buckets", err);
	*out = take_pointer(list);
	*n = count;
	return STORE_OK;
}

/* --- configurations -------------------------------------------------------------------------- */

struct config_txn {
	struct txn txn;
	const char *bucket, *name;
	int64_t id;
	const void *data;
	size_t len;
};

static int apply_config(struct store *store, struct txn *txn)
{
	struct config_txn *t = (struct config_txn *)txn;
	int64_t id = txn_bucket(store, txn, t->bucket, t->id);

	if (id <= 0)
		return (int)-id;
	store->configs_changed = true;
	if (!t->data)
		return db_exec(store->writer, SQL_CONFIG_DROP, "it", id, t->name);
	return db_exec(store->writer, SQL_CONFIG_SET, "itb", id, t->name, t->data, t->len);
}

enum store_status store_config_set(struct store *store, const char *bucket, int64_t id,
	const char *name, const void *data, size_t len, struct penstock_error *err)
{
	struct config_txn t = {.txn = {.apply = apply_config, .frees = !data},
		.bucket = bucket,
		.id = id,
		.name = name,
		.data = data,
		.len = len};

	if (data && strcmp(name, STORE_ENCRYPTION_CONFIG) == 0)
		atomic_store(&store->encrypts, true);
	return txn_run(store, &t.txn, err);
}

enum store_status store_config_get(struct store *store, const char *bucket, const char *name,
	struct buf *out, struct penstock_error *err)
{
	enum store_status status = store_bucket_get(store, bucket, NULL, err);
	_cleanup_reader_ struct db *db = status == STORE_OK ? db_reader(store, err) : NULL;
	_cleanup_reset_ sqlite3_stmt *st = NULL;

	if (!db)
		return status == STORE_OK ? STORE_FAILED : status;
	st = db_bound(db, SQL_CONFIG_GET, "tt", bucket, name);
	status = db_look_up(db, st, STORE_NO_SUCH_KEY, "read a configuration", err);
	if (status != STORE_OK || db_column_add(st, 0, out) == 0)
		return status;
	error_memory(err);
	return STORE_FAILED;
}

enum store_status store_config_sizes(struct store *store, const char *bucket, const char *name,
	size_t extra, struct store_config_sizes *out, struct penstock_error *err)
{
	_cleanup_reader_ struct db *db = db_reader(store, err);
	_cleanup_reset_ sqlite3_stmt *st = NULL;
	enum store_status status;

	if (!db)
		return STORE_FAILED;
	st = db_bound(db, SQL_CONFIG_SIZES, "tti", bucket, name, (int64_t)extra);
	status = db_look_up(db, st, STORE_FAILED, "add up configurations", err);
	if (status == STORE_OK)
		*out = (struct store_config_sizes){.bucket = (uint64_t)sqlite3_column_int64(st, 0),
			.owner = (uint64_t)sqlite3_column_int64(st, 1),
			.all = (uint64_t)sqlite3_column_int64(st, 2)};
	return status;
}

uint64_t store_config_generation(const struct store *store)
{
	return atomic_load(&store->config_generation);
}

void store_config_list_free(struct store_config *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(list[i].value);
	free(list);
}

static int config_add(sqlite3_stmt *st, struct store_config **list, size_t *n)
{
	struct store_config *grown = array_grow(*list, *n, sizeof(*grown));
	size_t len = (size_t)sqlite3_column_bytes(st, 1);

	if (!grown)
		return -1;
	*list = grown;
	grown += *n;
	*grown = (struct store_config){.len = len, .value = malloc(len + 1)};
	if (!grown->value)
		return -1;
	db_column_text(st, 0, grown->bucket, sizeof(grown->bucket));
	if (len)
		memcpy(grown->value, sqlite3_column_blob(st, 1), len);
	grown->value[len] = '\0';
	++*n;
	return 0;
}

enum store_status store_config_list(struct store *store, const char *name,
	struct store_config **out, size_t *n, struct penstock_error *err)
{
	_cleanup_reader_ struct db *db = db_reader(store, err);
	_cleanup_reset_ sqlite3_stmt *st = db ? db_bound(db, SQL_CONFIG_LIST, "t", name) : NULL;
	struct store_config *list = NULL;
	enum store_status status = STORE_OK;
	size_t count = 0;
	int rc;

	if (!db)
		return STORE_FAILED;
	while ((rc = db_step(db, st)) == SQLITE_ROW && config_add(st, &list, &count) == 0)
		;
	if (rc == SQLITE_DONE) {
		*out = list;
		*n = count;
		return STORE_OK;
	}
	if (rc == SQLITE_ROW) {
		error_memory(err);
		status = STORE_FAILED;
	} else {
		status = db_error(db, rc, "list configurations", err);
	}
	store_config_list_free(list, count);
	return status;
}

enum store_status store_default_encryption(struct store *store, const char *bucket,
	enum store_encryption *out, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STORE_KEY_FILE);
	enum store_status status;

	*out = STORE_PLAIN;
	if (!atomic_load(&store->encrypts))
		return STORE_OK;
	status = store_config_get(store, bucket, STORE_ENCRYPTION_CONFIG, &text, err);
	if (status == STORE_OK)
		*out = STORE_OWN_KEY;
	return status == STORE_NO_SUCH_KEY ? STORE_OK : status;
}

/* --- Object Lock ----------------------------------------------------------------------------- */

enum store_status store_lock_get(
	struct store *store, const char *bucket, struct store_lock *out, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LOCK_CONFIG_SIZE);
	enum store_status status = store_config_get(store, bucket, LOCK_CONFIG, &text, err);

	if (status == STORE_OK)
		*out = lock_parse(buf_str(&text));
	return status;
}

struct lock_txn {
	struct txn txn;
	const char *bucket;
	int64_t id;
	const struct store_lock *lock;
};

static int apply_lock(struct store *store, struct txn *txn)
{
	const struct lock_txn *t = (const struct lock_txn *)txn;
	int64_t bucket = txn_bucket(store, txn, t->bucket, t->id);

	if (bucket <= 0)
		return (int)-bucket;
	if (txn->versioning == STORE_VERSIONED)
		return lock_set(store, bucket, t->lock);
	txn->status = STORE_BUCKET_STATE;
	return 0;
}

enum store_status store_lock_set(struct store *store, const char *bucket, int64_t id,
	const struct store_lock *lock, struct penstock_error *err)
{
	struct lock_txn t = {
		.txn = {.apply = apply_lock}, .bucket = bucket, .id = id, .lock = lock};

	return txn_run(store, &t.txn, err);
}
