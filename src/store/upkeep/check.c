#include <dirent.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "store/upkeep/internal.h"
#include "store/upkeep/survey.h"

const char *upkeep_problem_name(enum upkeep_problem problem)
{
	static const char *const names[UPKEEP_PROBLEMS_] = {[UPKEEP_DATABASE] = "database",
		[UPKEEP_ROW] = "row",
		[UPKEEP_REFERENCES] = "references",
		[UPKEEP_MISSING] = "missing",
		[UPKEEP_LOST] = "lost",
		[UPKEEP_SURPLUS] = "surplus"};

	return names[problem];
}

void survey_release(struct survey *s)
{
	free(s->uses);
	free(s->bad);
	free(s->fixes);
}

static void found(struct survey *s, enum upkeep_problem problem, bool repairable, const char *fmt,
	...) __attribute__((format(printf, 4, 5)));
static void found(
	struct survey *s, enum upkeep_problem problem, bool repairable, const char *fmt, ...)
{
	_cleanup_free_ char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	text = str_vprintf(fmt, ap);
	va_end(ap);
	s->report->problems++;
	s->report->repairable += repairable;
	if (s->report->problem)
		s->report->problem(
			s->report->cookie, problem, repairable, text ? text : "out of memory");
}

static int fix(struct survey *s, const struct survey_fix *one, struct penstock_error *err)
{
	struct survey_fix *list = array_grow(s->fixes, s->n_fixes, sizeof(*list));

	if (!list)
		return error_memory(err);
	s->fixes = list;
	list[s->n_fixes++] = *one;
	return 0;
}

/* --- rows ------------------------------------------------------------------------------------ */

enum { ROW_OBJECT, ROW_VERSION, ROW_PART, ROW_MARKER };

static void describe(sqlite3_stmt *st, struct buf *out)
{
	const char *bucket = (const char *)sqlite3_column_text(st, 7);

	buf_clear(out);
	if (sqlite3_column_int(st, 0) == ROW_PART)
		buf_printf(out, "part %d of an upload of ", sqlite3_column_int(st, 3));
	buf_printf(out, "s3://%s/", bucket ? bucket : "?");
	buf_add(out, sqlite3_column_blob(st, 2), (size_t)sqlite3_column_bytes(st, 2));
	if (sqlite3_column_int(st, 0) == ROW_VERSION)
		buf_printf(out, " (version %016" PRIx64 ")", (uint64_t)sqlite3_column_int64(st, 3));
}

static int add_uses(struct survey *s, const struct store_piece *pieces, size_t n, bool encrypted)
{
	for (size_t i = 0; i < n; i++) {
		struct survey_use *list = array_grow(s->uses, s->n_uses, sizeof(*list));

		if (!list)
			return -1;
		s->uses = list;
		list[s->n_uses++] = (struct survey_use){
			pieces[i].blob, pieces[i].offset + pieces[i].length, encrypted};
	}
	return 0;
}

static uint64_t length_of(const struct store_piece *pieces, size_t n)
{
	uint64_t length = 0;

	for (size_t i = 0; i < n; i++)
		length += pieces[i].length;
	return length;
}

static int survey_bucket(
	struct survey *s, sqlite3_stmt *st, const char *name, struct penstock_error *err)
{
	int64_t id = sqlite3_column_int64(st, 1);

	for (size_t i = 0; i < s->n_fixes; i++)
		if (s->fixes[i].kind == FIX_BUCKET && s->fixes[i].id == (uint64_t)id)
			return 0;
	found(s, UPKEEP_ROW, true, "bucket %" PRId64 " of %s is missing", id, name);
	return fix(s, &(struct survey_fix){.kind = FIX_BUCKET, .id = (uint64_t)id}, err);
}

/* Checks a row, and notes the pieces of files that the row uses, unless the row is a part that a
 * repair removes. */
