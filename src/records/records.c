#include "records/records.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "records/supervisor.h"

/* Incremented with every change of the tables; see open_database(). */
#define SCHEMA_VERSION 1
/* "Pens" in the header of the file: identifies our database. */
#define APPLICATION_ID	1348824691
#define TEXT_OF(number) #number
#define PRAGMA(name, n) "PRAGMA " name "=" TEXT_OF(n) ";"

enum { BUSY_MS = 20000, CHECKPOINT_PAGES = 250 };

struct records {
	sqlite3 *db;
	char *home;
	char *path;
	bool wal;
	pthread_mutex_t lock; /* one statement at a time */
};

static const char *const state_names[RUN_STATE_COUNT_] = {"queued", "staging", "running",
	"flushing", "succeeded", "failed", "preempted", "stopped", "lost", "moved"};
static const char *const class_names[RUN_CLASS_COUNT_] = {
	"", "workflow", "input", "image", "oom", "user", "output", "node", "preempted", "timeout"};

const char *run_state_name(enum run_state state)
{
	return (unsigned)state < RUN_STATE_COUNT_ ? state_names[state] : "unknown";
}

enum run_state run_state_find(const char *name)
{
	unsigned i = 0;

	while (i < RUN_STATE_COUNT_ && (!name || strcmp(name, state_names[i]) != 0))
		i++;
	return (enum run_state)i;
}

bool records_is_id(const char *text)
{
	return text && strlen(text) == RECORDS_ID_SIZE - 1 &&
	       strspn(text, "0123456789abcdef") == RECORDS_ID_SIZE - 1;
}

const char *run_class_name(enum run_class class)
{
	return (unsigned)class < RUN_CLASS_COUNT_ ? class_names[class] : "unknown";
}

enum run_class run_class_find(const char *name)
{
	unsigned i = RUN_CLASS_COUNT_ - 1;

	while (i > 0 && (!name || strcmp(name, class_names[i]) != 0))
		i--;
	return (enum run_class)i;
}

bool run_state_is_live(enum run_state state)
{
	return state <= RUN_FLUSHING;
}

/* clang-format off */
static const char schema[] =
	PRAGMA("application_id", APPLICATION_ID)
	PRAGMA("user_version", SCHEMA_VERSION)
	"CREATE TABLE runs (id TEXT PRIMARY KEY, name TEXT, workflow TEXT NOT NULL, output TEXT,"
	" created INTEGER NOT NULL);"
	"CREATE TABLE attempts (run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE, n INTEGER NOT NULL,"
	" state INTEGER NOT NULL, class INTEGER NOT NULL DEFAULT 0, exit_code INTEGER NOT NULL DEFAULT 0,"
	" step_code INTEGER NOT NULL DEFAULT 0, unflushed INTEGER NOT NULL DEFAULT 0,"
	" flushed_state INTEGER NOT NULL DEFAULT 0, flushed_class INTEGER NOT NULL DEFAULT 0,"
	" flushed_exit_code INTEGER NOT NULL DEFAULT 0, steps_done INTEGER NOT NULL DEFAULT 0,"
	" started INTEGER NOT NULL, ended INTEGER NOT NULL DEFAULT 0, pid INTEGER NOT NULL,"
	" message TEXT, provenance TEXT, sync_lag INTEGER NOT NULL DEFAULT 0,"
	" sync_waiting INTEGER NOT NULL DEFAULT 0, sync_files INTEGER NOT NULL DEFAULT 0,"
	" sync_bytes INTEGER NOT NULL DEFAULT 0, sync_error TEXT,"
	" sync_at INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (run, n));"
	"CREATE TABLE steps (run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,"
	" attempt INTEGER NOT NULL, step INTEGER NOT NULL, name TEXT NOT NULL,"
	" ended INTEGER NOT NULL, PRIMARY KEY (run, attempt, step));";
/* clang-format on */

/* ---- SQLite ---- */

