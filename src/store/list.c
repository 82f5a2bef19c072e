#include "store/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "store/header.h"

/*
 * Listings walk the primary key from a lower bound. After the first key with a common prefix the
 * walk skips to the first key after all keys with that prefix, so the cost depends on the size of
 * the listing, not on the number of keys below the prefix.
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

/* Sets the bound to the first text after all texts that begin with `prefix`. Returns false if there
 * is no such text. */
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

struct list_walk {
	const struct store_list_query *query;
	const char *prefix, *delimiter;
	size_t prefix_len, delimiter_len;
	struct list_bound bound;
	struct store_list *out;
	enum db_sql sql;
	/* If the list continues within the rows of the key `query->after`, the place at which it
	 * continues. */
	const char *after_id; /* an upload or a version; NULL to continue after that key */
	/* a text that sorts after the id of the upload and before later ids */
	char id[STORE_UPLOAD_ID_SIZE + 1];
	int64_t before_ns; /* time of the version */
	bool has_newer; /* earlier pages have newer versions of that key */
};

/* Returns the length of the common prefix that replaces a key in the listing, or 0 if the key
 * itself is listed. */
static size_t walk_fold(const struct list_walk *walk, const char *key, size_t len)
{
	const char *at;

	if (!walk->delimiter_len)
		return 0;
	at = memmem(key + walk->prefix_len, len - walk->prefix_len, walk->delimiter,
		walk->delimiter_len);
	return at ? (size_t)(at - key) + walk->delimiter_len : 0;
}

/* Returns true if the common prefix is at or before `after`, and so is not listed again. */
static bool walk_passed(const struct list_walk *walk, const char *prefix, size_t len)
{
	const char *after = walk->query->after;
	size_t after_len = after ? strlen(after) : 0;
	int order = memcmp(prefix, after ? after : "", len < after_len ? len : after_len);

	return after_len && (order < 0 || (order == 0 && len <= after_len));
}

/* Returns true if a row of a list of versions is the first row of its key. */
static bool is_latest(const struct list_walk *walk, const char *key)
{
	const struct store_list *list = walk->out;

	if (list->n)
		return strcmp(list->entries[list->n - 1].key, key) != 0;
	return !walk->has_newer || strcmp(walk->query->after, key) != 0;
}

/* Gets a stored header of a row; leaves `out` as it is if the header is missing. */
static void get_header(sqlite3_stmt *st, const char *name, char *out, size_t size)
{
	const char *value = store_header_find(
		sqlite3_column_blob(st, 6), (size_t)sqlite3_column_bytes(st, 6), name);

	if (value)
		snprintf(out, size, "%s", value);
}

/* Appends a row to the listing; a common prefix has only its key. */
static int list_add(
	struct list_walk *walk, sqlite3_stmt *st, const char *key, size_t len, bool is_prefix)
{
	struct store_list *list = walk->out;
	struct store_list_entry *e = &list->entries[list->n];

	e->key = strndup(key, len);
	if (!e->key)
		return -1;
	e->is_prefix = is_prefix;
	if (!is_prefix && walk->sql != SQL_OBJECT_LIST && walk->sql != SQL_UPLOAD_LIST) {
		e->is_latest = is_latest(walk, e->key);
		e->is_marker = sqlite3_column_int(st, 7) != 0;
		version_name(
			e->version, sqlite3_column_int64(st, 2), sqlite3_column_int(st, 8) != 0);
	}
	list->n++;
	if (is_prefix)
		return 0;
	e->size = (uint64_t)sqlite3_column_int64(st, 1);
	e->modified_ns = sqlite3_column_int64(st, 2);
	db_column_text(st, 3, e->etag, sizeof(e->etag));
	db_column_text(st, 4, e->checksum.algorithm, sizeof(e->checksum.algorithm));
	db_column_text(st, 5, e->checksum.type, sizeof(e->checksum.type));
	get_header(st, STORE_CLASS_HEADER, e->storage_class, sizeof(e->storage_class));
	if (walk->sql == SQL_UPLOAD_LIST)
		get_header(st, STORE_OWNER_HEADER, e->owner, sizeof(e->owner));
	return 0;
}

enum walk_step { WALK_SEEK, WALK_END, WALK_FAILED, WALK_NO_MEMORY };

/* Walks from the bound until the end or until seeking is cheaper. */
static enum walk_step walk_run(struct list_walk *walk, struct db *db, sqlite3_stmt *st)
{
	int rc;

	while ((rc = db_step(db, st)) == SQLITE_ROW) {
		const char *key = sqlite3_column_blob(st, 0);
		size_t len = (size_t)sqlite3_column_bytes(st, 0);
		size_t fold;

		if (len < walk->prefix_len || memcmp(key, walk->prefix, walk->prefix_len) != 0)
			return WALK_END;
		fold = walk_fold(walk, key, len);
		if (fold && walk_passed(walk, key, fold))
			return bound_skip(&walk->bound, key, fold) ? WALK_SEEK : WALK_END;
		if (walk->out->n == walk->query->max) {
			walk->out->truncated = true;
			return WALK_END;
		}
		if (list_add(walk, st, key, fold ? fold : len, fold != 0) < 0)
			return WALK_NO_MEMORY;
		if (fold)
			return bound_skip(&walk->bound, key, fold) ? WALK_SEEK : WALK_END;
	}
	return rc == SQLITE_DONE ? WALK_END : WALK_FAILED;
}