static int survey_row(
	struct survey *s, sqlite3_stmt *st, struct buf *name, struct penstock_error *err)
{
	const void *layout = sqlite3_column_blob(st, 5);
	size_t len = (size_t)sqlite3_column_bytes(st, 5), n_parts = 0, n = 0;
	bool is_inline = sqlite3_column_type(st, 6) != SQLITE_NULL;
	uint64_t size = (uint64_t)sqlite3_column_int64(st, 4), length;
	_cleanup_free_ struct store_piece *pieces = NULL;
	int kind = sqlite3_column_int(st, 0);
	bool encrypted = sqlite3_column_int(st, 8) != 0;

	describe(st, name);
	s->report->objects++;
	if (layout_decode(layout, len, NULL, &n_parts, NULL, &n) < 0) {
		found(s, UPKEEP_ROW, false, "the layout of %s is invalid", buf_str(name));
		s->blind = true;
		return 0;
	}
	if (kind == ROW_PART && sqlite3_column_type(st, 1) == SQLITE_NULL) {
		if (!s->lone_parts)
			found(s, UPKEEP_ROW, true, "there are parts of uploads that do not exist");
		s->lone_parts = true;
		return 0;
	}
	pieces = calloc(n ? n : 1, sizeof(*pieces));
	if (!pieces)
		return error_memory(err);
	layout_decode(layout, len, NULL, &n_parts, pieces, &n);
	length = length_of(pieces, n);
	if (size && !n && !is_inline) {
		found(s, UPKEEP_LOST, false, "%s has lost its bytes", buf_str(name));
		length = size;
	}
	if (is_inline)
		length = (uint64_t)sqlite3_column_int64(st, 6);
	/* An encrypted body has a seal and a tag, too. */
	if (is_inline && encrypted && length == size + SEAL_SIZE + CRYPT_TAG)
		length = size;
	if (length != size)
		found(s, UPKEEP_ROW, false, "the size of %s differs from that of its bytes",
			buf_str(name));
	if (add_uses(s, pieces, n, encrypted) < 0)
		return error_memory(err);
	return sqlite3_column_type(st, 7) == SQLITE_NULL ? survey_bucket(s, st, buf_str(name), err)
							 : 0;
}

static int survey_rows(struct survey *s, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf name = BUF_INIT(LIMIT_STRING);
	_cleanup_reset_ sqlite3_stmt *st = db_statement(s->db, SQL_CHECK_ROWS);
	int rc;

	while ((rc = db_step(s->db, st)) == SQLITE_ROW) {
		rc = survey_row(s, st, &name, err);
		if (rc < 0)
			return rc;
	}
	return rc == SQLITE_DONE ? 0 : upkeep_db_failed(s->db, rc, "read the objects", err);
}

/* --- small bodies ---------------------------------------------------------------------------- */

static int survey_bodies(struct survey *s, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = db_statement(s->db, SQL_CHECK_BODIES);
	int rc;

	while ((rc = db_step(s->db, st)) == SQLITE_ROW) {
		int64_t id = sqlite3_column_int64(st, 0), uses = sqlite3_column_int64(st, 1);

		if (uses) {
			found(s, UPKEEP_ROW, false,
				"%" PRId64 " objects use the small body %" PRId64, uses, id);
			continue;
		}
		found(s, UPKEEP_SURPLUS, true, "no object uses the small body %" PRId64, id);
		if (fix(s, &(struct survey_fix){.kind = FIX_BODY, .id = (uint64_t)id}, err) < 0)
			return -(int)err->code;
	}
	return rc == SQLITE_DONE ? 0 : upkeep_db_failed(s->db, rc, "read the bodies", err);
}

/* --- data files ------------------------------------------------------------------------------ */

static int compare_uses(const void *a, const void *b)
{
	const struct survey_use *x = a, *y = b;

	return x->blob < y->blob ? -1 : x->blob > y->blob;
}

static int add_bad(struct survey *s, uint64_t blob, uint64_t size, struct penstock_error *err)
{
	struct survey_bad *list = array_grow(s->bad, s->n_bad, sizeof(*list));

	if (!list)
		return error_memory(err);
	s->bad = list;
	list[s->n_bad++] = (struct survey_bad){blob, size};
	return 0;
}

