/* Gets, replaces and deletes objects, and changes the store's own headers of objects. */
#include "store/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "s3/conditions.h"
#include "store/header.h"

/* Reads the row of `st`, and pins its files before a change can remove them. */
static enum store_status object_read(struct db *db, sqlite3_stmt *st, const char *bucket,
	enum store_status missing, struct store_object **out, struct penstock_error *err)
{
	enum store_status status;

	pthread_rwlock_rdlock(&db->store->pinning);
	status = object_look_up(db, st, missing, out, err);
	pthread_rwlock_unlock(&db->store->pinning);
	return status == STORE_OK ? snapshot_count(db->store, bucket, out, err) : status;
}

/* Gets the delete marker of a key that has no object. */
static enum store_status get_marker(struct db *db, const char *bucket, const char *key,
	struct store_object **out, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(db, SQL_VERSION_GET_NEWEST, "tk", bucket, key);
	enum store_status status = object_read(db, st, bucket, STORE_NO_SUCH_KEY, out, err);

	if (status != STORE_OK)
		return status;
	/* The key may have got an object since the first read. */
	if (!(*out)->marker) {
		store_object_unref(*out);
		*out = NULL;
	}
	return STORE_NO_SUCH_KEY;
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
	status = object_read(db, st, bucket, STORE_NO_SUCH_KEY, out, err);
	if (status == STORE_OK) {
		cache_put(store->cache, bucket, key, ticket, *out);
	} else if (status == STORE_NO_SUCH_KEY) {
		_cleanup_reset_ sqlite3_stmt *found = db_bound(db, SQL_BUCKET_ID, "t", bucket);
		enum store_status its_bucket = db_look_up(
			db, found, STORE_NO_SUCH_BUCKET, "look up a bucket", err);

		if (its_bucket != STORE_OK)
			return its_bucket;
		if (sqlite3_column_int(found, 1) != STORE_UNVERSIONED)
			status = get_marker(db, bucket, key, out, err);
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
	st = db_bound(db, SQL_VERSION_GET_UPLOAD, "tkt", bucket, key, id);
	return object_read(db, st, bucket, STORE_NO_SUCH_UPLOAD, out, err);
}

/* --- changes ------------------------------------------------------------------------------- */

/* `etag` is NULL if there is no object. */
static bool condition_holds(const struct store_condition *condition, const char *etag)
{
	if (condition->if_match && !(etag && etag_list_matches(condition->if_match, etag, false)))
		return false;
	return !condition->if_none_match || !etag ||
	       !etag_list_matches(condition->if_none_match, etag, true);
}

static bool delete_condition_holds(
	const struct store_condition *condition, const struct old_object *object)
{
	return condition_holds(condition, object->etag) &&
	       (!condition->has_size || condition->size == object->size) &&
	       (!condition->has_modified ||
		       condition->modified_s == object->modified_ns / NS_PER_S);
}

/* Sets `*same` to false if the access check has read another object or other headers, else to
 * true. */
static int compare_decided(struct store *store, int64_t bucket, const char *key,
	const struct store_condition *condition, const struct old_object *old, bool *same)
{
	_cleanup_(buf_release) struct buf headers = BUF_INIT(LIMIT_STORE_LAYOUT);
	const struct store_object *decided = condition->decided;
	int rc;

	*same = !condition->has_decided || (decided != NULL) == (old->exists && !old->marker);
	if (!*same || !decided)
		return 0;
	rc = version_headers(store, bucket, key, old, &headers);
	*same = rc ||
		(decided->modified_ns == old->modified_ns && decided->headers_len == headers.len &&
			memcmp(decided->headers, buf_str(&headers), headers.len) == 0);
	return rc;
}

static int old_row(struct store *store, int64_t bucket, const char *key, struct old_object *object)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(
		store->writer, SQL_OBJECT_OLD, "ik", bucket, key);
	int rc = db_step(store->writer, st);

	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? 0 : rc;
	object->exists = true;
	db_column_text(st, 0, object->etag, sizeof(object->etag));
	object->size = (uint64_t)sqlite3_column_int64(st, 2);
	object->modified_ns = sqlite3_column_int64(st, 3);
	object->is_null = sqlite3_column_int(st, 4) != 0;
	object->body = sqlite3_column_int64(st, 5);
	return db_column_add(st, 1, &object->layout);
}