static enum penstock_code code_of(int code)
{
	switch (code) {
	case SQLITE_FULL:
		return PENSTOCK_E_NO_SPACE;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return PENSTOCK_E_CORRUPT;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return PENSTOCK_E_UNAVAILABLE;
	case SQLITE_READONLY:
	case SQLITE_CANTOPEN:
	case SQLITE_PERM:
		return PENSTOCK_E_PERMISSION;
	case SQLITE_NOMEM:
		return PENSTOCK_E_MEMORY;
	default:
		return PENSTOCK_E_IO;
	}
}

static int raise_sqlite(const struct records *records, const char *what, struct penstock_error *err)
{
	enum penstock_code code = code_of(sqlite3_errcode(records->db));
	const char *why = sqlite3_errmsg(records->db), *advice = "";
	int errnum = sqlite3_system_errno(records->db);

	/* SQLite reports missing permissions on the directory as an I/O error. */
	if (code == PENSTOCK_E_IO && error_code_of_errno(errnum) == PENSTOCK_E_PERMISSION) {
		code = PENSTOCK_E_PERMISSION;
		why = strerror(errnum);
	}
	if (code == PENSTOCK_E_PERMISSION)
		advice = "; set PENSTOCK_HOME to a writable directory";
	else if (code == PENSTOCK_E_CORRUPT)
		advice = "; move the file away to start with new records (the directories of "
			 "runs are kept), or set PENSTOCK_HOME";
	else if (code == PENSTOCK_E_UNAVAILABLE)
		advice = "; another process uses the file; retry";
	return error_set(err, code, "cannot %s in '%s': %s%s", what, records->path, why, advice);
}

static int execute(struct records *records, const char *sql, struct penstock_error *err)
{
	return sqlite3_exec(records->db, sql, NULL, NULL, NULL) == SQLITE_OK
		       ? 0
		       : raise_sqlite(records, "write the records", err);
}

static void finalizep(sqlite3_stmt **statement)
{
	sqlite3_finalize(*statement);
}
#define _cleanup_statement_ _cleanup_(finalizep)

/* Prepares `sql`, and binds arguments by `types`, a letter each: s (may be NULL), i (int64_t). */
static sqlite3_stmt *vprepare(
	struct records *records, const char *sql, const char *types, va_list ap)
{
	sqlite3_stmt *statement = NULL;

	if (sqlite3_prepare_v2(records->db, sql, -1, &statement, NULL) != SQLITE_OK)
		return NULL;
	for (int i = 1; *types; types++, i++) {
		if (*types == 's')
			sqlite3_bind_text(
				statement, i, va_arg(ap, const char *), -1, SQLITE_TRANSIENT);
		else
			sqlite3_bind_int64(statement, i, va_arg(ap, int64_t));
	}
	return statement;
}

static sqlite3_stmt *prepare(struct records *records, const char *sql, const char *types, ...)
{
	sqlite3_stmt *statement;
	va_list ap;

	va_start(ap, types);
	statement = vprepare(records, sql, types, ap);
	va_end(ap);
	return statement;
}

/* Runs a statement that returns no rows. */
static int change(struct records *records, struct penstock_error *err, const char *sql,
	const char *types, ...)
{
	_cleanup_statement_ sqlite3_stmt *statement = NULL;
	va_list ap;

	va_start(ap, types);
	statement = vprepare(records, sql, types, ap);
	va_end(ap);
	if (!statement || sqlite3_step(statement) != SQLITE_DONE)
		return raise_sqlite(records, "write the records", err);
	return 0;
}

/* Ends a transaction: commits if its result `r` is 0, else rolls back. */
static int finish(struct records *records, int r, struct penstock_error *err)
{
	if (r == 0)
		r = execute(records, "COMMIT", err);
	if (r < 0)
		execute(records, "ROLLBACK", NULL);
	return r;
}

static char *column_text(sqlite3_stmt *statement, int i)
{
	const char *text = (const char *)sqlite3_column_text(statement, i);

	return text ? strdup(text) : NULL;
}

