#include "store/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "s3/uri.h"

/* "pnst" */
#define APPLICATION_ID 0x706e7374

static const char *const sql_text[SQL_COUNT_] = {
#define SQL(name, text) [SQL_##name] = (text),
#include "store/sql.h"
#undef SQL
};

/* The object table has no rowid, so that a listing reads keys and the listed columns from adjacent
 * pages. */
static const char format_1[] =
	"CREATE TABLE meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;"
	"CREATE TABLE buckets(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,"
	" created INTEGER NOT NULL);"
	"CREATE TABLE objects(bucket INTEGER NOT NULL, key BLOB NOT NULL, size INTEGER NOT NULL,"
	" modified INTEGER NOT NULL, etag TEXT NOT NULL, ck_algorithm TEXT, ck_type TEXT,"
	" ck_value TEXT, headers BLOB NOT NULL, upload TEXT, layout BLOB NOT NULL, body BLOB,"
	" PRIMARY KEY(bucket,key)) WITHOUT ROWID;"
	"CREATE TABLE blobs(id INTEGER PRIMARY KEY, refs INTEGER NOT NULL, size INTEGER NOT NULL);"
	"CREATE TABLE uploads(bucket INTEGER NOT NULL, key BLOB NOT NULL, id TEXT NOT NULL,"
	" started INTEGER NOT NULL, ck_algorithm TEXT, ck_type TEXT, headers BLOB NOT NULL,"
	" PRIMARY KEY(bucket,key,id)) WITHOUT ROWID;"
	"CREATE TABLE parts(upload TEXT NOT NULL, number INTEGER NOT NULL, size INTEGER NOT NULL,"
	" modified INTEGER NOT NULL, etag TEXT NOT NULL, ck_value TEXT, layout BLOB NOT NULL,"
	" PRIMARY KEY(upload,number)) WITHOUT ROWID;";

/* Versions of objects, and configurations of buckets. */
static const char format_2[] =
	"ALTER TABLE buckets ADD COLUMN versioning INTEGER NOT NULL DEFAULT 0;"
	"CREATE TABLE versions(bucket INTEGER NOT NULL, key BLOB NOT NULL,"
	" modified INTEGER NOT NULL, marker INTEGER NOT NULL, is_null INTEGER NOT NULL,"
	" size INTEGER NOT NULL, etag TEXT NOT NULL, ck_algorithm TEXT, ck_type TEXT,"
	" ck_value TEXT, headers BLOB NOT NULL, upload TEXT, layout BLOB NOT NULL, body BLOB,"
	" PRIMARY KEY(bucket,key,modified DESC)) WITHOUT ROWID;"
	"CREATE UNIQUE INDEX null_versions ON versions(bucket,key) WHERE is_null;"
	"CREATE TABLE configs(bucket INTEGER NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL,"
	" PRIMARY KEY(bucket,name)) WITHOUT ROWID;";

/* Events: notifications of changes that are not yet delivered. */
static const char format_3[] =
	"CREATE TABLE events(id INTEGER PRIMARY KEY AUTOINCREMENT, target TEXT NOT NULL,"
	" added INTEGER NOT NULL, document BLOB NOT NULL);"
	"CREATE INDEX events_of_target ON events(target,id);";

/* Keys of the store, wrapped by the master key, and the seals (struct seal) of encrypted files. */
static const char format_4[] = "CREATE TABLE keys(id INTEGER PRIMARY KEY, wrapped BLOB NOT NULL);"
			       "ALTER TABLE blobs ADD COLUMN seal BLOB;";

/* Small bodies. The column `body` of an object or a version has the id of a row of this table. An
 * empty body has no such row. In a row of an earlier format the column has the bytes, which SQLite
 * reads with each key that it compares. The ids come from db_next_id(). */
static const char format_5[] = "CREATE TABLE bodies(id INTEGER PRIMARY KEY, bytes BLOB NOT NULL);";

/* The changes from each format to the next. */
static const char *const formats[] = {format_1, format_2, format_3, format_4, format_5};
#define FORMAT_VERSION ((int)ARRAY_SIZE(formats))

static int exec(sqlite3 *handle, const char *sql)
{
	return sqlite3_exec(handle, sql, NULL, NULL, NULL);
}

static int64_t pragma_value(sqlite3 *handle, const char *sql)
{
	sqlite3_stmt *st = NULL;
	int64_t value = -1;

	if (sqlite3_prepare_v2(handle, sql, -1, &st, NULL) == SQLITE_OK &&
		sqlite3_step(st) == SQLITE_ROW)
		value = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	return value;
}

