/* Getting, replacing and deleting objects. */
#include "store/internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/banned.h"

static enum store_status object_read(struct store *store, struct db *db, const char *bucket,
	const char *key, struct store_object **out, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = db_statement(db, SQL_OBJECT_GET);
	_cleanup_reset_ sqlite3_stmt *found = NULL;
	int rc;

	if (!st)
		return db_failed(db, "read an object", err);
	db_bind_text(st, 1, bucket);
	db_bind_blob(st, 2, key, strlen(key));
	rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		return object_from_row(store, st, out, err) < 0 ? STORE_FAILED : STORE_OK;
	if (rc != SQLITE_DONE)
		return db_error(db, rc, "read an object", err);
	found = db_statement(db, SQL_BUCKET_ID);
	if (!found)
		return db_failed(db, "look up a bucket", err);
	db_bind_text(found, 1, bucket);
	return sqlite3_step(found) == SQLITE_ROW ? STORE_NO_SUCH_KEY : STORE_NO_SUCH_BUCKET;
}

enum store_status store_object_get(struct store *store, const char *bucket, const char *key,
	struct store_object **out, struct penstock_error *err)
{
	uint64_t ticket;
	enum store_status status;
	struct db *db;

	*out = cache_get(store->cache, bucket, key, &ticket);
	if (*out)
		return STORE_OK;
	db = store_reader_db(store, err);
	if (!db)
		return STORE_FAILED;
	pthread_rwlock_rdlock(&store->pinning);
	status = object_read(store, db, bucket, key, out, err);
	pthread_rwlock_unlock(&store->pinning);
	store_reader_db_done(store, db);
	if (status == STORE_OK)
		cache_put(store->cache, bucket, key, ticket, *out);
	return status;
}

/* --- changes ------------------------------------------------------------------------------- */

static bool tag_matches(const char *wanted, const char *etag)
{
	return etag && (strcmp(wanted, "*") == 0 || strcmp(wanted, etag) == 0);
}

bool condition_holds(const struct store_condition *condition, const char *etag)
{
	if (condition->if_match && !tag_matches(condition->if_match, etag))
		return false;
	return !condition->if_none_match || !tag_matches(condition->if_none_match, etag);
}

int object_old(struct store *store, int64_t bucket, const char *key,
	char etag[static STORE_ETAG_SIZE], struct buf *old)
{
	_cleanup_reset_ sqlite3_stmt *st = db_statement(store->writer, SQL_OBJECT_OLD);
	int rc;

	etag[0] = '\0';
	if (!st)
		return SQLITE_ERROR;
	sqlite3_bind_int64(st, 1, bucket);
	db_bind_blob(st, 2, key, strlen(key));
	rc = sqlite3_step(st);
	if (rc == SQLITE_DONE)
		return 0;
	if (rc != SQLITE_ROW)
		return rc;
	db_column_text(st, 0, etag, STORE_ETAG_SIZE);
	if (buf_add(old, sqlite3_column_blob(st, 1), (size_t)sqlite3_column_bytes(st, 1)) < 0)
		return SQLITE_NOMEM;
	return 0;
}

int object_set(struct store *store, int64_t bucket, const struct object_row *row)
{
	sqlite3_stmt *st = db_statement(store->writer, SQL_OBJECT_SET);

	if (!st)
		return SQLITE_ERROR;
	sqlite3_bind_int64(st, 1, bucket);
	db_bind_blob(st, 2, row->key, strlen(row->key));
	sqlite3_bind_int64(st, 3, (int64_t)row->size);
	sqlite3_bind_int64(st, 4, row->modified_ns);
	db_bind_text(st, 5, row->etag);
	if (row->checksum->algorithm[0]) {
		db_bind_text(st, 6, row->checksum->algorithm);
		db_bind_text(st, 7, row->checksum->type);
		db_bind_text(st, 8, row->checksum->value);
	}
	db_bind_blob(st, 9, row->headers, row->headers_len);
	if (row->upload)
		db_bind_text(st, 10, row->upload);
	db_bind_blob(st, 11, row->layout->data, row->layout->len);
	if (row->body)
		db_bind_blob(st, 12, row->body, (size_t)row->size);
	return db_run(st);
}

struct put_txn {
	struct txn txn;
	struct store_put *put;
};

/* Makes the layout of the new object and takes the references. */
static int put_content(struct store *store, struct txn *txn, const struct store_put *put,
	struct buf *layout, uint64_t *size, const void **body)
{
	struct store_piece piece = {0};
	const struct store_piece *pieces = &piece;
	size_t n = 0;
	int rc = 0;