/* Returns the size of a data file, or -1 if it is missing. */
static int64_t file_size(struct survey *s, uint64_t id, char path[static BLOB_PATH_SIZE])
{
	struct stat st;

	blob_path(id, path);
	return fstatat(s->store->root_fd, path, &st, 0) < 0 ? -1 : (int64_t)st.st_size;
}

/* A row of `blobs`. */
struct survey_file {
	uint64_t id, size;
	int64_t refs;
	bool encrypted;
};

/* Compares a row of `blobs` with the data file, and with the rows that use the file. */
static int survey_blob(struct survey *s, const struct survey_file *file, size_t uses, uint64_t end,
	struct penstock_error *err)
{
	char path[BLOB_PATH_SIZE];
	int64_t on_disk = file_size(s, file->id, path), refs = file->refs;
	uint64_t id = file->id, size = file->size;

	/* The row has the size of the bytes in clear text. */
	if (on_disk > 0 && file->encrypted)
		on_disk = (int64_t)crypt_plain_size((uint64_t)on_disk);

	s->report->files++;
	if (!uses) {
		/* A row with an invalid layout may need the file, and its seal. */
		found(s, UPKEEP_REFERENCES, !s->blind,
			"no object%s uses %s, which has a row in the database",
			s->blind ? " with a valid layout" : "", path);
		return s->blind ? 0
				: fix(s, &(struct survey_fix){.kind = FIX_UNUSED, .id = id}, err);
	}
	if (end > size)
		found(s, UPKEEP_ROW, false, "%s is used beyond its size", path);
	if (on_disk != (int64_t)size) {
		if (on_disk < 0)
			found(s, UPKEEP_MISSING, false, "%s is missing", path);
		else
			found(s, UPKEEP_MISSING, false,
				"%s has %" PRId64 " bytes instead of %" PRIu64, path, on_disk,
				size);
		if (add_bad(s, id, on_disk < 0 ? 0 : (uint64_t)on_disk, err) < 0)
			return -(int)err->code;
	}
	if (refs == (int64_t)uses || (s->blind && refs > (int64_t)uses))
		return 0;
	found(s, UPKEEP_REFERENCES, true,
		"%s has %zu references, but its row in the database counts %" PRId64, path, uses,
		refs);
	return fix(s, &(struct survey_fix){.kind = FIX_REFS, .id = id, .refs = uses}, err);
}

static bool read_seal(struct survey *s, uint64_t id, uint8_t out[static SEAL_SIZE])
{
	_cleanup_close_ int fd = blob_open(s->store, id, NULL);

	return fd >= 0 && blob_noted_seal(fd, out);
}

/* Checks a data file that objects use and that has no row. */
static int survey_unknown_blob(struct survey *s, const struct survey_use *use, size_t uses,
	uint64_t end, struct penstock_error *err)
{
	struct survey_fix add = {
		.kind = FIX_ADD, .id = use->blob, .refs = uses, .encrypted = use->encrypted};
	char path[BLOB_PATH_SIZE];
	int64_t on_disk = file_size(s, use->blob, path);
	const char *lack = on_disk < 0 ? "is missing" : NULL;

	if (on_disk > 0)
		add.size = use->encrypted ? crypt_plain_size((uint64_t)on_disk) : (uint64_t)on_disk;
	if (!lack && add.size < end)
		lack = "is too short";
	if (!lack && use->encrypted && !read_seal(s, use->blob, add.seal)) {
		lack = "is encrypted without a seal";
		add.size = 0;
	}
	if (lack) {
		found(s, UPKEEP_MISSING, false, "%s %s and has no row in the database", path, lack);
		return add_bad(s, use->blob, add.size, err);
	}
	found(s, UPKEEP_REFERENCES, true, "%s has no row in the database", path);
	return fix(s, &add, err);
}