/* Creates the tables of the formats after `version`, in one transaction. */
static int upgrade(
	struct store *store, sqlite3 *handle, int64_t version, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf sql = BUF_INIT(LIMIT_STRING);

	buf_add_str(&sql, "BEGIN IMMEDIATE;");
	for (int64_t i = version; i < FORMAT_VERSION; i++)
		buf_add_str(&sql, formats[i]);
	buf_printf(&sql, "PRAGMA application_id=%d; PRAGMA user_version=%d; COMMIT", APPLICATION_ID,
		FORMAT_VERSION);
	if (buf_failed(&sql))
		return error_memory(err);
	if (exec(handle, sql.data) == SQLITE_OK)
		return 0;
	error_set(err, PENSTOCK_E_IO, "cannot %s '%s/meta.db': %s",
		version ? "upgrade" : "initialize", store->root, sqlite3_errmsg(handle));
	exec(handle, "ROLLBACK");
	return -PENSTOCK_E_IO;
}

/* Creates or upgrades the tables. Rejects the database of another program, and a newer format. */
static int check_format(struct store *store, sqlite3 *handle, struct penstock_error *err)
{
	int64_t version = pragma_value(handle, "PRAGMA user_version");
	int64_t application = pragma_value(handle, "PRAGMA application_id");
	int64_t tables = pragma_value(handle, "SELECT count(*) FROM sqlite_master");

	if (version < 0 || application < 0 || tables < 0)
		return error_set(err, PENSTOCK_E_CORRUPT, "cannot read '%s/meta.db': %s",
			store->root, sqlite3_errmsg(handle));
	if (application == APPLICATION_ID && version == FORMAT_VERSION)
		return 0;
	if (application == APPLICATION_ID && version > FORMAT_VERSION)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot open the store at '%s': its format is %lld, and this penstock "
			"supports formats up to %d; use a newer version",
			store->root, (long long)version, FORMAT_VERSION);
	if (application != APPLICATION_ID && (application != 0 || version != 0 || tables != 0))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot open '%s/meta.db': it is not the database of an object store; name "
			"another --root",
			store->root);
	return upgrade(store, handle, version, err);
}

/* Like check_format(), but never upgrades: a guest only reads the store. */
static int check_guest_format(struct store *store, sqlite3 *handle, struct penstock_error *err)
{
	int64_t version = pragma_value(handle, "PRAGMA user_version");
	int64_t application = pragma_value(handle, "PRAGMA application_id");

	if (application == APPLICATION_ID && version > 0 && version < FORMAT_VERSION)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot read '%s': its store format is %lld, and this penstock needs %d; run "
			"'penstock serve' once to upgrade the store",
			store->root, (long long)version, FORMAT_VERSION);
	return application == 0 && version == 0
		       ? error_set(err, PENSTOCK_E_INVALID,
				 "cannot open '%s/meta.db': it is not the database of an object store",
				 store->root)
		       : check_format(store, handle, err);
}

static int configure(struct store *store, sqlite3 *handle, bool writer, struct penstock_error *err)
{
	sqlite3_extended_result_codes(handle, 1);
	sqlite3_busy_timeout(handle, 10000);
	if (writer && exec(handle, "PRAGMA journal_mode=WAL") != SQLITE_OK)
		goto failed;
	if (exec(handle, store->relaxed ? "PRAGMA synchronous=NORMAL"
					: "PRAGMA synchronous=FULL") != SQLITE_OK ||
		exec(handle, writer ? "PRAGMA cache_size=-16384" : "PRAGMA cache_size=-2048") !=
			SQLITE_OK ||
		exec(handle, "PRAGMA temp_store=MEMORY; PRAGMA journal_size_limit=67108864") !=
			SQLITE_OK ||
		sqlite3_wal_autocheckpoint(handle, CHECKPOINT_PAGES) != SQLITE_OK)
		goto failed;
	if (store->guest)
		return check_guest_format(store, handle, err);
	return writer ? check_format(store, handle, err) : 0;
failed:
	return error_set(err, PENSTOCK_E_IO, "cannot open '%s/meta.db': %s", store->root,
		sqlite3_errmsg(handle));
}

/* Creates the database file with the mode that SQLite then gives to its other files. Closes the
 * file before SQLite opens it: a later close would drop SQLite's locks. */
static int create_private(const char *path, struct penstock_error *err)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0)
		return error_errno(err, errno, "cannot open '%s'", path);
	close(fd);
	return 0;
}