	*body = NULL;
	if (put->source) {
		*size = put->source->size;
		*body = put->source->body;
		pieces = put->source->pieces;
		n = put->source->n_pieces;
		rc = txn_ref_pieces(store, txn, pieces, n);
	} else if (store_body_is_inline(put->body)) {
		*size = store_body_size(put->body);
		*body = body_data(put->body);
	} else {
		*size = store_body_size(put->body);
		piece.blob = body_blob(put->body);
		piece.length = *size;
		n = 1;
		rc = txn_new_blob(store, piece.blob, *size);
	}
	if (rc == 0 && layout_encode(layout, put->parts, put->n_parts, pieces, n) < 0)
		rc = SQLITE_NOMEM;
	return rc;
}

static int apply_put(struct store *store, struct txn *txn)
{
	struct store_put *put = ((struct put_txn *)txn)->put;
	_cleanup_(buf_release) struct buf old = BUF_INIT(LIMIT_STORE_LAYOUT);
	_cleanup_(buf_release) struct buf layout = BUF_INIT(LIMIT_STORE_LAYOUT);
	struct object_row row = {.key = put->key,
		.etag = put->etag,
		.checksum = &put->checksum,
		.headers = put->headers,
		.headers_len = put->headers_len,
		.layout = &layout};
	char etag[STORE_ETAG_SIZE];
	int64_t bucket = txn_bucket(store, txn, put->bucket);
	int rc;

	if (bucket <= 0)
		return (int)-bucket;
	rc = object_old(store, bucket, put->key, etag, &old);
	if (rc)
		return rc;
	if (!condition_holds(&put->condition, etag[0] ? etag : NULL)) {
		txn->status = put->condition.if_match && !etag[0] ? STORE_NO_SUCH_KEY
								  : STORE_PRECONDITION;
		return 0;
	}
	rc = put_content(store, txn, put, &layout, &row.size, &row.body);
	if (rc || txn->status != STORE_OK)
		return rc;
	rc = txn_touch(store, put->bucket, put->key);
	if (rc)
		return rc;
	row.modified_ns = put->modified_ns = store_tick(store);
	rc = object_set(store, bucket, &row);
	if (rc == 0 && old.len)
		rc = txn_unref_layout(store, old.data, old.len);
	return rc;
}

static void put_done(struct store *store, struct txn *txn)
{
	struct store_put *put = ((struct put_txn *)txn)->put;

	(void)store;
	put->status = txn->status;
	error_move(&put->error, &txn->err);
	if (put->status == STORE_OK && put->body)
		body_taken(put->body);
	free(txn);
	put->done(put, put->cookie);
}

void store_put_submit(struct store *store, struct store_put *put)
{
	struct put_txn *t = calloc(1, sizeof(*t));

	if (!t) {
		error_memory(&put->error);
		put->status = STORE_FAILED;
		put->done(put, put->cookie);
		return;
	}
	t->txn.apply = apply_put;
	t->txn.done = put_done;
	t->put = put;
	txn_submit(store, &t->txn);
}

enum store_status store_put(struct store *store, struct store_put *put, struct penstock_error *err)
{
	struct put_txn t = {.txn = {.apply = apply_put}, .put = put};

	put->status = txn_run(store, &t.txn, err);
	if (put->status == STORE_OK && put->body)
		body_taken(put->body);
	return put->status;
}

struct delete_txn {
	struct txn txn;
	const char *bucket;
	struct store_delete *items;
	size_t n;
};

static int delete_one(
	struct store *store, int64_t bucket, const char *bucket_name, struct store_delete *item)
{
	_cleanup_(buf_release) struct buf old = BUF_INIT(LIMIT_STORE_LAYOUT);
	char etag[STORE_ETAG_SIZE];
	sqlite3_stmt *st;
	int rc = object_old(store, bucket, item->key, etag, &old);

	item->status = STORE_OK;
	item->existed = etag[0] != '\0';
	if (rc || !item->existed)
		return rc;
	if (!condition_holds(&item->condition, etag)) {
		item->status = STORE_PRECONDITION;
		return 0;
	}
	rc = txn_touch(store, bucket_name, item->key);
	if (rc)
		return rc;
	st = db_statement(store->writer, SQL_OBJECT_DELETE);
	if (!st)
		return SQLITE_ERROR;
	sqlite3_bind_int64(st, 1, bucket);
	db_bind_blob(st, 2, item->key, strlen(item->key));
	rc = db_run(st);
	return rc ? rc : txn_unref_layout(store, old.data, old.len);
}

static int apply_delete(struct store *store, struct txn *txn)
{
	struct delete_txn *t = (struct delete_txn *)txn;
	int64_t bucket = txn_bucket(store, txn, t->bucket);
	int rc = 0;

	if (bucket <= 0)
		return (int)-bucket;
	for (size_t i = 0; i < t->n && rc == 0; i++)
		rc = delete_one(store, bucket, t->bucket, &t->items[i]);
	return rc;
}

enum store_status store_delete(struct store *store, const char *bucket, struct store_delete *items,
	size_t n, struct penstock_error *err)
{
	struct delete_txn t = {
		.txn = {.apply = apply_delete}, .bucket = bucket, .items = items, .n = n};

	return txn_run(store, &t.txn, err);
}
