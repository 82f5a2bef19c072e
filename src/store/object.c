#include "store/internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/banned.h"

/* --- snapshots ----------------------------------------------------------------------------- */

struct store_object *store_object_ref(struct store_object *object)
{
	atomic_fetch_add_explicit(&object->refs, 1, memory_order_relaxed);
	return object;
}

void store_object_unref(struct store_object *object)
{
	if (!object || atomic_fetch_sub_explicit(&object->refs, 1, memory_order_acq_rel) != 1)
		return;
	for (size_t i = 0; i < object->n_pieces; i++)
		blob_unpin(object->store, object->blobs[i]);
	free(object);
}

/* One allocation: the struct, pieces, blobs, parts, headers, body. */
static struct store_object *object_alloc(
	size_t n_parts, size_t n_pieces, size_t headers_len, size_t body_len)
{
	size_t pieces = sizeof(struct store_object);
	size_t blobs = pieces + n_pieces * sizeof(struct store_piece);
	size_t parts = blobs + n_pieces * sizeof(struct store_blob *);
	size_t headers = parts + n_parts * sizeof(struct store_part);
	size_t body = headers + headers_len;
	char *p = calloc(1, body + body_len);
	struct store_object *object = (struct store_object *)p;

	if (!object)
		return NULL;
	object->pieces = (struct store_piece *)(p + pieces);
	object->n_pieces = n_pieces;
	object->blobs = (struct store_blob **)(p + blobs);
	object->parts = (struct store_part *)(p + parts);
	object->n_parts = n_parts;
	object->headers = p + headers;
	object->headers_len = headers_len;
	object->body = p + body;
	return object;
}

int object_from_row(struct store *store, sqlite3_stmt *st, struct store_object **out,
	struct penstock_error *err)
{
	const void *layout = sqlite3_column_blob(st, 7);
	size_t layout_len = (size_t)sqlite3_column_bytes(st, 7);
	const void *headers = sqlite3_column_blob(st, 6);
	size_t headers_len = (size_t)sqlite3_column_bytes(st, 6);
	bool is_inline = sqlite3_column_type(st, 8) != SQLITE_NULL;
	const void *body = sqlite3_column_blob(st, 8);
	size_t body_len = (size_t)sqlite3_column_bytes(st, 8);
	size_t n_parts = 0, n_pieces = 0;
	struct store_object *object;

	if (layout_decode(layout, layout_len, NULL, &n_parts, NULL, &n_pieces) < 0)
		return error_set(err, PENSTOCK_E_CORRUPT,
			"the layout of an object in %s is unreadable", store->root);
	object = object_alloc(n_parts, n_pieces, headers_len, body_len);
	if (!object)
		return error_memory(err);
	atomic_init(&object->refs, 1);
	object->store = store;
	object->size = (uint64_t)sqlite3_column_int64(st, 0);
	object->modified_ns = sqlite3_column_int64(st, 1);
	db_column_text(st, 2, object->etag, sizeof(object->etag));
	db_column_text(st, 3, object->checksum.algorithm, sizeof(object->checksum.algorithm));
	db_column_text(st, 4, object->checksum.type, sizeof(object->checksum.type));
	db_column_text(st, 5, object->checksum.value, sizeof(object->checksum.value));
	layout_decode(layout, layout_len, (struct store_part *)object->parts, &n_parts,
		(struct store_piece *)object->pieces, &n_pieces);
	if (headers_len)
		memcpy((char *)object->headers, headers, headers_len);
	if (!is_inline)
		object->body = NULL;
	else if (body_len)
		memcpy((char *)object->body, body, body_len);
	for (size_t i = 0; i < n_pieces; i++) {
		object->blobs[i] = blob_pin(store, object->pieces[i].blob);
		if (!object->blobs[i]) {
			store_object_unref(object);
			return error_memory(err);
		}
	}
	*out = object;
	return 0;
}

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

bool store_object_next_header(
	const struct store_object *object, const char **p, const char **name, const char **value)
{
	const char *end = object->headers + object->headers_len;
	const char *at = *p ? *p : object->headers;

	if (at >= end)
		return false;
	*name = at;
	at += strlen(at) + 1;
	*value = at;
	*p = at + strlen(at) + 1;
	return true;
}

