#include "store/internal.h"

#include "base/cleanup.h"

struct record_txn {
	struct txn txn;
	const struct store_record *records;
	size_t n;
};

static int apply_records(struct store *store, struct txn *txn)
{
	struct record_txn *t = (struct record_txn *)txn;
	int rc = 0;

	for (size_t i = 0; i < t->n && rc == 0; i++) {
		const struct store_record *r = &t->records[i];

		rc = r->value ? db_exec(store->writer, SQL_RECORD_SET, "tt", r->name, r->value)
			      : db_exec(store->writer, SQL_RECORD_DROP, "t", r->name);
	}
	return rc;
}

enum store_status store_record_set(struct store *store, const struct store_record *records,
	size_t n, struct penstock_error *err)
{
	/* An administrator must be able to revoke a key even if the disk is full. */
	struct record_txn t = {
		.txn = {.apply = apply_records, .frees = true}, .records = records, .n = n};

	return txn_run(store, &t.txn, err);
}

enum store_status store_record_list(struct store *store,
	int (*each)(void *cookie, const char *name, const char *value, size_t len,
		struct penstock_error *err),
	void *cookie, struct penstock_error *err)
{
	_cleanup_reader_ struct db *db = db_reader(store, err);
	_cleanup_reset_ sqlite3_stmt *st = NULL;
	int rc;

	if (!db)
		return STORE_FAILED;
	st = db_statement(db, SQL_RECORD_LIST);
	while ((rc = db_step(db, st)) == SQLITE_ROW) {
		const char *name = (const char *)sqlite3_column_text(st, 0);
		const char *value = (const char *)sqlite3_column_text(st, 1);

		if (!name || !value)
			return db_error(db, SQLITE_NOMEM, "read the records", err);
		if (each(cookie, name, value, (size_t)sqlite3_column_bytes(st, 1), err) != 0)
			return STORE_FAILED;
	}
	return rc == SQLITE_DONE ? STORE_OK : db_error(db, rc, "read the records", err);
}
