#include "store/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/banned.h"

/*
 * Listings walk the primary key from a lower bound. After a key that folds into a common prefix the
 * walk skips to the first key after that prefix, so the cost depends on the size of the listing,
 * not on the number of keys below the prefix.
 */
struct list_bound {
	char key[2 * LIMIT_S3_KEY + 2];
	size_t len;
};

static void bound_set(struct list_bound *bound, const char *key, size_t len)
{
	if (len > sizeof(bound->key))
		len = sizeof(bound->key); /* longer than any key: sorts like its beginning */
	memcpy(bound->key, key, len);
	bound->len = len;
}

/* Sets the first text after everything that begins with `prefix`. Returns false if there is no such
 * text. */
static bool bound_skip(struct list_bound *bound, const char *prefix, size_t len)
{
	bound_set(bound, prefix, len);
	while (bound->len && (unsigned char)bound->key[bound->len - 1] == 0xff)
		bound->len--;
	if (!bound->len)
		return false;
	bound->key[bound->len - 1]++;
	return true;
}

/* Sets the first text after `key`. */
static void bound_after(struct list_bound *bound, const char *key)
{
	bound_set(bound, key, strlen(key));
	if (bound->len < sizeof(bound->key))
		bound->key[bound->len++] = '\0';
}

/* Appends a row to the listing; a common prefix has only its key. */
typedef int list_add_fn(void *out, sqlite3_stmt *st, const char *key, size_t len, bool is_prefix);

struct list_walk {
	const struct store_list_query *query;
	const char *prefix, *delimiter;
	size_t prefix_len, delimiter_len;
	struct list_bound bound;
	list_add_fn *add;
	void *out;
	size_t n; /* rows appended */
	bool truncated;
};

/* Sets the first lower bound. */
static void walk_start(
	struct list_walk *walk, const struct store_list_query *query, list_add_fn *add, void *out)
{
	const char *after = query->after ? query->after : "";

	*walk = (struct list_walk){.query = query, .add = add, .out = out};
	walk->prefix = query->prefix ? query->prefix : "";
	walk->delimiter = query->delimiter ? query->delimiter : "";
	walk->prefix_len = strlen(walk->prefix);
	walk->delimiter_len = strlen(walk->delimiter);
	if (strcmp(after, walk->prefix) >= 0 && *after)
		bound_after(&walk->bound, after);
	else
		bound_set(&walk->bound, walk->prefix, walk->prefix_len);
}

/* Returns the length of the common prefix that a key folds into, or 0 if it is listed itself. */
static size_t walk_fold(const struct list_walk *walk, const char *key, size_t len)
{
	const char *at;

	if (!walk->delimiter_len)
		return 0;
	at = memmem(key + walk->prefix_len, len - walk->prefix_len, walk->delimiter,
		walk->delimiter_len);
	return at ? (size_t)(at - key) + walk->delimiter_len : 0;
}

/* Returns true if a common prefix was listed before, being at or before `after`. */
static bool walk_passed(const struct list_walk *walk, const char *prefix, size_t len)
{
	const char *after = walk->query->after;
	size_t after_len = after ? strlen(after) : 0;
	int order = memcmp(prefix, after ? after : "", len < after_len ? len : after_len);

	return after_len && (order < 0 || (order == 0 && len <= after_len));
}

enum walk_step { WALK_SEEK, WALK_END, WALK_FAILED };

/* Walks from the bound until the end or until seeking is cheaper. */
static enum walk_step walk_run(struct list_walk *walk, sqlite3_stmt *st)
{
	int rc;

	while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
		const char *key = sqlite3_column_blob(st, 0);
		size_t len = (size_t)sqlite3_column_bytes(st, 0);
		size_t fold;

		if (len < walk->prefix_len || memcmp(key, walk->prefix, walk->prefix_len) != 0)
			return WALK_END;
		fold = walk_fold(walk, key, len);
		if (fold && walk_passed(walk, key, fold))
			return bound_skip(&walk->bound, key, fold) ? WALK_SEEK : WALK_END;
		if (walk->n == walk->query->max) {
			walk->truncated = true;
			return WALK_END;
		}
		if (walk->add(walk->out, st, key, fold ? fold : len, fold != 0) < 0)
			return WALK_FAILED;
		walk->n++;
		if (fold)
			return bound_skip(&walk->bound, key, fold) ? WALK_SEEK : WALK_END;
	}
	return rc == SQLITE_DONE ? WALK_END : WALK_FAILED;
}

static int64_t bucket_id(
	struct db *db, const char *name, enum store_status *status, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = db_statement(db, SQL_BUCKET_ID);
	int rc;

	if (!st) {
		*status = db_failed(db, "look up a bucket", err);
		return 0;
	}
	db_bind_text(st, 1, name);
	rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		return sqlite3_column_int64(st, 0);
	*status = rc == SQLITE_DONE ? STORE_NO_SUCH_BUCKET
				    : db_error(db, rc, "look up a bucket", err);
	return 0;
}

/* --- objects ------------------------------------------------------------------------------- */

static int list_add(void *out, sqlite3_stmt *st, const char *key, size_t len, bool is_prefix)
{
	struct store_list *list = out;
	struct store_list_entry *e = &list->entries[list->n];

	e->key = strndup(key, len);
	if (!e->key)
		return -1;
	list->n++;
	e->is_prefix = is_prefix;
	if (is_prefix)
		return 0;
	e->size = (uint64_t)sqlite3_column_int64(st, 1);
	e->modified_ns = sqlite3_column_int64(st, 2);
	db_column_text(st, 3, e->etag, sizeof(e->etag));
	db_column_text(st, 4, e->checksum.algorithm, sizeof(e->checksum.algorithm));
	db_column_text(st, 5, e->checksum.type, sizeof(e->checksum.type));
	return 0;
}