int object_old(struct store *store, struct txn *txn, int64_t bucket, const char *key,
	const struct store_condition *condition, struct old_object *old)
{
	bool same = true;
	int rc = old_row(store, bucket, key, old);

	if (rc == 0)
		rc = compare_decided(store, bucket, key, condition, old, &same);
	if (!same)
		txn->status = STORE_CHANGED;
	else if (rc == 0 && !condition_holds(condition, old->exists ? old->etag : NULL))
		txn->status = condition->if_match && !old->exists ? STORE_NO_SUCH_KEY
								  : STORE_PRECONDITION;
	return rc;
}

int object_find(struct store *store, int64_t bucket, const char *key, const char *version,
	struct old_object *old)
{
	char name[STORE_VERSION_SIZE];
	int rc = old_row(store, bucket, key, old);
	bool has_object = old->exists;

	version_name(name, old->modified_ns, old->is_null);
	if (rc == 0 && version && !(has_object && strcmp(version, name) == 0)) {
		old_object_release(old);
		*old = (struct old_object)OLD_OBJECT_INIT;
		old->older = true;
		rc = version_old(store, bucket, key, version, old);
	}
	old->has_object = has_object;
	return rc;
}

int object_place(struct store *store, struct txn *txn, int64_t bucket, const char *key,
	const char *name, const char *etag, struct replica *out)
{
	int rc = version_place(store, txn, bucket, key, name, etag, out);

	if (out->exists)
		txn->status = out->differs ? STORE_VERSION_TAKEN : STORE_PRECONDITION;
	return rc;
}

int object_bind_body(struct store *store, sqlite3_stmt *st, int i, const struct object_row *row)
{
	int64_t id = row->body_row;
	int rc = 0;

	if (!row->body)
		return 0;
	if (!row->body_len)
		return sqlite3_bind_zeroblob(st, i, 0);
	if (!id) {
		id = (int64_t)db_next_id(store);
		rc = db_reserve_id(store, (uint64_t)id);
	}
	if (rc == 0)
		rc = db_exec(store->writer, SQL_BODY_SET, "ib", id, row->body, row->body_len);
	return rc ? rc : sqlite3_bind_int64(st, i, id);
}

static int write_row(
	struct store *store, enum db_sql sql, int64_t bucket, const struct object_row *row)
{
	const struct store_checksum *ck = row->checksum;
	const bool has = ck->algorithm[0] != '\0';
	sqlite3_stmt *st = db_bound(store->writer, sql, "ikiittttbtb", bucket, row->key,
		(int64_t)row->size, row->modified_ns, row->etag, has ? ck->algorithm : NULL,
		has ? ck->type : NULL, has ? ck->value : NULL, row->headers, row->headers_len,
		row->upload, row->layout->data, row->layout->len);
	int rc = st ? object_bind_body(store, st, 12, row) : SQLITE_ERROR;

	txn_take_room(store, row->headers_len + row->layout->len + row->body_len);
	return rc ? rc : db_run(st);
}

int object_write(struct store *store, int64_t bucket, const struct object_row *row)
{
	return write_row(store, SQL_OBJECT_SET, bucket, row);
}

int version_add(struct store *store, int64_t bucket, const struct object_row *row)
{
	return write_row(store, SQL_VERSION_ADD, bucket, row);
}

/* Makes `row` a version other than "null", with the default retention of the bucket; `headers` gets
 * the headers of the version. Notifies the observers unless the version is a replica. */
static int make_version(struct store *store, const char *bucket_name, int64_t bucket,
	struct object_row *row, struct buf *headers)
{
	int64_t now_ns = clock_wall_ns();
	int rc;

	store_header_add(headers, HEADER_VERSION, "");
	buf_add(headers, row->headers, row->headers_len);
	if (buf_failed(headers))
		return SQLITE_NOMEM;
	/* The default retention begins now if the version is a replica, whose time the sender
	 * chooses, or if its time is in the future, because the clock was wrong when the previous
	 * version was made. */
	rc = lock_new_version(store, bucket,
		row->replica.modified_ns || row->modified_ns > now_ns ? now_ns : row->modified_ns,
		headers);
	if (rc == 0 && !row->replica.modified_ns)
		rc = event_notify_version(store, &(struct store_new_version){.bucket = bucket_name,
							 .key = row->key,
							 .version = row->version,
							 .size = row->size,
							 .headers = row->headers,
							 .headers_len = row->headers_len,
							 .more = headers});
	if (rc == 0 && buf_failed(headers))
		rc = SQLITE_NOMEM;
	row->headers = headers->data;
	row->headers_len = headers->len;
	return rc;
}