/* Returns true if the database must be opened as immutable. SQLite opens a database without a log
 * only if it can create the log, or if the database is immutable. */
static bool is_immutable(const struct store *store)
{
	return store->guest && faccessat(store->root_fd, ".", W_OK, 0) < 0 && errno == EROFS &&
	       faccessat(store->root_fd, "meta.db-wal", F_OK, 0) < 0;
}

static int open_handle(const struct store *store, const char *path, int flags, sqlite3 **out)
{
	_cleanup_(buf_release) struct buf uri = BUF_INIT(LIMIT_STRING);

	if (!is_immutable(store))
		return sqlite3_open_v2(path, out, flags, NULL);
	buf_add_str(&uri, "file:");
	uri_encode(&uri, path, strlen(path), true);
	buf_add_str(&uri, "?immutable=1");
	return buf_failed(&uri)
		       ? SQLITE_NOMEM
		       : sqlite3_open_v2(buf_str(&uri), out, flags | SQLITE_OPEN_URI, NULL);
}

int db_open(struct store *store, bool writer, struct db **out, struct penstock_error *err)
{
	_cleanup_free_ char *path = path_join(store->root, "meta.db");
	struct db *db = calloc(1, sizeof(*db));
	int flags = SQLITE_OPEN_NOMUTEX |
		    (writer ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY);
	int rc = 0;

	if (!path || !db) {
		free(db);
		return error_memory(err);
	}
	if (writer)
		rc = create_private(path, err);
	if (rc == 0 && open_handle(store, path, flags, &db->handle) != SQLITE_OK)
		rc = error_set(err, PENSTOCK_E_IO, "cannot open '%s': %s", path,
			db->handle ? sqlite3_errmsg(db->handle) : "out of memory");
	if (rc == 0)
		rc = configure(store, db->handle, writer, err);
	if (rc < 0) {
		db_close(db);
		return rc;
	}
	db->store = store;
	*out = db;
	return 0;
}

void db_close(struct db *db)
{
	if (!db)
		return;
	for (size_t i = 0; i < SQL_COUNT_; i++)
		sqlite3_finalize(db->statements[i]);
	sqlite3_close(db->handle);
	free(db);
}

sqlite3_stmt *db_statement(struct db *db, enum db_sql sql)
{
	if (!db->statements[sql] &&
		sqlite3_prepare_v3(db->handle, sql_text[sql], -1, SQLITE_PREPARE_PERSISTENT,
			&db->statements[sql], NULL) != SQLITE_OK)
		return NULL;
	return db->statements[sql];
}

static sqlite3_stmt *bound(struct db *db, enum db_sql sql, const char *types, va_list ap)
{
	sqlite3_stmt *st = db_statement(db, sql);

	for (int i = 1; st && types[i - 1]; i++) {
		const char *text = NULL;
		size_t len;

		switch (types[i - 1]) {
		case 'i':
			sqlite3_bind_int64(st, i, va_arg(ap, int64_t));
			continue;
		case 't':
			sqlite3_bind_text(st, i, va_arg(ap, const char *), -1, SQLITE_STATIC);
			continue;
		case 'k':
			text = va_arg(ap, const char *);
			len = strlen(text);
			break;
		default:
			text = va_arg(ap, const void *);
			len = va_arg(ap, size_t);
			break;
		}
		sqlite3_bind_blob64(st, i, len ? text : "", len, SQLITE_STATIC);
	}
	return st;
}

sqlite3_stmt *db_bound(struct db *db, enum db_sql sql, const char *types, ...)
{
	sqlite3_stmt *st;
	va_list ap;

	va_start(ap, types);
	st = bound(db, sql, types, ap);
	va_end(ap);
	return st;
}

int db_step(struct db *db, sqlite3_stmt *st)
{
	return st ? sqlite3_step(st) : sqlite3_extended_errcode(db->handle);
}

int db_exec(struct db *db, enum db_sql sql, const char *types, ...)
{
	sqlite3_stmt *st;
	va_list ap;

	va_start(ap, types);
	st = bound(db, sql, types, ap);
	va_end(ap);
	return db_run(st);
}

int db_run(sqlite3_stmt *st)
{
	int rc;

	if (!st)
		return SQLITE_ERROR;
	rc = sqlite3_step(st);
	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
	return rc == SQLITE_DONE || rc == SQLITE_ROW ? 0 : rc;
}

/* Returns true if the disk is full. SQLite reports a full disk only for plain writes: not for
 * quotas, syncs, or the growing index of the log. Changes are written to the log, so the errno is
 * that of the log's file. */
