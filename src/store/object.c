/* Getting, replacing and deleting objects. */
#include "store/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"

/* Reads the row of `st`, and pins its files before a change can remove them. */
static enum store_status object_read(struct db *db, sqlite3_stmt *st, enum store_status missing,
	struct store_object **out, struct penstock_error *err)
{
	enum store_status status;

	pthread_rwlock_rdlock(&db->store->pinning);
	status = db_look_up(db, st, missing, "read an object", err);
	if (status == STORE_OK && object_from_row(db->store, st, out, err) < 0)
		status = STORE_FAILED;
	pthread_rwlock_unlock(&db->store->pinning);
	return status;
}

enum store_status store_object_get(struct store *store, const char *bucket, const char *key,
	struct store_object **out, struct penstock_error *err)
{
	_cleanup_reader_ struct db *db = NULL;
	_cleanup_reset_ sqlite3_stmt *st = NULL;
	enum store_status status;
	uint64_t ticket;

	*out = cache_get(store->cache, bucket, key, &ticket);
	if (*out)
		return STORE_OK;
	db = db_reader(store, err);
	if (!db)
		return STORE_FAILED;
	st = db_bound(db, SQL_OBJECT_GET, "tk", bucket, key);
	status = object_read(db, st, STORE_NO_SUCH_KEY, out, err);
	if (status == STORE_OK) {
		cache_put(store->cache, bucket, key, ticket, *out);
	} else if (status == STORE_NO_SUCH_KEY) {
		_cleanup_reset_ sqlite3_stmt *found = db_bound(db, SQL_BUCKET_ID, "t", bucket);
		enum store_status its_bucket = db_look_up(
			db, found, STORE_NO_SUCH_BUCKET, "look up a bucket", err);

		return its_bucket == STORE_OK ? STORE_NO_SUCH_KEY : its_bucket;
	}
	return status;
}

enum store_status store_completed_get(struct store *store, const char *bucket, const char *key,
	const char *id, struct store_object **out, struct penstock_error *err)
{
	_cleanup_reader_ struct db *db = db_reader(store, err);
	_cleanup_reset_ sqlite3_stmt *st = NULL;

	if (!db)
		return STORE_FAILED;
	st = db_bound(db, SQL_OBJECT_COMPLETED, "tkt", bucket, key, id);
	return object_read(db, st, STORE_NO_SUCH_UPLOAD, out, err);
}

/* --- changes ------------------------------------------------------------------------------- */

static bool tag_matches(const char *wanted, const char *etag)
{
	return etag && (strcmp(wanted, "*") == 0 || strcmp(wanted, etag) == 0);
}

/* `etag` is NULL if there is no object. */
static bool condition_holds(const struct store_condition *condition, const char *etag)
{
	if (condition->if_match && !tag_matches(condition->if_match, etag))
		return false;
	return !condition->if_none_match || !tag_matches(condition->if_none_match, etag);
}

/* The current object of a key. */
struct old_object {
	char etag[STORE_ETAG_SIZE]; /* "" if there is none */
	uint64_t size;
	int64_t modified_s;
};

static bool delete_condition_holds(
	const struct store_condition *condition, const struct old_object *object)
{
	return condition_holds(condition, object->etag) &&
	       (!condition->has_size || condition->size == object->size) &&
	       (!condition->has_modified || condition->modified_s == object->modified_s);
}

/* Gets the object of a key; appends its layout to `old`. */
static int old_row(struct store *store, int64_t bucket, const char *key, struct old_object *object,
	struct buf *old)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(
		store->writer, SQL_OBJECT_OLD, "ik", bucket, key);
	int rc = db_step(store->writer, st);

	*object = (struct old_object){0};
	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? 0 : rc;
	db_column_text(st, 0, object->etag, sizeof(object->etag));
	object->size = (uint64_t)sqlite3_column_int64(st, 2);
	object->modified_s = sqlite3_column_int64(st, 3) / NS_PER_S;
	return db_column_add(st, 1, old);
}