int object_set(struct store *store, const struct txn *txn, const char *bucket_name, int64_t bucket,
	struct object_row *row, struct old_object *old)
{
	_cleanup_(buf_release) struct buf headers = BUF_INIT(4 * LIMIT_HTTP_HEADERS);
	int rc = txn_touch(store, bucket_name, row->key);

	row->version[0] = '\0';
	row->modified_ns = row->replica.modified_ns ? row->replica.modified_ns
						    : time_after(old->modified_ns);
	if (row->replica.older)
		old_object_keep_bytes(old);
	if (rc == 0 && txn->versioning != STORE_UNVERSIONED) {
		if (!row->replica.older)
			rc = version_make_room(
				store, txn, bucket, row->key, old, &row->modified_ns);
		version_name(row->version, row->modified_ns, txn->versioning == STORE_SUSPENDED);
	}
	if (rc == 0 && txn->versioning == STORE_VERSIONED)
		rc = make_version(store, bucket_name, bucket, row, &headers);
	if (row->body_len) {
		row->body_row = old->body;
		old->body = 0;
	}
	if (rc == 0)
		rc = row->replica.older ? version_add(store, bucket, row)
					: object_write(store, bucket, row);
	return rc ? rc : txn_drop_bytes(store, old);
}

/* Creates the layout of the new object and takes the references. */
static int put_content(struct store *store, struct txn *txn, const struct store_put *put,
	struct buf *layout, struct object_row *row)
{
	struct store_piece piece = {0};
	const struct store_piece *pieces = &piece;
	size_t n = 0;
	int rc = 0;

	if (put->source) {
		row->size = put->source->size;
		row->body = put->source->body;
		row->body_len = put->source->body_len;
		pieces = put->source->pieces;
		n = put->source->n_pieces;
		rc = txn_ref_pieces(store, txn, pieces, n);
	} else {
		row->size = store_body_size(put->body);
		n = !store_body_is_inline(put->body);
		if (n)
			rc = body_piece(put->body, &piece);
		else
			row->body = body_data(put->body, &row->body_len);
		if (rc == 0)
			rc = body_keep_key(put->body);
	}
	if (rc == 0 && layout_encode(layout, put->parts, put->n_parts, pieces, n) < 0)
		rc = SQLITE_NOMEM;
	return rc;
}