/* Sets the bound at which the walk begins. */
static int walk_begin(struct list_walk *walk, struct db *db, int64_t bucket)
{
	const char *after = walk->query->after ? walk->query->after : "";

	if (!*after || strcmp(after, walk->prefix) < 0) {
		bound_set(&walk->bound, walk->prefix, walk->prefix_len);
		return 0;
	}
	bound_set(&walk->bound, after, strlen(after));
	if (walk->after_id && walk->sql == SQL_VERSION_LIST) {
		walk->sql = SQL_VERSION_LIST_REST;
		if (version_limit(db, bucket, after, walk->after_id, &walk->before_ns) < 0)
			return -1;
		return version_is_newer(db, bucket, after, walk->before_ns, &walk->has_newer);
	}
	if (walk->after_id)
		snprintf(walk->id, sizeof(walk->id), "%s~", walk->after_id);
	else if (walk->bound.len < sizeof(walk->bound.key))
		walk->bound.key[walk->bound.len++] = '\0';
	return 0;
}

static sqlite3_stmt *walk_bind(struct list_walk *walk, struct db *db, int64_t bucket)
{
	switch (walk->sql) {
	case SQL_UPLOAD_LIST:
		return db_bound(
			db, walk->sql, "ibt", bucket, walk->bound.key, walk->bound.len, walk->id);
	case SQL_VERSION_LIST_REST:
		return db_bound(db, walk->sql, "ibi", bucket, walk->bound.key, walk->bound.len,
			walk->before_ns);
	default:
		return db_bound(db, walk->sql, "ib", bucket, walk->bound.key, walk->bound.len);
	}
}

/* Continues with the next keys after the last version of a key. */
static enum walk_step walk_next(struct list_walk *walk, enum walk_step step)
{
	walk->id[0] = '\0';
	if (walk->sql != SQL_VERSION_LIST_REST || step == WALK_NO_MEMORY || walk->out->truncated)
		return step;
	walk->sql = SQL_VERSION_LIST;
	if (step == WALK_END && walk->bound.len < sizeof(walk->bound.key))
		walk->bound.key[walk->bound.len++] = '\0';
	return WALK_SEEK;
}

static enum store_status list_read(struct db *db, enum db_sql sql,
	const struct store_list_query *query, const char *after_id, struct store_list *out,
	struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *bucket = db_bound(db, SQL_BUCKET_ID, "t", query->bucket);
	struct list_walk walk = {.query = query, .out = out, .sql = sql, .after_id = after_id};
	enum walk_step step = WALK_SEEK;
	enum store_status status = db_look_up(
		db, bucket, STORE_NO_SUCH_BUCKET, "look up a bucket", err);
	int64_t id;

	if (status != STORE_OK || !query->max)
		return status;
	id = sqlite3_column_int64(bucket, 0);
	walk.prefix = query->prefix ? query->prefix : "";
	walk.delimiter = query->delimiter ? query->delimiter : "";
	walk.prefix_len = strlen(walk.prefix);
	walk.delimiter_len = strlen(walk.delimiter);
	if (walk_begin(&walk, db, id) < 0)
		return db_failed(db, "list a bucket", err);
	out->entries = calloc(query->max, sizeof(*out->entries));
	if (!out->entries)
		step = WALK_NO_MEMORY;
	while (step == WALK_SEEK) {
		_cleanup_reset_ sqlite3_stmt *st = walk_bind(&walk, db, id);

		step = walk_run(&walk, db, st);
		if (step == WALK_FAILED)
			return db_failed(db, "list a bucket", err);
		step = walk_next(&walk, step);
	}
	if (step == WALK_END)
		return STORE_OK;
	error_memory(err);
	return STORE_FAILED;
}

static enum store_status list(struct store *store, enum db_sql sql,
	const struct store_list_query *query, const char *after_id, struct store_list *out,
	struct penstock_error *err)
{
	_cleanup_reader_ struct db *db = db_reader(store, err);
	enum store_status status;

	*out = (struct store_list){0};
	if (!db)
		return STORE_FAILED;
	/* One transaction, so that all seeks see the same state. */
	if (db_run(db_statement(db, SQL_BEGIN_READ)) == 0) {
		status = list_read(db, sql, query, after_id, out, err);
		db_run(db_statement(db, SQL_COMMIT));
	} else {
		status = db_failed(db, "list a bucket", err);
	}
	if (status != STORE_OK)
		store_list_release(out);
	return status;
}

enum store_status store_list_objects(struct store *store, const struct store_list_query *query,
	struct store_list *out, struct penstock_error *err)
{
	return list(store, SQL_OBJECT_LIST, query, NULL, out, err);
}

enum store_status store_upload_list(struct store *store, const struct store_list_query *query,
	const char *after_id, struct store_list *out, struct penstock_error *err)
{
	return list(store, SQL_UPLOAD_LIST, query, after_id, out, err);
}

enum store_status store_version_list(struct store *store, const struct store_list_query *query,
	const char *after_version, struct store_list *out, struct penstock_error *err)
{
	return list(store, SQL_VERSION_LIST, query, after_version, out, err);
}

void store_version_place(const struct store_list_entry *entry, char out[static STORE_VERSION_SIZE])
{
	version_name(out, entry->modified_ns, false);
}

void store_list_release(struct store_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->entries[i].key);
	free(list->entries);
	*list = (struct store_list){0};
}
