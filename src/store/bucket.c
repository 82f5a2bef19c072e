#include "store/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/banned.h"

struct bucket_txn {
	struct txn txn;
	const char *name;
};

static int apply_create(struct store *store, struct txn *txn)
{
	struct bucket_txn *t = (struct bucket_txn *)txn;
	int64_t id = txn_bucket(store, txn, t->name);
	sqlite3_stmt *st;

	if (id < 0)
		return (int)-id;
	if (id > 0) {
		txn->status = STORE_BUCKET_EXISTS;
		return 0;
	}
	txn->status = STORE_OK;
	st = db_statement(store->writer, SQL_BUCKET_ADD);
	if (!st)
		return SQLITE_ERROR;
	db_bind_text(st, 1, t->name);
	sqlite3_bind_int64(st, 2, store_tick(store));
	return db_run(st);
}

enum store_status store_bucket_create(
	struct store *store, const char *name, struct penstock_error *err)
{
	struct bucket_txn t = {.txn = {.apply = apply_create}, .name = name};

	return txn_run(store, &t.txn, err);
}

/* Removes the unfinished uploads of a bucket. */
static int drop_uploads(struct store *store, int64_t bucket)
{
	for (;;) {
		_cleanup_reset_ sqlite3_stmt *st = db_statement(
			store->writer, SQL_UPLOAD_OF_BUCKET);
		int rc;

		if (!st)
			return SQLITE_ERROR;
		sqlite3_bind_int64(st, 1, bucket);
		rc = sqlite3_step(st);
		if (rc != SQLITE_ROW)
			return rc == SQLITE_DONE ? 0 : rc;
		rc = txn_drop_upload(store, bucket, (const char *)sqlite3_column_blob(st, 0),
			(size_t)sqlite3_column_bytes(st, 0),
			(const char *)sqlite3_column_text(st, 1));
		if (rc)
			return rc;
	}
}

static int apply_delete(struct store *store, struct txn *txn)
{
	struct bucket_txn *t = (struct bucket_txn *)txn;
	int64_t id = txn_bucket(store, txn, t->name);
	sqlite3_stmt *st;
	int rc;

	if (id <= 0)
		return (int)-id;
	st = db_statement(store->writer, SQL_BUCKET_USED);
	if (!st)
		return SQLITE_ERROR;
	sqlite3_bind_int64(st, 1, id);
	rc = sqlite3_step(st);
	sqlite3_reset(st);
	if (rc == SQLITE_ROW) {
		txn->status = STORE_BUCKET_NOT_EMPTY;
		return 0;
	}
	if (rc != SQLITE_DONE)
		return rc;
	rc = drop_uploads(store, id);
	if (rc)
		return rc;
	st = db_statement(store->writer, SQL_BUCKET_DELETE);
	if (!st)
		return SQLITE_ERROR;
	sqlite3_bind_int64(st, 1, id);
	return db_run(st);
}

enum store_status store_bucket_delete(
	struct store *store, const char *name, struct penstock_error *err)
{
	struct bucket_txn t = {.txn = {.apply = apply_delete}, .name = name};

	return txn_run(store, &t.txn, err);
}

static enum store_status bucket_read(
	struct db *db, const char *name, struct store_bucket *out, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = db_statement(db, SQL_BUCKET_GET);
	int rc;

	if (!st)
		return db_failed(db, "look up a bucket", err);
	db_bind_text(st, 1, name);
	rc = sqlite3_step(st);
	if (rc == SQLITE_DONE)
		return STORE_NO_SUCH_BUCKET;
	if (rc != SQLITE_ROW)
		return db_error(db, rc, "look up a bucket", err);
	if (out) {
		snprintf(out->name, sizeof(out->name), "%s", name);
		out->created_ns = sqlite3_column_int64(st, 1);
	}
	return STORE_OK;
}

enum store_status store_bucket_get(
	struct store *store, const char *name, struct store_bucket *out, struct penstock_error *err)
{
	struct db *db = store_reader_db(store, err);
	enum store_status status = db ? bucket_read(db, name, out, err) : STORE_FAILED;

	store_reader_db_done(store, db);
	return status;
}

static enum store_status buckets_read(
	struct db *db, struct store_bucket **out, size_t *n, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = db_statement(db, SQL_BUCKET_LIST);
	_cleanup_free_ struct store_bucket *list = NULL;
	size_t count = 0, cap = 0;
	int rc;

	if (!st)
		return db_failed(db, "list the buckets", err);
	while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
		if (count == cap) {
			struct store_bucket *grown;

			cap = cap ? 2 * cap : 16;
			grown = reallocarray(list, cap, sizeof(*list));
			if (!grown) {
				error_memory(err);
				return STORE_FAILED;
			}
			list = grown;
		}
		db_column_text(st, 0, list[count].name, sizeof(list[count].name));
		list[count++].created_ns = sqlite3_column_int64(st, 1);
	}
	if (rc != SQLITE_DONE)
		return db_error(db, rc, "list the buckets", err);
	*out = take_pointer(list);
	*n = count;
	return STORE_OK;
}

enum store_status store_bucket_list(
	struct store *store, struct store_bucket **out, size_t *n, struct penstock_error *err)
{
	struct db *db = store_reader_db(store, err);
	enum store_status status = db ? buckets_read(db, out, n, err) : STORE_FAILED;

	store_reader_db_done(store, db);
	return status;
}
