#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "store/upkeep/internal.h"

void cursor_release(struct cursor *at)
{
	buf_release(&at->key);
}

int cursor_copy(struct cursor *to, const struct cursor *from)
{
	to->stage = from->stage;
	to->bucket = from->bucket;
	to->number = from->number;
	buf_clear(&to->key);
	return buf_add(&to->key, buf_str((struct buf *)&from->key), from->key.len);
}

/* Returns the statement for the next row of the stage. */
static sqlite3_stmt *next_statement(struct cursor *at, bool same_key)
{
	const char *key = buf_str(&at->key);

	switch (at->stage) {
	case CURSOR_OBJECTS:
		return db_bound(at->db, SQL_CURSOR_OBJECT, "ib", at->bucket, key, at->key.len);
	case CURSOR_VERSIONS:
		return same_key ? db_bound(at->db, SQL_CURSOR_VERSION_OF_KEY, "ibi", at->bucket,
					  key, at->key.len, at->number)
				: db_bound(at->db, SQL_CURSOR_VERSION_AFTER_KEY, "ib", at->bucket,
					  key, at->key.len);
	default:
		return db_bound(at->db, SQL_CURSOR_PART, "ti", key, at->number);
	}
}

static int take_place(struct cursor *at, sqlite3_stmt *st)
{
	at->bucket = sqlite3_column_int64(st, 13);
	at->number = sqlite3_column_int64(st, 15);
	buf_clear(&at->key);
	return db_column_add(st, 16, &at->key);
}

static int take_row(
	struct cursor *at, sqlite3_stmt *st, struct cursor_row *row, struct penstock_error *err)
{
	int rc;

	db_column_text(st, 12, row->bucket, sizeof(row->bucket));
	db_column_text(st, 14, row->key, sizeof(row->key));
	if (at->stage == CURSOR_PARTS)
		row->part = (unsigned)sqlite3_column_int(st, 15);
	pthread_rwlock_rdlock(&at->db->store->pinning);
	rc = object_from_row(at->db, st, &row->object, err);
	pthread_rwlock_unlock(&at->db->store->pinning);
	return rc;
}

/* Returns 1 with a row, 0 if the stage has no more rows, or a negative code. */
static int next_of_stage(
	struct cursor *at, bool same_key, struct cursor_row *row, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = next_statement(at, same_key);
	int rc = db_step(at->db, st);

	if (rc == SQLITE_DONE)
		return 0;
	if (rc == SQLITE_ROW)
		rc = take_place(at, st);
	else
		return upkeep_db_failed(at->db, rc, "read the objects", err);
	if (rc)
		return error_memory(err);
	rc = take_row(at, st, row, err);
	return rc < 0 ? rc : 1;
}

int cursor_next(struct cursor *at, struct cursor_row *row, struct penstock_error *err)
{
	*row = (struct cursor_row){.object = NULL};
	while (at->stage != CURSOR_END) {
		int rc = at->stage == CURSOR_VERSIONS ? next_of_stage(at, true, row, err) : 0;

		if (rc == 0)
			rc = next_of_stage(at, false, row, err);
		if (rc != 0)
			return rc;
		at->stage++;
		at->bucket = at->number = 0;
		buf_clear(&at->key);
	}
	return 0;
}

bool cursor_is_current(struct cursor *at, const struct cursor_row *row)
{
	static const enum db_sql has[] = {SQL_HAS_OBJECT, SQL_HAS_VERSION};
	const char *key = buf_str(&at->key);
	int64_t modified = row->object->modified_ns;
	_cleanup_reset_ sqlite3_stmt *st = NULL;

	st = at->stage == CURSOR_PARTS
		     ? db_bound(at->db, SQL_HAS_PART, "tii", key, at->number, modified)
		     : db_bound(at->db, has[at->stage], "ibi", at->bucket, key, at->key.len,
			       modified);
	return db_step(at->db, st) != SQLITE_DONE;
}

void cursor_describe(const struct cursor *at, const struct cursor_row *row, struct buf *out)
{
	if (row->part)
		buf_printf(out, "part %u of an upload of ", row->part);
	buf_printf(out, "s3://%s/%s", row->bucket[0] ? row->bucket : "?", row->key);
	if (at->stage == CURSOR_VERSIONS && row->object)
		buf_printf(out, " (version %s)", row->object->version);
	else if (at->stage == CURSOR_VERSIONS)
		buf_add_str(out, " (an older version)");
}