int object_old(struct store *store, struct txn *txn, int64_t bucket, const char *key,
	const struct store_condition *condition, struct buf *old)
{
	struct old_object object;
	int rc = old_row(store, bucket, key, &object, old);

	if (rc == 0 && !condition_holds(condition, object.etag[0] ? object.etag : NULL))
		txn->status = condition->if_match && !object.etag[0] ? STORE_NO_SUCH_KEY
								     : STORE_PRECONDITION;
	return rc;
}

int object_set(struct store *store, const char *bucket_name, int64_t bucket,
	const struct object_row *row, const struct buf *old, int64_t *modified_ns)
{
	const struct store_checksum *ck = row->checksum;
	const bool has = ck->algorithm[0] != '\0';
	sqlite3_stmt *st;
	int rc = txn_touch(store, bucket_name, row->key);

	if (rc)
		return rc;
	*modified_ns = store_tick(store);
	st = db_bound(store->writer, SQL_OBJECT_SET, "ikiittttbtb", bucket, row->key,
		(int64_t)row->size, *modified_ns, row->etag, has ? ck->algorithm : NULL,
		has ? ck->type : NULL, has ? ck->value : NULL, row->headers, row->headers_len,
		row->upload, row->layout->data, row->layout->len);
	if (st && row->body)
		sqlite3_bind_blob64(st, 12, row->size ? row->body : "", row->size, SQLITE_STATIC);
	rc = db_run(st);
	return rc || !old->len ? rc : txn_unref_layout(store, old->data, old->len);
}

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
	} else {
		*size = store_body_size(put->body);
		n = !store_body_is_inline(put->body);
		if (n)
			rc = body_piece(put->body, &piece);
		else
			*body = body_data(put->body);
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
	int64_t bucket = txn_bucket(store, txn, put->bucket);
	int rc;

	if (bucket <= 0)
		return (int)-bucket;
	rc = object_old(store, txn, bucket, put->key, &put->condition, &old);
	if (rc || txn->status != STORE_OK)
		return rc;
	rc = put_content(store, txn, put, &layout, &row.size, &row.body);
	if (rc || txn->status != STORE_OK)
		return rc;
	return object_set(store, put->bucket, bucket, &row, &old, &put->modified_ns);
}

static void put_end(struct store_put *put, enum store_status status)
{
	put->status = status;
	if (status == STORE_OK && put->body)
		body_taken(put->body);
}

static void put_done(struct store *store, struct txn *txn)
{
	struct store_put *put = ((struct put_txn *)txn)->put;

	(void)store;
	put_end(put, txn->status);
	error_move(&put->error, &txn->err);
	free(txn);
	put->done(put, put->cookie);
}

void put_submit(struct store *store, struct store_put *put, put_apply apply)
{
	struct put_txn *t = calloc(1, sizeof(*t));

	if (!t) {
		error_memory(&put->error);
		put->status = STORE_FAILED;
		put->done(put, put->cookie);
		return;
	}
	*t = (struct put_txn){.txn = {.apply = apply, .done = put_done}, .put = put};
	txn_submit(store, &t->txn);
}

enum store_status put_run(
	struct store *store, struct store_put *put, put_apply apply, struct penstock_error *err)
{
	struct put_txn t = {.txn = {.apply = apply}, .put = put};

	put_end(put, txn_run(store, &t.txn, err));
	return put->status;
}

void store_put_submit(struct store *store, struct store_put *put)
{
	put_submit(store, put, apply_put);
}

enum store_status store_put(struct store *store, struct store_put *put, struct penstock_error *err)
{
	return put_run(store, put, apply_put, err);
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
	struct old_object object;
	int rc = old_row(store, bucket, item->key, &object, &old);

	item->status = STORE_OK;
	item->existed = object.etag[0] != '\0';
	if (rc || !item->existed)
		return rc;
	if (!delete_condition_holds(&item->condition, &object)) {
		item->status = STORE_PRECONDITION;
		return 0;
	}
	rc = txn_touch(store, bucket_name, item->key);
	if (rc == 0)
		rc = db_exec(store->writer, SQL_OBJECT_DELETE, "ik", bucket, item->key);
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
