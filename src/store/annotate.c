/* The store's own headers of objects. */
#include "store/internal.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"

/* Where the headers are. */
struct place {
	bool older; /* in `versions` */
	int64_t modified_ns;
	struct buf headers;
};

static int read_headers(struct store *store, sqlite3_stmt *st, struct place *place, bool *flag)
{
	int rc = db_step(store->writer, st);

	place->modified_ns = -1;
	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? 0 : rc;
	place->modified_ns = sqlite3_column_int64(st, 0);
	*flag = sqlite3_column_int(st, 1) != 0;
	return db_column_add(st, 2, &place->headers);
}

static int find_older(struct store *store, struct txn *txn, int64_t bucket,
	const struct store_annotation *a, struct place *place)
{
	_cleanup_reset_ sqlite3_stmt *st = NULL;
	bool marker = false;
	int rc;

	place->older = true;
	st = version_is_null(a->version)
		     ? db_bound(store->writer, SQL_VERSION_HEADERS_NULL, "ik", bucket, a->key)
		     : db_bound(store->writer, SQL_VERSION_HEADERS, "iki", bucket, a->key,
			       version_modified(a->version));
	rc = read_headers(store, st, place, &marker);
	if (place->modified_ns < 0 || marker)
		txn->status = STORE_NO_SUCH_VERSION;
	return rc;
}

static int find_place(struct store *store, struct txn *txn, int64_t bucket,
	const struct store_annotation *a, struct place *place)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(
		store->writer, SQL_OBJECT_HEADERS, "ik", bucket, a->key);
	char version[STORE_VERSION_SIZE];
	bool is_null = false;
	int rc = read_headers(store, st, place, &is_null);

	version_name(version, place->modified_ns, is_null);
	if (rc || (place->modified_ns >= 0 && (!a->version || strcmp(a->version, version) == 0)))
		return rc;
	if (!a->version)
		txn->status = STORE_NO_SUCH_KEY;
	buf_clear(&place->headers);
	return a->version ? find_older(store, txn, bucket, a, place) : 0;
}

/* Appends the headers with the new value. Returns false if the old one is not the expected one. */
static bool rewrite(const struct store_annotation *a, const struct buf *old, struct buf *out)
{
	const char *p = old->data, *end = p + old->len, *found = NULL;

	while (p < end) {
		const char *value = p + strlen(p) + 1, *next = value + strlen(value) + 1;

		if (strcmp(p, a->name) == 0)
			found = value;
		else
			buf_add(out, p, (size_t)(next - p));
		p = next;
	}
	if (a->value) {
		buf_add(out, a->name, strlen(a->name) + 1);
		buf_add(out, a->value, strlen(a->value) + 1);
	}
	if (a->any)
		return true;
	return a->expected ? found && strcmp(found, a->expected) == 0 : !found;
}

struct annotate_txn {
	struct txn txn;
	const struct store_annotation *annotation;
};

static int apply_annotation(struct store *store, struct txn *txn)
{
	const struct store_annotation *a = ((struct annotate_txn *)txn)->annotation;
	struct place place = {.headers = BUF_INIT(LIMIT_STORE_LAYOUT)};
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STORE_LAYOUT);
	int64_t bucket = txn_bucket(store, txn, a->bucket);
	int rc;

	if (bucket <= 0)
		return (int)-bucket;
	rc = find_place(store, txn, bucket, a, &place);
	if (rc == 0 && txn->status == STORE_OK && !rewrite(a, &place.headers, &out))
		txn->status = STORE_CHANGED;
	buf_release(&place.headers);
	if (rc || txn->status != STORE_OK)
		return rc;
	rc = buf_failed(&out) ? SQLITE_NOMEM : txn_touch(store, a->bucket, a->key);
	if (rc)
		return rc;
	if (place.older)
		return db_exec(store->writer, SQL_VERSION_SET_HEADERS, "ikib", bucket, a->key,
			place.modified_ns, out.data, out.len);
	return db_exec(
		store->writer, SQL_OBJECT_SET_HEADERS, "ikb", bucket, a->key, out.data, out.len);
}

enum store_status store_annotate(
	struct store *store, const struct store_annotation *annotation, struct penstock_error *err)
{
	struct annotate_txn t = {.txn = {.apply = apply_annotation}, .annotation = annotation};

	return txn_run(store, &t.txn, err);
}