static int apply_put(struct store *store, struct txn *txn)
{
	struct store_put *put = ((struct put_txn *)txn)->put;
	_cleanup_(old_object_release) struct old_object old = OLD_OBJECT_INIT;
	_cleanup_(buf_release) struct buf layout = BUF_INIT(LIMIT_STORE_LAYOUT);
	struct object_row row = {.key = put->key,
		.etag = put->etag,
		.checksum = &put->checksum,
		.headers = put->headers,
		.headers_len = put->headers_len,
		.layout = &layout};
	int64_t bucket = txn_bucket(store, txn, put->bucket, put->bucket_id);
	int rc;

	if (bucket <= 0)
		return (int)-bucket;
	rc = object_old(store, txn, bucket, put->key, &put->condition, &old);
	if (rc == 0 && txn->status == STORE_OK)
		rc = object_place(store, txn, bucket, put->key,
			store_header_find(put->headers, put->headers_len, STORE_REPLICA_HEADER),
			put->etag, &row.replica);
	if (rc || txn->status != STORE_OK)
		return rc;
	rc = put_content(store, txn, put, &layout, &row);
	if (rc || txn->status != STORE_OK)
		return rc;
	rc = object_set(store, txn, put->bucket, bucket, &row, &old);
	put->size = row.size;
	put->modified_ns = row.modified_ns;
	memcpy(put->version, row.version, sizeof(put->version));
	if (rc || !put->origin)
		return rc;
	return event_notify(store, &(struct store_change){.bucket = put->bucket,
					   .key = put->key,
					   .event = put->origin->event,
					   .size = put->size,
					   .etag = put->etag,
					   .version = put->version,
					   .modified_ns = put->modified_ns,
					   .origin = put->origin});
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
	int rc = t ? 0 : error_memory(&put->error);

	if (rc == 0 && put->body)
		rc = body_seal(put->body, &put->error);
	if (rc < 0) {
		free(t);
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

	if (put->body && body_seal(put->body, err) < 0) {
		put->status = STORE_FAILED;
		return put->status;
	}
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
	int64_t bucket_id;
	struct store_delete *items;
	size_t n;
};

static int notify_marker(struct store *store, const struct txn *txn, const char *bucket,
	const struct store_delete *item, struct buf *headers)
{
	int rc;

	if (item->unseen || item->replica || txn->versioning != STORE_VERSIONED)
		return 0;
	rc = event_notify_version(store, &(struct store_new_version){.bucket = bucket,
						 .key = item->key,
						 .version = item->made,
						 .marker = true,
						 .more = headers});
	return rc == 0 && buf_failed(headers) ? SQLITE_NOMEM : rc;
}

/* Deletes the object of a key; with versioning keeps the object as an older version, behind the
 * delete marker that the caller adds. */
static int take_away(struct store *store, const struct txn *txn, int64_t bucket, const char *key,
	struct old_object *old, int64_t *modified_ns)
{
	int rc = txn->versioning == STORE_UNVERSIONED
			 ? 0
			 : version_make_room(store, txn, bucket, key, old, modified_ns);

	if (rc == 0 && old->exists)
		rc = db_exec(store->writer, SQL_OBJECT_DELETE, "ik", bucket, key);
	return rc ? rc : txn_drop_bytes(store, old);
}

/* Deletes the object of a key; with versioning adds a delete marker. */
static int delete_object(struct store *store, const struct txn *txn, int64_t bucket,
	const char *bucket_name, struct store_delete *item, struct old_object *old)
{
	_cleanup_(buf_release) struct buf headers = BUF_INIT(LIMIT_STORE_LAYOUT);
	struct replica replica;
	int rc = version_place(store, txn, bucket, item->key, item->replica, "", &replica);
	int64_t modified_ns = replica.modified_ns ? replica.modified_ns
						  : time_after(old->modified_ns);

	if (replica.differs)
		item->status = STORE_VERSION_TAKEN;
	if (rc || replica.differs)
		return rc;
	if (!replica.older && !replica.exists)
		rc = take_away(store, txn, bucket, item->key, old, &modified_ns);
	if (rc || txn->versioning == STORE_UNVERSIONED)
		return rc;
	item->marker = true;
	version_name(item->made, modified_ns, txn->versioning == STORE_SUSPENDED);
	if (replica.exists)
		return 0;
	rc = notify_marker(store, txn, bucket_name, item, &headers);
	return rc ? rc : version_mark(store, txn, bucket, item->key, modified_ns, &headers);
}

/* Deletes the current version. The newest of the other versions, unless it is a marker, becomes the
 * object of the key. */
static int delete_current(
	struct store *store, int64_t bucket, const char *key, const struct old_object *old)
{
	int rc = db_exec(store->writer, SQL_OBJECT_DELETE, "ik", bucket, key);

	if (rc == 0)
		rc = txn_drop_bytes(store, old);
	return rc ? rc : version_restore(store, bucket, key);
}

/* Deletes an older version, or a marker. */
static int delete_older(struct store *store, int64_t bucket, struct store_delete *item,
	const struct old_object *old)
{
	int rc = version_delete(store, bucket, item->key, old);

	item->marker = old->marker;
	return rc || old->has_object ? rc : version_restore(store, bucket, item->key);
}

int object_remove(struct store *store, const struct txn *txn, int64_t bucket,
	const char *bucket_name, struct store_delete *item)
{
	_cleanup_(old_object_release) struct old_object old = OLD_OBJECT_INIT;
	bool locked = false, same = true;
	int rc = object_find(store, bucket, item->key, item->version, &old);

	item->status = STORE_OK;
	item->existed = old.exists;
	item->marker = false;
	item->made[0] = '\0';
	if (rc || (!old.exists && (item->version || txn->versioning == STORE_UNVERSIONED)))
		return rc;
	/* A delete marker needs room. */
	if (!item->version && txn->versioning != STORE_UNVERSIONED && !store->room) {
		item->status = STORE_NO_SPACE;
		return 0;
	}
	rc = compare_decided(store, bucket, item->key, &item->condition, &old, &same);
	if (!same)
		item->status = STORE_CHANGED;
	else if (old.exists && !delete_condition_holds(&item->condition, &old))
		item->status = STORE_PRECONDITION;
	if (rc || item->status != STORE_OK)
		return rc;
	if (old.exists && item->version)
		rc = lock_protects(store, bucket, item, &old, &locked);
	if (rc || locked) {
		item->status = locked ? STORE_LOCKED : STORE_OK;
		return rc;
	}
	rc = txn_touch(store, bucket_name, item->key);
	if (rc)
		return rc;
	if (old.older)
		rc = delete_older(store, bucket, item, &old);
	else if (item->version)
		rc = delete_current(store, bucket, item->key, &old);
	else
		rc = delete_object(store, txn, bucket, bucket_name, item, &old);
	return rc || item->status != STORE_OK
		       ? rc
		       : event_notify_removed(store, bucket_name, item, old.modified_ns);
}

static int apply_delete(struct store *store, struct txn *txn)
{
	struct delete_txn *t = (struct delete_txn *)txn;
	int64_t bucket = txn_bucket(store, txn, t->bucket, t->bucket_id);
	int rc = 0;

	if (bucket <= 0)
		return (int)-bucket;
	while (rc == 0 && txn->next_item < t->n && txn_has_room(store, txn))
		rc = object_remove(store, txn, bucket, t->bucket, &t->items[txn->next_item++]);
	txn->more = txn->next_item < t->n;
	return rc;
}

enum store_status store_delete(struct store *store, const char *bucket, int64_t id,
	struct store_delete *items, size_t n, struct penstock_error *err)
{
	struct delete_txn t = {.txn = {.apply = apply_delete, .frees = true},
		.bucket = bucket,
		.bucket_id = id,
		.items = items,
		.n = n};

	return txn_run(store, &t.txn, err);
}

/* --- the store's own headers ------------------------------------------------------------------ */

static bool is_expected(const struct store_annotation *a, const struct buf *headers)
{
	const char *found = store_header_find(headers->data, headers->len, a->name);

	if (a->any)
		return true;
	return a->expected ? found && strcmp(found, a->expected) == 0 : !found;
}

static int notify_annotation(struct store *store, const struct store_annotation *a,
	const struct old_object *old, const struct buf *before, const struct buf *headers)
{
	char version[STORE_VERSION_SIZE];

	version_name(version, old->modified_ns, old->is_null);
	return event_notify_version(
		store, &(struct store_new_version){.bucket = a->bucket,
			       .key = a->key,
			       .version = a->version ? a->version : version,
			       .note = a->name,
			       .before = store_header_find(before->data, before->len, a->name),
			       .headers = headers->data,
			       .headers_len = headers->len});
}

int annotation_apply(struct store *store, struct txn *txn, const struct store_annotation *a)
{
	_cleanup_(old_object_release) struct old_object old = OLD_OBJECT_INIT;
	_cleanup_(buf_release) struct buf headers = BUF_INIT(LIMIT_STORE_LAYOUT);
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STORE_LAYOUT);
	int64_t bucket = txn_bucket(store, txn, a->bucket, a->bucket_id);
	int rc;

	if (bucket <= 0)
		return (int)-bucket;
	rc = object_find(store, bucket, a->key, a->version, &old);
	if (rc == 0 && !old.exists)
		txn->status = a->version ? STORE_NO_SUCH_VERSION : STORE_NO_SUCH_KEY;
	else if (rc == 0 && a->modified_ns && a->modified_ns != old.modified_ns)
		txn->status = STORE_CHANGED;
	else if (rc == 0)
		rc = version_headers(store, bucket, a->key, &old, &headers);
	if (rc == 0 && txn->status == STORE_OK && !is_expected(a, &headers))
		txn->status = STORE_CHANGED;
	if (rc || txn->status != STORE_OK)
		return rc;
	store_header_replace(&out, headers.data, headers.len, a->name, a->value);
	rc = buf_failed(&out) ? SQLITE_NOMEM : txn_touch(store, a->bucket, a->key);
	if (rc)
		return rc;
	rc = old.older ? db_exec(store->writer, SQL_VERSION_SET_HEADERS, "ikib", bucket, a->key,
				 old.modified_ns, out.data, out.len)
		       : db_exec(store->writer, SQL_OBJECT_SET_HEADERS, "ikb", bucket, a->key,
				 out.data, out.len);
	return rc ? rc : notify_annotation(store, a, &old, &headers, &out);
}

struct annotate_txn {
	struct txn txn;
	const struct store_annotation *annotation;
};

static int apply_annotation(struct store *store, struct txn *txn)
{
	return annotation_apply(store, txn, ((struct annotate_txn *)txn)->annotation);
}

enum store_status store_annotate(
	struct store *store, const struct store_annotation *annotation, struct penstock_error *err)
{
	struct annotate_txn t = {.txn = {.apply = apply_annotation, .frees = !annotation->value},
		.annotation = annotation};

	return txn_run(store, &t.txn, err);
}
