#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "store/upkeep/internal.h"
#include "store/upkeep/survey.h"

#define ASIDE_PATH_SIZE 64

/* Creates ROOT/aside and gets a path in it that no file has. */
static int aside_path(struct store *store, const char *type, uint64_t id,
	char out[static ASIDE_PATH_SIZE], struct penstock_error *err)
{
	if (mkdirat(store->root_fd, "aside", 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "cannot create '%s/aside'", store->root);
	snprintf(out, ASIDE_PATH_SIZE, "aside/%s%016llx", type, (unsigned long long)id);
	for (unsigned i = 1; faccessat(store->root_fd, out, F_OK, AT_SYMLINK_NOFOLLOW) == 0; i++)
		snprintf(out, ASIDE_PATH_SIZE, "aside/%s%016llx.%u", type, (unsigned long long)id,
			i);
	return 0;
}

/* Moves a data file to ROOT/aside. */
static int move_aside(struct store *store, uint64_t id, struct penstock_error *err)
{
	char path[BLOB_PATH_SIZE], to[ASIDE_PATH_SIZE];

	blob_path(id, path);
	if (aside_path(store, "", id, to, err) < 0)
		return -(int)err->code;
	if (renameat(store->root_fd, path, store->root_fd, to) < 0 && errno != ENOENT)
		return error_errno(
			err, errno, "cannot move '%s/%s' to '%s'", store->root, path, to);
	return 0;
}

/* Writes a row of `bodies` to a file in ROOT/aside; apply_fix() then deletes the row. */
static int write_aside(struct survey *s, uint64_t id, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(s->db, SQL_REPAIR_BODY, "i", (int64_t)id);
	_cleanup_close_ int fd = -1;
	char path[ASIDE_PATH_SIZE];
	int rc = db_step(s->db, st);

	if (rc != SQLITE_ROW)
		return upkeep_db_failed(s->db, rc, "read a body", err);
	if (aside_path(s->store, "body-", id, path, err) < 0)
		return -(int)err->code;
	fd = openat(s->store->root_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0 && fs_write_all(fd, sqlite3_column_blob(st, 0),
			       (size_t)sqlite3_column_bytes(st, 0)) == 0)
		return 0;
	rc = error_errno(err, errno, "cannot write '%s/%s'", s->store->root, path);
	if (fd >= 0)
		unlinkat(s->store->root_fd, path, 0);
	return rc;
}

static int move_all_aside(struct survey *s, struct penstock_error *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < s->n_fixes; i++) {
		const struct survey_fix *f = &s->fixes[i];

		if (f->kind == FIX_UNUSED || f->kind == FIX_SURPLUS)
			rc = move_aside(s->store, f->id, err);
		else if (f->kind == FIX_BODY)
			rc = write_aside(s, f->id, err);
	}
	return rc;
}

/* Writes the seal (struct seal) of an encrypted file next to the file in ROOT/aside, because the
 * seal is lost when the row of the file is deleted. */
static int keep_seal(struct survey *s, uint64_t id, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(s->db, SQL_BLOB_SEAL, "i", (int64_t)id);
	_cleanup_close_ int fd = -1;
	char path[BLOB_PATH_SIZE], text[2 * SEAL_SIZE + 2];

	if (db_step(s->db, st) != SQLITE_ROW || sqlite3_column_bytes(st, 0) != SEAL_SIZE)
		return 0;
	snprintf(path, sizeof(path), "aside/%016llx.seal", (unsigned long long)id);
	str_hex(sqlite3_column_blob(st, 0), SEAL_SIZE, text);
	text[2 * SEAL_SIZE] = '\n';
	fd = openat(s->store->root_fd, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0 || fs_write_all(fd, text, 2 * SEAL_SIZE + 1) < 0)
		return error_errno(err, errno, "cannot write '%s/%s'", s->store->root, path);
	return 0;
}