static enum store_status list_read(struct db *db, const struct store_list_query *query,
	struct store_list *out, struct penstock_error *err)
{
	enum store_status status = STORE_OK;
	int64_t bucket = bucket_id(db, query->bucket, &status, err);
	enum walk_step step = WALK_SEEK;
	struct list_walk walk;

	if (!bucket)
		return status;
	if (!query->max)
		return STORE_OK;
	walk_start(&walk, query, list_add, out);
	out->entries = calloc(query->max, sizeof(*out->entries));
	if (!out->entries) {
		error_memory(err);
		return STORE_FAILED;
	}
	while (step == WALK_SEEK) {
		_cleanup_reset_ sqlite3_stmt *st = db_statement(db, SQL_OBJECT_LIST);

		if (!st)
			return db_failed(db, "list a bucket", err);
		sqlite3_bind_int64(st, 1, bucket);
		db_bind_blob(st, 2, walk.bound.key, walk.bound.len);
		step = walk_run(&walk, st);
		if (step == WALK_FAILED)
			return db_failed(db, "list a bucket", err);
	}
	out->truncated = walk.truncated;
	return STORE_OK;
}

enum store_status store_list_objects(struct store *store, const struct store_list_query *query,
	struct store_list *out, struct penstock_error *err)
{
	struct db *db = store_reader_db(store, err);
	enum store_status status = STORE_FAILED;

	*out = (struct store_list){0};
	if (!db)
		return status;
	/* One transaction, so that all seeks see the same state. */
	if (db_run(db_statement(db, SQL_BEGIN_READ)) == 0) {
		status = list_read(db, query, out, err);
		db_run(db_statement(db, SQL_COMMIT));
	} else {
		status = db_failed(db, "list a bucket", err);
	}
	store_reader_db_done(store, db);
	if (status != STORE_OK)
		store_list_release(out);
	return status;
}

void store_list_release(struct store_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->entries[i].key);
	free(list->entries);
	*list = (struct store_list){0};
}

/* --- uploads ------------------------------------------------------------------------------- */

static int upload_add(void *out, sqlite3_stmt *st, const char *key, size_t len, bool is_prefix)
{
	struct store_upload_list *list = out;
	struct store_upload_entry *e = &list->entries[list->n];

	e->upload.key = strndup(key, len);
	if (!e->upload.key)
		return -1;
	list->n++;
	e->is_prefix = is_prefix;
	if (is_prefix)
		return 0;
	db_column_text(st, 1, e->upload.id, sizeof(e->upload.id));
	e->upload.started_ns = sqlite3_column_int64(st, 2);
	db_column_text(st, 3, e->upload.checksum.algorithm, sizeof(e->upload.checksum.algorithm));
	db_column_text(st, 4, e->upload.checksum.type, sizeof(e->upload.checksum.type));
	return 0;
}

static enum store_status uploads_read(struct db *db, const struct store_list_query *query,
	const char *after_id, struct store_upload_list *out, struct penstock_error *err)
{
	enum store_status status = STORE_OK;
	int64_t bucket = bucket_id(db, query->bucket, &status, err);
	enum walk_step step = WALK_SEEK;
	char id[STORE_UPLOAD_ID_SIZE + 1] = "";
	struct list_walk walk;

	if (!bucket)
		return status;
	if (!query->max)
		return STORE_OK;
	walk_start(&walk, query, upload_add, out);
	if (after_id && query->after && strcmp(query->after, walk.prefix) >= 0) {
		/* Continue among the uploads of that key, after this one. */
		bound_set(&walk.bound, query->after, strlen(query->after));
		snprintf(id, sizeof(id), "%s~", after_id);
	}
	out->entries = calloc(query->max, sizeof(*out->entries));
	if (!out->entries) {
		error_memory(err);
		return STORE_FAILED;
	}
	while (step == WALK_SEEK) {
		_cleanup_reset_ sqlite3_stmt *st = db_statement(db, SQL_UPLOAD_LIST);

		if (!st)
			return db_failed(db, "list the uploads of a bucket", err);
		sqlite3_bind_int64(st, 1, bucket);
		db_bind_blob(st, 2, walk.bound.key, walk.bound.len);
		db_bind_text(st, 3, id);
		step = walk_run(&walk, st);
		id[0] = '\0';
		if (step == WALK_FAILED)
			return db_failed(db, "list the uploads of a bucket", err);
	}
	out->truncated = walk.truncated;
	return STORE_OK;
}

enum store_status store_upload_list(struct store *store, const struct store_list_query *query,
	const char *after_id, struct store_upload_list *out, struct penstock_error *err)
{
	struct db *db = store_reader_db(store, err);
	enum store_status status = STORE_FAILED;

	*out = (struct store_upload_list){0};
	if (!db)
		return status;
	if (db_run(db_statement(db, SQL_BEGIN_READ)) == 0) {
		status = uploads_read(db, query, after_id, out, err);
		db_run(db_statement(db, SQL_COMMIT));
	} else {
		status = db_failed(db, "list the uploads of a bucket", err);
	}
	store_reader_db_done(store, db);
	if (status != STORE_OK)
		store_upload_list_release(out);
	return status;
}

void store_upload_list_release(struct store_upload_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		store_upload_release(&list->entries[i].upload);
	free(list->entries);
	*list = (struct store_upload_list){0};
}