const char *store_object_header(const struct store_object *object, const char *name)
{
	const char *p = NULL, *n, *value;

	while (store_object_next_header(object, &p, &n, &value))
		if (strcasecmp(n, name) == 0)
			return value;
	return NULL;
}

const void *store_object_map(struct store_object *object)
{
	const char *map;

	if (object->body)
		return object->body;
	if (object->n_pieces != 1)
		return NULL;
	map = blob_map(object->store, object->blobs[0]);
	if (!map || object->blobs[0]->map_len < object->pieces[0].offset + object->pieces[0].length)
		return NULL;
	return map + object->pieces[0].offset;
}

int store_object_open(
	const struct store_object *object, uint64_t offset, uint64_t length, uint64_t *at)
{
	_cleanup_close_ int fd = -1;
	const struct store_piece *piece;
	struct stat st;
	size_t i = 0;

	while (i < object->n_pieces && offset >= object->pieces[i].length)
		offset -= object->pieces[i++].length;
	if (i == object->n_pieces || length > object->pieces[i].length - offset)
		return -1;
	piece = &object->pieces[i];
	fd = blob_open(object->store, piece->blob, NULL);
	if (fd < 0 || fstat(fd, &st) < 0 || (uint64_t)st.st_size < piece->offset + offset + length)
		return -1;
	*at = piece->offset + offset;
	return take_fd(fd);
}

/* --- reading in pieces --------------------------------------------------------------------- */

struct store_reader {
	struct store_object *object;
	size_t piece;	/* of the open file */
	uint64_t start; /* of that piece within the object */
	int fd;
};

int store_reader_new(
	struct store_object *object, struct store_reader **out, struct penstock_error *err)
{
	struct store_reader *reader = calloc(1, sizeof(*reader));

	if (!reader)
		return error_memory(err);
	reader->object = store_object_ref(object);
	reader->fd = -1;
	*out = reader;
	return 0;
}

void store_reader_free(struct store_reader *reader)
{
	if (!reader)
		return;
	if (reader->fd >= 0)
		close(reader->fd);
	store_object_unref(reader->object);
	free(reader);
}

/* Moves to the piece that holds `offset`. */
static int reader_seek(struct store_reader *reader, uint64_t offset, struct penstock_error *err)
{
	const struct store_object *object = reader->object;
	size_t piece = reader->piece;
	uint64_t start = reader->start;

	if (offset < start)
		piece = start = 0;
	while (piece < object->n_pieces && offset - start >= object->pieces[piece].length)
		start += object->pieces[piece++].length;
	if (piece == object->n_pieces)
		return error_set(err, PENSTOCK_E_CORRUPT,
			"an object in %s has fewer bytes than its size", object->store->root);
	if (piece != reader->piece && reader->fd >= 0)
		close(take_fd(reader->fd));
	reader->piece = piece;
	reader->start = start;
	if (reader->fd < 0)
		reader->fd = blob_open(object->store, object->pieces[piece].blob, err);
	return reader->fd < 0 ? -PENSTOCK_E_IO : 0;
}

ssize_t store_reader_read(struct store_reader *reader, uint64_t offset, void *data, size_t len,
	struct penstock_error *err)
{
	const struct store_object *object = reader->object;
	size_t done = 0;

	if (offset >= object->size)
		return 0;
	if (len > object->size - offset)
		len = (size_t)(object->size - offset);
	if (object->body) {
		memcpy(data, (const char *)object->body + offset, len);
		return (ssize_t)len;
	}
	while (done < len) {
		const struct store_piece *piece;
		uint64_t within, want;
		ssize_t n;

		if (reader_seek(reader, offset + done, err) < 0)
			return -1;
		piece = &object->pieces[reader->piece];
		within = offset + done - reader->start;
		want = piece->length - within;
		if (want > len - done)
			want = len - done;
		n = fs_pread_all(reader->fd, (char *)data + done, (size_t)want,
			(off_t)(piece->offset + within));
		if (n < 0)
			return error_errno(err, errno, "cannot read from the store at %s",
				       object->store->root),
			       -1;
		if ((uint64_t)n != want)
			return error_set(err, PENSTOCK_E_CORRUPT, "a data file in %s is too short",
				       object->store->root),
			       -1;
		done += (size_t)n;
	}
	return (ssize_t)done;
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

/* The new object's layout, and the references that it holds. */
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