/* Moves `*at` past the uses of one file, and sets `*end` to the largest end of a use. Returns the
 * number of uses. */
static size_t take_uses(const struct survey *s, size_t *at, uint64_t *end)
{
	size_t first = *at;

	for (*end = 0; *at < s->n_uses && s->uses[*at].blob == s->uses[first].blob; ++*at)
		if (s->uses[*at].end > *end)
			*end = s->uses[*at].end;
	return *at - first;
}

/* Checks the files that objects use, that have no row, and whose ids are below `id`. */
static int take_unknown(struct survey *s, size_t *at, uint64_t id, struct penstock_error *err)
{
	while (*at < s->n_uses && s->uses[*at].blob < id) {
		const struct survey_use *first = &s->uses[*at];
		uint64_t end;
		size_t uses = take_uses(s, at, &end);

		if (survey_unknown_blob(s, first, uses, end, err) < 0)
			return -(int)err->code;
	}
	return 0;
}

static int survey_blobs(struct survey *s, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = db_statement(s->db, SQL_CHECK_BLOBS);
	size_t at = 0;
	int rc, r;

	if (s->n_uses)
		qsort(s->uses, s->n_uses, sizeof(*s->uses), compare_uses);
	while ((rc = db_step(s->db, st)) == SQLITE_ROW) {
		uint64_t id = (uint64_t)sqlite3_column_int64(st, 0), end = 0;
		size_t uses = 0;

		r = take_unknown(s, &at, id, err);
		if (r == 0 && at < s->n_uses && s->uses[at].blob == id)
			uses = take_uses(s, &at, &end);
		if (r == 0)
			r = survey_blob(s,
				&(struct survey_file){.id = id,
					.refs = sqlite3_column_int64(st, 1),
					.size = (uint64_t)sqlite3_column_int64(st, 2),
					.encrypted = sqlite3_column_int(st, 3) != 0},
				uses, end, err);
		if (r < 0)
			return r;
	}
	if (rc != SQLITE_DONE)
		return upkeep_db_failed(s->db, rc, "read the data files", err);
	return take_unknown(s, &at, UINT64_MAX, err);
}

/* --- lost objects ---------------------------------------------------------------------------- */

static int compare_bad(const void *a, const void *b)
{
	const struct survey_bad *x = a, *y = b;

	return x->blob < y->blob ? -1 : x->blob > y->blob;
}

static const struct survey_bad *find_bad(const struct survey *s, uint64_t blob)
{
	const struct survey_bad key = {.blob = blob};

	return bsearch(&key, s->bad, s->n_bad, sizeof(key), compare_bad);
}

static bool has_lost(const struct survey *s, const struct store_piece *pieces, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct survey_bad *bad = find_bad(s, pieces[i].blob);

		if (bad && pieces[i].offset + pieces[i].length > bad->size)
			return true;
	}
	return false;
}

/* Reports the objects that need lost bytes of bad files. */
static int survey_lost(struct survey *s, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf name = BUF_INIT(LIMIT_STRING);
	_cleanup_reset_ sqlite3_stmt *st = NULL;
	int rc;

	if (!s->n_bad)
		return 0;
	qsort(s->bad, s->n_bad, sizeof(*s->bad), compare_bad);
	st = db_statement(s->db, SQL_CHECK_ROWS);
	while ((rc = db_step(s->db, st)) == SQLITE_ROW) {
		const void *layout = sqlite3_column_blob(st, 5);
		size_t len = (size_t)sqlite3_column_bytes(st, 5), n_parts = 0, n = 0;
		_cleanup_free_ struct store_piece *pieces = NULL;

		if (layout_decode(layout, len, NULL, &n_parts, NULL, &n) < 0)
			continue;
		pieces = calloc(n ? n : 1, sizeof(*pieces));
		if (!pieces)
			return error_memory(err);
		layout_decode(layout, len, NULL, &n_parts, pieces, &n);
		describe(st, &name);
		if (has_lost(s, pieces, n))
			found(s, UPKEEP_LOST, false, "%s has lost bytes", buf_str(&name));
	}
	return rc == SQLITE_DONE ? 0 : upkeep_db_failed(s->db, rc, "read the objects", err);
}