static bool is_full(struct db *db, int rc)
{
	sqlite3_file *log = NULL;
	int cause = 0;

	if ((rc & 0xff) == SQLITE_FULL || rc == SQLITE_IOERR_SHMSIZE)
		return true;
	if ((rc != SQLITE_IOERR_WRITE && rc != SQLITE_IOERR_FSYNC &&
		    rc != SQLITE_IOERR_DIR_FSYNC) ||
		sqlite3_file_control(db->handle, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log) !=
			SQLITE_OK ||
		!log || !log->pMethods ||
		log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &cause) != SQLITE_OK)
		return false;
	return cause == ENOSPC || cause == EDQUOT;
}

enum store_status db_error(struct db *db, int rc, const char *what, struct penstock_error *err)
{
	int known = sqlite3_extended_errcode(db->handle);

	if (is_full(db, rc)) {
		error_set(
			err, PENSTOCK_E_NO_SPACE, "cannot %s: the disk of the store is full", what);
		return STORE_NO_SPACE;
	}
	error_set(err,
		(rc & 0xff) == SQLITE_CORRUPT ? PENSTOCK_E_CORRUPT
		: (rc & 0xff) == SQLITE_NOMEM ? PENSTOCK_E_MEMORY
					      : PENSTOCK_E_IO,
		"cannot %s: database error: %s", what,
		(known & 0xff) == (rc & 0xff) ? sqlite3_errmsg(db->handle) : sqlite3_errstr(rc));
	return STORE_FAILED;
}

enum store_status db_failed(struct db *db, const char *what, struct penstock_error *err)
{
	return db_error(db, sqlite3_extended_errcode(db->handle), what, err);
}

void db_column_text(sqlite3_stmt *st, int i, char *out, size_t size)
{
	const char *text = (const char *)sqlite3_column_text(st, i);
	size_t len = text ? (size_t)sqlite3_column_bytes(st, i) : 0;

	if (len >= size)
		len = size - 1;
	if (text)
		memcpy(out, text, len);
	out[len] = '\0';
}

int db_column_add(sqlite3_stmt *st, int i, struct buf *out)
{
	const void *data = sqlite3_column_blob(st, i);

	return buf_add(out, data, (size_t)sqlite3_column_bytes(st, i)) < 0 ? SQLITE_NOMEM : 0;
}

enum store_status db_look_up(struct db *db, sqlite3_stmt *st, enum store_status missing,
	const char *what, struct penstock_error *err)
{
	int rc = db_step(db, st);

	if (rc == SQLITE_ROW)
		return STORE_OK;
	return rc == SQLITE_DONE ? missing : db_error(db, rc, what, err);
}

struct db *db_reader(struct store *store, struct penstock_error *err)
{
	struct db *db;

	pthread_mutex_lock(&store->readers_lock);
	db = store->readers;
	if (db)
		store->readers = db->next;
	pthread_mutex_unlock(&store->readers_lock);
	if (!db && db_open(store, false, &db, err) < 0)
		return NULL;
	return db;
}

void db_reader_donep(struct db **db)
{
	if (!*db)
		return;
	LOCK_SCOPE(&(*db)->store->readers_lock);
	(*db)->next = (*db)->store->readers;
	(*db)->store->readers = *db;
}

/* --- ids of data files and small bodies ------------------------------------------------------ */

/* Ids that are reserved at a time. Half of them are more than a store uses between two sync points,
 * so that with relaxed durability a crash of the machine does not undo the reservation of an id. */
#define RESERVED_IDS (1 << 20)

uint64_t db_next_id(struct store *store)
{
	LOCK_SCOPE(&store->blobs_lock);
	return store->next_id++;
}

int db_reserve_id(struct store *store, uint64_t id)
{
	uint64_t end;
	int rc;

	if (id + RESERVED_IDS / 2 < store->reserved_ids)
		return 0;
	pthread_mutex_lock(&store->blobs_lock);
	end = store->next_id + RESERVED_IDS; /* `id` may be the id of a body that took long */
	pthread_mutex_unlock(&store->blobs_lock);
	rc = db_exec(store->writer, SQL_META_SET, "ti", "next-blob", (int64_t)end);
	if (rc == 0)
		store->reserved_ids = end;
	return rc;
}

int db_add_blob(
	struct store *store, const struct store_piece *file, const void *seal, size_t seal_len)
{
	int rc = db_reserve_id(store, file->blob);

	return rc ? rc
		  : db_exec(store->writer, SQL_BLOB_ADD, "iib", (int64_t)file->blob,
			    (int64_t)file->length, seal, seal_len);
}
