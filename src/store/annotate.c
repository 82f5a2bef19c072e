/* The store's own headers of objects. */
#include "store/internal.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "store/header.h"

static bool is_expected(const struct store_annotation *a, const struct buf *headers)
{
	const char *found = store_header_find(headers->data, headers->len, a->name);

	if (a->any)
		return true;
	return a->expected ? found && strcmp(found, a->expected) == 0 : !found;
}

static int notify(struct store *store, const struct store_annotation *a,
	const struct old_object *old, const struct buf *headers)
{
	char version[STORE_VERSION_SIZE];

	version_name(version, old->modified_ns, old->is_null);
	return event_notify_version(store, &(struct store_new_version){.bucket = a->bucket,
						   .key = a->key,
						   .version = a->version ? a->version : version,
						   .note = a->name,
						   .headers = headers->data,
						   .headers_len = headers->len});
}

int annotation_apply(struct store *store, struct txn *txn, const struct store_annotation *a)
{
	_cleanup_(old_object_release) struct old_object old = OLD_OBJECT_INIT;
	_cleanup_(buf_release) struct buf headers = BUF_INIT(LIMIT_STORE_LAYOUT);
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STORE_LAYOUT);
	int64_t bucket = txn_bucket(store, txn, a->bucket);
	int rc;

	if (bucket <= 0)
		return (int)-bucket;
	rc = object_find(store, bucket, a->key, a->version, &old);
	if (rc == 0 && (!old.exists || old.marker))
		txn->status = a->version ? STORE_NO_SUCH_VERSION : STORE_NO_SUCH_KEY;
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
	return rc ? rc : notify(store, a, &old, &out);
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
	struct annotate_txn t = {.txn = {.apply = apply_annotation}, .annotation = annotation};

	return txn_run(store, &t.txn, err);
}