/* ---- opening ---- */

static int read_number(
	struct records *records, const char *sql, int64_t *number, struct penstock_error *err)
{
	_cleanup_statement_ sqlite3_stmt *s = prepare(records, sql, "");

	if (!s || sqlite3_step(s) != SQLITE_ROW)
		return raise_sqlite(records, "read the records", err);
	*number = sqlite3_column_int64(s, 0);
	return 0;
}

/* Accepts an empty file; rejects databases of other programs. */
static int check_ours(struct records *records, struct penstock_error *err)
{
	int64_t id = 0;
	int64_t tables = 0;
	int r = read_number(records, "PRAGMA application_id", &id, err);

	if (r == 0)
		r = read_number(records, "SELECT count(*) FROM sqlite_master", &tables, err);
	if (r == 0 && id != APPLICATION_ID && tables > 0)
		r = error_set(err, PENSTOCK_E_CORRUPT,
			"cannot use '%s': another program made it; move it away, or set PENSTOCK_HOME",
			records->path);
	return r;
}

/*
 * Sets the durability of the following transactions. Facts that must not be lost (the start and the
 * end of an attempt) are synced; other facts of the last moments may be missing after a power
 * failure, in which case the run is lost anyway.
 */
static int set_durable(struct records *records, bool durable, struct penstock_error *err)
{
	return execute(records,
		durable || !records->wal ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL",
		err);
}

/* The first process sets the journal mode. The change needs exclusive access, for which SQLite does
 * not wait, so try again. */
static int set_journal(struct records *records, struct penstock_error *err)
{
	const char *sql = records->wal ? "PRAGMA journal_mode=WAL" : "PRAGMA journal_mode=DELETE";
	int64_t until = clock_monotonic_ms() + BUSY_MS;

	while (sqlite3_exec(records->db, sql, NULL, NULL, NULL) != SQLITE_OK) {
		if (sqlite3_errcode(records->db) != SQLITE_BUSY || clock_monotonic_ms() > until)
			return raise_sqlite(records, "open the records", err);
		clock_sleep_ms(5);
	}
	return 0;
}