static int keep_seals(struct survey *s, struct penstock_error *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < s->n_fixes; i++)
		if (s->fixes[i].kind == FIX_UNUSED)
			rc = keep_seal(s, s->fixes[i].id, err);
	return rc;
}

struct repair_txn {
	struct txn txn;
	const struct survey *survey;
};

static int apply_fix(struct store *store, const struct survey_fix *f)
{
	switch (f->kind) {
	case FIX_REFS:
		return db_exec(
			store->writer, SQL_REPAIR_REFS, "ii", (int64_t)f->id, (int64_t)f->refs);
	case FIX_ADD:
		return db_exec(store->writer, SQL_REPAIR_BLOB, "iiib", (int64_t)f->id,
			(int64_t)f->refs, (int64_t)f->size, f->seal,
			f->encrypted ? sizeof(f->seal) : (size_t)0);
	case FIX_UNUSED:
		return db_exec(store->writer, SQL_BLOB_DELETE, "i", (int64_t)f->id);
	case FIX_BODY:
		return db_exec(store->writer, SQL_BODY_DELETE, "i", (int64_t)f->id);
	case FIX_BUCKET:
		return db_exec(
			store->writer, SQL_REPAIR_BUCKET, "ii", (int64_t)f->id, clock_wall_ns());
	case FIX_SURPLUS:
		break;
	}
	return 0;
}

static int apply_repair(struct store *store, struct txn *txn)
{
	const struct survey *s = ((struct repair_txn *)txn)->survey;
	int rc = s->lone_parts ? db_exec(store->writer, SQL_REPAIR_PARTS, "") : 0;

	for (size_t i = 0; rc == 0 && i < s->n_fixes; i++)
		rc = apply_fix(store, &s->fixes[i]);
	txn_touch_all(store, NULL);
	return rc;
}

static int mend(struct survey *s, struct penstock_error *err)
{
	struct repair_txn repair = {.txn = {.apply = apply_repair, .frees = true}, .survey = s};
	int rc = move_all_aside(s, err);

	/* Files are moved, durably, before rows are changed, because the next start after a crash
	 * removes files without a row. */
	if (rc == 0)
		rc = keep_seals(s, err);
	if (rc == 0 && syncfs(s->store->root_fd) < 0)
		rc = error_errno(err, errno, "cannot sync '%s'", s->store->root);
	if (rc < 0)
		return rc;
	if (txn_run(s->store, &repair.txn, err) != STORE_OK)
		return err->code ? -(int)err->code
				 : error_set(err, PENSTOCK_E_IO, "cannot repair the store");
	return 0;
}

static int apply_reindex(struct store *store, struct txn *txn)
{
	(void)txn;
	return sqlite3_exec(store->writer->handle, "REINDEX", NULL, NULL, NULL);
}

/* Rebuilds the indexes from their tables; nothing else of a damaged database can be rebuilt. */
static int mend_indexes(struct survey *s, struct penstock_error *err)
{
	struct penstock_error ignored = PENSTOCK_ERROR_INIT;
	struct txn reindex = {.apply = apply_reindex, .frees = true};
	bool sound;
	int rc = survey_integrity(s, false, &sound, err);

	if (rc < 0 || sound)
		return rc;
	txn_run(s->store, &reindex, &ignored);
	penstock_error_release(&ignored);
	return survey_integrity(s, true, &sound, err);
}

int upkeep_repair(struct store *store, struct upkeep_report *report, struct penstock_error *err)
{
	_cleanup_reader_ struct db *db = db_reader(store, err);
	_cleanup_(survey_release) struct survey s = {.store = store, .db = db, .report = report};
	int rc = db ? 0 : -PENSTOCK_E_IO;

	if (rc == 0)
		rc = mend_indexes(&s, err);
	if (rc == 0)
		rc = survey_all(&s, err);
	return rc == 0 && (s.n_fixes || s.lone_parts) ? mend(&s, err) : rc;
}