/* --- surplus files --------------------------------------------------------------------------- */

static bool has_row(struct survey *s, uint64_t id)
{
	_cleanup_reset_ sqlite3_stmt *st = db_bound(s->db, SQL_BLOB_HAS, "i", (int64_t)id);

	return db_step(s->db, st) != SQLITE_DONE;
}

static bool is_used(const struct survey *s, uint64_t id)
{
	struct survey_use key = {.blob = id};

	return s->n_uses && bsearch(&key, s->uses, s->n_uses, sizeof(key), compare_uses);
}

static int survey_dir(struct survey *s, unsigned number, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *dir = NULL;
	char path[sizeof("data/xx/.")], expected[BLOB_PATH_SIZE];
	struct dirent *entry;

	snprintf(path, sizeof(path), "data/%02x/.", number);
	dir = fs_list_at(s->store->root_fd, path);
	while (dir && (entry = fs_next_entry(dir))) {
		uint64_t id;

		if (!blob_parse(entry->d_name, number, &id)) {
			found(s, UPKEEP_SURPLUS, false, "data/%02x/%s is not a data file", number,
				entry->d_name);
			continue;
		}
		if (has_row(s, id) || is_used(s, id))
			continue;
		blob_path(id, expected);
		found(s, UPKEEP_SURPLUS, true,
			"neither an object nor a row of the database names %s", expected);
		if (fix(s, &(struct survey_fix){.kind = FIX_SURPLUS, .id = id}, err) < 0)
			return -(int)err->code;
	}
	return 0;
}

static int survey_surplus(struct survey *s, struct penstock_error *err)
{
	int rc = 0;

	s->report->served = upkeep_is_served(s->store);
	for (unsigned i = 0; rc == 0 && !s->report->served && i < 256; i++)
		rc = survey_dir(s, i, err);
	return rc;
}

/* --- the whole survey ------------------------------------------------------------------------ */

int survey_integrity(struct survey *s, bool report, bool *sound, struct penstock_error *err)
{
	sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(s->db->handle, "PRAGMA integrity_check", -1, &st, NULL);

	*sound = true;
	while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		const char *text = (const char *)sqlite3_column_text(st, 0);

		rc = SQLITE_OK;
		if (!text || strcmp(text, "ok") == 0)
			continue;
		*sound = false;
		if (report)
			found(s, UPKEEP_DATABASE, false, "meta.db: %s", text);
	}
	sqlite3_finalize(st);
	return rc == SQLITE_DONE ? 0 : upkeep_db_failed(s->db, rc, "check meta.db", err);
}

int survey_all(struct survey *s, struct penstock_error *err)
{
	int rc = survey_rows(s, err);

	if (rc == 0)
		rc = survey_bodies(s, err);
	if (rc == 0)
		rc = survey_blobs(s, err);
	if (rc == 0)
		rc = survey_lost(s, err);
	return rc == 0 ? survey_surplus(s, err) : rc;
}

int upkeep_check(struct store *store, struct upkeep_report *report, struct penstock_error *err)
{
	_cleanup_reader_ struct db *db = db_reader(store, err);
	_cleanup_(survey_release) struct survey s = {.store = store, .db = db, .report = report};
	bool sound;
	int rc = db ? store_hold(store, err) : -PENSTOCK_E_IO;

	if (rc < 0)
		return rc;
	/* One transaction, so that all reads see the same state; store_hold() keeps the files of
	 * this state. */
	rc = db_exec(db, SQL_BEGIN_READ, "");
	if (rc)
		return upkeep_db_failed(db, rc, "read meta.db", err);
	rc = survey_integrity(&s, true, &sound, err);
	if (rc == 0)
		rc = survey_all(&s, err);
	db_exec(db, SQL_ROLLBACK, "");
	return rc;
}