static int open_database(struct records *records, struct penstock_error *err)
{
	/* SQLite would create the file with the mode 0644. */
	int fd = open(records->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return error_errno(err, errno, "cannot open '%s'", records->path);
	close(fd);
	if (sqlite3_open_v2(records->path, &records->db,
		    SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX, NULL) != SQLITE_OK)
		return raise_sqlite(records, "open the records", err);
	sqlite3_busy_timeout(records->db, BUSY_MS);
	/* Keep the write-ahead log when the last connection closes: creating it again costs every
	 * run five syncs. */
	sqlite3_db_config(records->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	sqlite3_wal_autocheckpoint(records->db, CHECKPOINT_PAGES);
	records->wal = !fs_is_network(records->home);
	r = set_journal(records, err);
	if (r == 0)
		r = set_durable(records, false, err);
	if (r == 0)
		r = execute(records, "PRAGMA foreign_keys=ON", err);
	if (r < 0)
		return r;
	/* Later versions add their statements here, one step for each version from n to n + 1, and
	 * never change an old step. */
	int64_t version = 0;
	r = read_number(records, "PRAGMA user_version", &version, err);
	if (r == 0 && version > 0)
		r = check_ours(records, err);
	if (r < 0 || version == SCHEMA_VERSION)
		return r;
	if (version > SCHEMA_VERSION)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot use '%s': a newer penstock wrote it (format %d; this version "
			"supports %d); use the newer version, or set PENSTOCK_HOME",
			records->path, (int)version, SCHEMA_VERSION);
	r = execute(records, "BEGIN IMMEDIATE", err);
	if (r < 0)
		return r;
	/* Another process may have created the tables meanwhile. */
	r = read_number(records, "PRAGMA user_version", &version, err);
	if (r == 0 && version == 0)
		r = check_ours(records, err);
	if (r == 0 && version == 0)
		r = execute(records, schema, err);
	return finish(records, r, err);
}

int records_open(struct records **out, const char *home, struct penstock_error *err)
{
	struct records *records = calloc(1, sizeof(*records));
	int r;

	if (!records)
		return error_memory(err);
	pthread_mutex_init(&records->lock, NULL);
	records->home = strdup(home);
	records->path = path_join(home, "runs.db");
	r = records->home && records->path ? open_database(records, err) : error_memory(err);
	if (r < 0) {
		records_free(records);
		return r;
	}
	*out = records;
	return 0;
}

void records_free(struct records *records)
{
	if (!records)
		return;
	sqlite3_close(records->db);
	pthread_mutex_destroy(&records->lock);
	free(records->home);
	free(records->path);
	free(records);
}

void records_freep(struct records **records)
{
	records_free(*records);
	*records = NULL;
}

/* ---- writing ---- */

static int insert_attempt(struct records *records, const struct records_begin *b, int *attempt,
	struct penstock_error *err)
{
	int64_t now = clock_wall_ns();
	_cleanup_statement_ sqlite3_stmt *last = NULL;
	int r = change(records, err,
		"INSERT INTO runs (id, name, workflow, output, created) VALUES (?1, ?2, ?3, ?4, ?5)"
		" ON CONFLICT (id) DO UPDATE SET name = ?2, workflow = ?3, output = ?4",
		"ssssi", b->id, b->name, b->workflow, b->output, now);

	if (r == 0)
		r = change(records, err,
			"UPDATE attempts SET state = ?2, ended = ?3 WHERE run = ?1 AND state <= ?4",
			"siii", b->id, (int64_t)RUN_LOST, now, (int64_t)RUN_FLUSHING);
	if (r < 0)
		return r;
	last = prepare(
		records, "SELECT coalesce(max(n), 0) FROM attempts WHERE run = ?1", "s", b->id);
	if (!last || sqlite3_step(last) != SQLITE_ROW)
		return raise_sqlite(records, "read the records", err);
	*attempt = sqlite3_column_int(last, 0) + 1;
	return change(records, err,
		"INSERT INTO attempts (run, n, state, started, pid, provenance, steps_done)"
		" VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
		"siiiisi", b->id, (int64_t)*attempt, (int64_t)RUN_QUEUED, now, (int64_t)b->pid,
		b->provenance, (int64_t)b->steps_done);
}

int records_begin(struct records *records, const struct records_begin *begin, int *attempt,
	struct penstock_error *err)
{
	int n = 0;
	int r;

	LOCK_SCOPE(&records->lock);
	r = set_durable(records, true, err);
	if (r == 0)
		r = execute(records, "BEGIN IMMEDIATE", err);
	if (r < 0)
		return r;
	r = finish(records, insert_attempt(records, begin, &n, err), err);
	if (r == 0)
		*attempt = n;
	set_durable(records, false, NULL);
	return r;
}

int records_withdraw(
	struct records *records, const char *id, int attempt, struct penstock_error *err)
{
	LOCK_SCOPE(&records->lock);
	return change(records, err,
		"DELETE FROM attempts WHERE run = ?1 AND n = ?2 AND state = ?3 AND pid = 0", "sii",
		id, (int64_t)attempt, (int64_t)RUN_QUEUED);
}

int records_drop(struct records *records, const char *id, int attempt, struct penstock_error *err)
{
	int r;

	LOCK_SCOPE(&records->lock);
	r = execute(records, "BEGIN IMMEDIATE", err);
	if (r < 0)
		return r;
	r = change(records, err, "DELETE FROM attempts WHERE run = ?1 AND n = ?2", "si", id,
		(int64_t)attempt);
	if (r == 0)
		r = change(records, err,
			"DELETE FROM runs WHERE id = ?1 AND NOT EXISTS"
			" (SELECT 1 FROM attempts WHERE run = ?1)",
			"s", id);
	return finish(records, r, err);
}

int records_set_state(struct records *records, const char *id, int attempt, enum run_state state,
	struct penstock_error *err)
{
	int r = 0;

	LOCK_SCOPE(&records->lock);
	/* A live state only moves forward. An attempt starts when it leaves the queue. */
	if (run_state_is_live(state))
		r = change(records, err,
			"UPDATE attempts SET state = ?3,"
			" started = CASE WHEN state = ?4 AND ?3 > ?4 THEN ?5 ELSE started END"
			" WHERE run = ?1 AND n = ?2 AND state <= ?3",
			"siiii", id, (int64_t)attempt, (int64_t)state, (int64_t)RUN_QUEUED,
			clock_wall_ns());
	if (r < 0)
		return r;
	if (!run_state_is_live(state) || sqlite3_changes(records->db) != 1)
		return error_set(err, PENSTOCK_E_INTERNAL, "cannot set attempt %d of '%s' to %s",
			attempt, id, run_state_name(state));
	return 0;
}

int records_set_provenance(struct records *records, const char *id, int attempt,
	const char *provenance, struct penstock_error *err)
{
	LOCK_SCOPE(&records->lock);
	return change(records, err, "UPDATE attempts SET provenance = ?3 WHERE run = ?1 AND n = ?2",
		"sis", id, (int64_t)attempt, provenance);
}

int records_set_sync(struct records *records, const char *id, int attempt,
	const struct records_sync *sync, struct penstock_error *err)
{
	const char *last_error = sync->last_error && *sync->last_error ? sync->last_error : NULL;

	LOCK_SCOPE(&records->lock);
	return change(records, err,
		"UPDATE attempts SET sync_lag = ?3, sync_waiting = ?4, sync_files = ?5, sync_bytes "
		"= ?6,"
		" sync_error = ?7, sync_at = ?8 WHERE run = ?1 AND n = ?2",
		"siiiiisi", id, (int64_t)attempt, sync->lag_ms, (int64_t)sync->bytes_waiting,
		(int64_t)sync->files_published, (int64_t)sync->bytes_published, last_error,
		clock_wall_ns());
}

int records_step_done(struct records *records, const char *id, int attempt, int step,
	const char *name, struct penstock_error *err)
{
	int r;

	LOCK_SCOPE(&records->lock);
	r = execute(records, "BEGIN IMMEDIATE", err);
	if (r < 0)
		return r;
	r = change(records, err,
		"INSERT OR REPLACE INTO steps (run, attempt, step, name, ended)"
		" VALUES (?1, ?2, ?3, ?4, ?5)",
		"siisi", id, (int64_t)attempt, (int64_t)step, name, clock_wall_ns());
	if (r == 0)
		r = change(records, err,
			"UPDATE attempts SET steps_done = max(steps_done, ?3)"
			" WHERE run = ?1 AND n = ?2",
			"sii", id, (int64_t)attempt, (int64_t)step + 1);
	return finish(records, r, err);
}

int records_renumber(
	struct records *records, const char *id, int attempt, int to, struct penstock_error *err)
{
	LOCK_SCOPE(&records->lock);
	return change(records, err, "UPDATE attempts SET n = ?3 WHERE run = ?1 AND n = ?2", "sii",
		id, (int64_t)attempt, (int64_t)to);
}

int records_forget_steps(
	struct records *records, const char *id, int attempt, struct penstock_error *err)
{
	LOCK_SCOPE(&records->lock);
	return change(records, err, "UPDATE attempts SET steps_done = 0 WHERE run = ?1 AND n = ?2",
		"si", id, (int64_t)attempt);
}

/* Ends a durable change with the result `r`. Fails with `refusal` if no row was changed. */
static int changed_one(struct records *records, int r, const char *id, int attempt,
	const char *refusal, struct penstock_error *err)
{
	int changed = sqlite3_changes(records->db);

	set_durable(records, false, NULL);
	if (r < 0 || changed == 1)
		return r;
	return error_set(err, PENSTOCK_E_INTERNAL, "cannot end attempt %d of '%s': it %s", attempt,
		id, refusal);
}

int records_end(struct records *records, const char *id, int attempt, const struct records_end *end,
	struct penstock_error *err)
{
	int r;

	if (run_state_is_live(end->state) || end->state >= RUN_MOVED)
		return error_set(err, PENSTOCK_E_INTERNAL, "cannot end attempt %d of '%s' as %s",
			attempt, id, run_state_name(end->state));
	LOCK_SCOPE(&records->lock);
	r = set_durable(records, true, err);
	/* An end is final, except that a flush may complete it. */
	if (r == 0)
		r = change(records, err,
			"UPDATE attempts SET state = ?3, class = ?4, exit_code = ?5, step_code = ?6,"
			" unflushed = ?7, message = ?8, flushed_state = ?9, flushed_class = ?10,"
			" flushed_exit_code = ?11, ended = ?12"
			" WHERE run = ?1 AND n = ?2 AND (state <= ?13 OR unflushed)",
			"siiiiiisiiiii", id, (int64_t)attempt, (int64_t)end->state,
			(int64_t)end->class, (int64_t)end->exit_code, (int64_t)end->step_code,
			(int64_t)end->unflushed, end->message, (int64_t)end->flushed_state,
			(int64_t)end->flushed_class, (int64_t)end->flushed_exit_code,
			clock_wall_ns(), (int64_t)RUN_FLUSHING);
	return changed_one(records, r, id, attempt, "has ended already", err);
}

int records_end_waiting(struct records *records, const char *id, int attempt,
	const struct records_end *end, struct penstock_error *err)
{
	int r;

	LOCK_SCOPE(&records->lock);
	r = set_durable(records, true, err);
	if (r == 0)
		r = change(records, err,
			"UPDATE attempts SET state = ?3, class = ?4, exit_code = ?5, message = ?6,"
			" flushed_state = ?3, flushed_class = ?4, flushed_exit_code = ?5, ended = ?7"
			" WHERE run = ?1 AND n = ?2 AND (state <= ?8 OR state IN (?9, ?10))"
			" AND n = (SELECT max(n) FROM attempts WHERE run = ?1)",
			"siiiisiiii", id, (int64_t)attempt, (int64_t)end->state,
			(int64_t)end->class, (int64_t)end->exit_code, end->message, clock_wall_ns(),
			(int64_t)RUN_FLUSHING, (int64_t)RUN_PREEMPTED, (int64_t)RUN_LOST);
	return changed_one(records, r, id, attempt, "is not waiting to be resumed", err);
}

int records_remove(struct records *records, const char *id, struct penstock_error *err)
{
	int r;

	LOCK_SCOPE(&records->lock);
	r = change(records, err, "DELETE FROM runs WHERE id = ?1", "s", id);
	if (r == 0 && sqlite3_changes(records->db) == 0)
		r = error_set(err, PENSTOCK_E_NOT_FOUND, "cannot find run '%s'", id);
	return r;
}

/* ---- reading ---- */

#define ATTEMPT_COLUMNS                                                                            \
	"a.n, a.state, a.class, a.exit_code, a.step_code, a.unflushed, a.flushed_state,"           \
	" a.flushed_class, a.flushed_exit_code, a.steps_done, a.started, a.ended, a.pid, "         \
	"a.message,"                                                                               \
	" a.provenance, a.sync_lag, a.sync_waiting, a.sync_files, a.sync_bytes, a.sync_error, "    \
	"a.sync_at"
enum { N_ATTEMPT_COLUMNS = 21 };

static void read_attempt(
	const struct records *records, const char *id, sqlite3_stmt *s, struct records_attempt *a)
{
	*a = (struct records_attempt){
		.attempt = sqlite3_column_int(s, 0),
		.state = (enum run_state)sqlite3_column_int(s, 1),
		.class = (enum run_class)sqlite3_column_int(s, 2),
		.exit_code = sqlite3_column_int(s, 3),
		.step_code = sqlite3_column_int(s, 4),
		.unflushed = sqlite3_column_int(s, 5) != 0,
		.flushed_state = (enum run_state)sqlite3_column_int(s, 6),
		.flushed_class = (enum run_class)sqlite3_column_int(s, 7),
		.flushed_exit_code = sqlite3_column_int(s, 8),
		.steps_done = sqlite3_column_int(s, 9),
		.started_ns = sqlite3_column_int64(s, 10),
		.ended_ns = sqlite3_column_int64(s, 11),
		.pid = sqlite3_column_int(s, 12),
		.message = column_text(s, 13),
		.provenance = column_text(s, 14),
		.sync_lag_ms = sqlite3_column_int64(s, 15),
		.sync_bytes_waiting = (uint64_t)sqlite3_column_int64(s, 16),
		.sync_files_published = (uint64_t)sqlite3_column_int64(s, 17),
		.sync_bytes_published = (uint64_t)sqlite3_column_int64(s, 18),
		.sync_error = column_text(s, 19),
		.sync_at_ns = sqlite3_column_int64(s, 20),
	};
	if (run_state_is_live(a->state) && !supervisor_lives(records->home, id)) {
		a->state = RUN_LOST;
		a->heard_ns = a->sync_at_ns;
	}
}

void records_attempt_release(struct records_attempt *attempt)
{
	if (!attempt)
		return;
	free(attempt->message);
	free(attempt->provenance);
	free(attempt->sync_error);
	*attempt = (struct records_attempt){0};
}

void records_run_release(struct records_run *run)
{
	if (!run)
		return;
	free(run->name);
	free(run->workflow);
	free(run->output);
	records_attempt_release(&run->last);
	*run = (struct records_run){0};
}

int records_last_attempt(struct records *records, const char *id, struct records_attempt *out,
	struct penstock_error *err)
{
	int code;

	LOCK_SCOPE(&records->lock);
	_cleanup_statement_ sqlite3_stmt *s = prepare(records,
		"SELECT " ATTEMPT_COLUMNS
		" FROM attempts a WHERE a.run = ?1 ORDER BY a.n DESC LIMIT 1",
		"s", id);
	code = s ? sqlite3_step(s) : SQLITE_ERROR;
	if (code == SQLITE_DONE)
		return error_set(err, PENSTOCK_E_NOT_FOUND, "cannot find run '%s'", id);
	if (code != SQLITE_ROW)
		return raise_sqlite(records, "read the records", err);
	read_attempt(records, id, s, out);
	return 0;
}

bool records_before_flush(struct records *records, const char *id)
{
	struct records_attempt last = {0};
	bool early = records_last_attempt(records, id, &last, NULL) == 0 &&
		     last.state < RUN_FLUSHING;

	records_attempt_release(&last);
	return early;
}

#define RUN_QUERY                                                                                  \
	"SELECT " ATTEMPT_COLUMNS ", r.id, r.name, r.workflow, r.output, r.created FROM runs r"    \
	" JOIN attempts a ON a.run = r.id AND a.n = (SELECT max(n) FROM attempts WHERE run = "     \
	"r.id)"

static int read_run(const struct records *records, sqlite3_stmt *s, struct records_run *run,
	struct penstock_error *err)
{
	*run = (struct records_run){0};
	snprintf(run->id, sizeof(run->id), "%s",
		(const char *)sqlite3_column_text(s, N_ATTEMPT_COLUMNS));
	run->name = column_text(s, N_ATTEMPT_COLUMNS + 1);
	run->workflow = column_text(s, N_ATTEMPT_COLUMNS + 2);
	run->output = column_text(s, N_ATTEMPT_COLUMNS + 3);
	run->created_ns = sqlite3_column_int64(s, N_ATTEMPT_COLUMNS + 4);
	read_attempt(records, run->id, s, &run->last);
	if (!run->workflow) {
		records_run_release(run);
		return error_memory(err);
	}
	return 0;
}

int records_find(struct records *records, const char *word, struct records_run *out,
	struct penstock_error *err)
{
	enum { BY_ID, BY_NAME, BY_PREFIX, WAYS };
	static const char *const queries[WAYS] = {RUN_QUERY " WHERE r.id = ?1",
		RUN_QUERY " WHERE r.name = ?1 ORDER BY a.rowid DESC",
		RUN_QUERY " WHERE r.id GLOB ?1 || '*'"};
	bool prefix = strlen(word) >= 4 && strspn(word, "0123456789abcdef") == strlen(word);

	LOCK_SCOPE(&records->lock);
	for (int way = BY_ID; way < (prefix ? WAYS : BY_PREFIX); way++) {
		_cleanup_statement_ sqlite3_stmt *s = prepare(records, queries[way], "s", word);
		int code = s ? sqlite3_step(s) : SQLITE_ERROR;
		int r;

		if (code == SQLITE_DONE)
			continue;
		if (code != SQLITE_ROW)
			return raise_sqlite(records, "read the records", err);
		r = read_run(records, s, out, err);
		if (r < 0 || way != BY_PREFIX || sqlite3_step(s) != SQLITE_ROW)
			return r;
		records_run_release(out);
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot choose a run: several ids begin with '%s'; give more digits", word);
	}
	return error_set(err, PENSTOCK_E_NOT_FOUND,
		"cannot find run '%s'; 'penstock ps -a' lists the runs", word);
}

int records_list(struct records *records, int (*fn)(void *cookie, const struct records_run *run),
	void *cookie, struct penstock_error *err)
{
	int code;

	LOCK_SCOPE(&records->lock);
	_cleanup_statement_ sqlite3_stmt *s = prepare(
		records, RUN_QUERY " ORDER BY a.rowid DESC", "");
	while (s && (code = sqlite3_step(s)) == SQLITE_ROW) {
		struct records_run run;
		int stop;

		if (read_run(records, s, &run, err) < 0)
			return error_memory(err);
		stop = fn(cookie, &run);
		records_run_release(&run);
		if (stop)
			return 0;
	}
	return s && code == SQLITE_DONE ? 0 : raise_sqlite(records, "read the records", err);
}

int records_attempts(struct records *records, const char *id,
	int (*fn)(void *cookie, const struct records_attempt *attempt), void *cookie,
	struct penstock_error *err)
{
	int code;

	LOCK_SCOPE(&records->lock);
	_cleanup_statement_ sqlite3_stmt *s = prepare(records,
		"SELECT " ATTEMPT_COLUMNS " FROM attempts a WHERE a.run = ?1 ORDER BY a.n", "s",
		id);
	while (s && (code = sqlite3_step(s)) == SQLITE_ROW) {
		struct records_attempt attempt;
		int stop;

		read_attempt(records, id, s, &attempt);
		stop = fn(cookie, &attempt);
		records_attempt_release(&attempt);
		if (stop)
			return 0;
	}
	return s && code == SQLITE_DONE ? 0 : raise_sqlite(records, "read the records", err);
}

int records_steps(struct records *records, const char *id,
	int (*fn)(void *cookie, const struct records_step *step), void *cookie,
	struct penstock_error *err)
{
	int code;

	LOCK_SCOPE(&records->lock);
	_cleanup_statement_ sqlite3_stmt *s = prepare(records,
		"SELECT attempt, step, name, ended FROM steps WHERE run = ?1 ORDER BY attempt, "
		"step",
		"s", id);
	while (s && (code = sqlite3_step(s)) == SQLITE_ROW) {
		const struct records_step step = {
			.attempt = sqlite3_column_int(s, 0),
			.step = sqlite3_column_int(s, 1),
			.name = (const char *)sqlite3_column_text(s, 2),
			.ended_ns = sqlite3_column_int64(s, 3),
		};

		if (fn(cookie, &step))
			return 0;
	}
	return s && code == SQLITE_DONE ? 0 : raise_sqlite(records, "read the records", err);
}
