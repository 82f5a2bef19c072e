/* Metrics of MLflow's database mlflow.db, a file of SQLite. The file is untrusted: SQLite reads a
 * copy in memory, without views and triggers, and within limits. */
#include <math.h>
#include <sqlite3.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "metrics/internal.h"

enum {
	STEP_OPS = 1000, /* instructions between two calls of count_steps() */
	/* maximum number of these calls: 30 million instructions; sorting 300,000 rows takes 10
	 * million */
	STEPS = 30000,
	HEADER_WRITES = 18, /* offset of two bytes that are 2 if there is a write-ahead log */
	LONGEST_VALUE = 64 * 1024,
};

/* Limit of SQLite's memory in this process while a database is read: a crafted file can cause a
 * sort of any size. */
#define MOST_MEMORY (256 * MIB)

#define ROWS                                                                                       \
	"SELECT (SELECT experiment_id FROM runs r WHERE r.run_uuid = m.run_uuid LIMIT 1), "        \
	"m.run_uuid, m.key, m.step, m.timestamp, m.value, m.is_nan FROM metrics m "                \
	"WHERE m.run_uuid IN (SELECT run_uuid FROM runs) "                                         \
	"ORDER BY m.run_uuid, m.key, m.timestamp, m.step, m.value"

static void closep(sqlite3 **db)
{
	sqlite3_close_v2(*db);
}

static void finalizep(sqlite3_stmt **rows)
{
	sqlite3_finalize(*rows);
}

static int count_steps(void *cookie)
{
	int *steps = cookie;

	return ++*steps > STEPS;
}

static const char *text_of(sqlite3_stmt *rows, int column)
{
	const unsigned char *text = sqlite3_column_text(rows, column);

	return text ? (const char *)text : "";
}

static int add_row(struct metrics_feed *feed, sqlite3_stmt *rows, struct penstock_error *err)
{
	_cleanup_free_ char *name = str_printf("mlflow.db/%.*s/%.*s/%.*s", LIMIT_METRICS_NAME,
		text_of(rows, 0), LIMIT_METRICS_NAME, text_of(rows, 1), LIMIT_METRICS_NAME,
		text_of(rows, 2));
	struct metrics_point point = {.step = sqlite3_column_int64(rows, 3),
		.time_ms = sqlite3_column_int64(rows, 4),
		.value = sqlite3_column_int(rows, 6) ? NAN : sqlite3_column_double(rows, 5)};

	if (!name)
		return error_memory(err);
	if (point.time_ms < 0 || point.time_ms > METRICS_TIME_MAX)
		point.time_ms = 0;
	return metrics_feed_point(feed, name, &point, err);
}

/* Returns a code of SQLite. If a point cannot be added, `*r` gets a negative code. */
static int read_rows(struct metrics_feed *feed, sqlite3 *db, int *r, struct penstock_error *err)
{
	_cleanup_(finalizep) sqlite3_stmt *rows = NULL;
	int steps = 0, code;

	sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
	sqlite3_limit(db, SQLITE_LIMIT_LENGTH, LONGEST_VALUE);
	sqlite3_progress_handler(db, STEP_OPS, count_steps, &steps);
	code = sqlite3_exec(
		db, "PRAGMA cell_size_check = 1; PRAGMA temp_store = MEMORY", NULL, NULL, NULL);
	if (code == SQLITE_OK)
		code = sqlite3_prepare_v2(db, ROWS, -1, &rows, NULL);
	while (*r == 0 && (code == SQLITE_OK || code == SQLITE_ROW)) {
		code = sqlite3_step(rows);
		if (code == SQLITE_ROW)
			*r = add_row(feed, rows, err);
	}
	return code;
}

static int read_database(struct metrics_feed *feed, struct penstock_error *err)
{
	_cleanup_(closep) sqlite3 *db = NULL;
	unsigned char *bytes = (unsigned char *)feed->pending.data;
	sqlite3_int64 len = (sqlite3_int64)feed->pending.len;
	int code = sqlite3_open_v2(
		":memory:", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY, NULL);
	sqlite3_int64 before = sqlite3_hard_heap_limit64((sqlite3_int64)MOST_MEMORY);
	int r = 0;

	/* Change the mode in the header: a copy in memory cannot have a write-ahead log. */
	if (len > HEADER_WRITES + 1)
		bytes[HEADER_WRITES] = bytes[HEADER_WRITES + 1] = 1;
	if (code == SQLITE_OK)
		code = sqlite3_deserialize(
			db, "main", bytes, len, len, SQLITE_DESERIALIZE_READONLY);
	if (code == SQLITE_OK)
		code = read_rows(feed, db, &r, err);
	sqlite3_hard_heap_limit64(before);
	if (r == 0 && code != SQLITE_DONE)
		metrics_problem(feed, 0, "the database cannot be read: %s", sqlite3_errstr(code));
	return r;
}

static ssize_t take(struct metrics_feed *feed, const char *data, size_t len, bool end,
	struct penstock_error *err)
{
	int r;

	(void)data; /* at the end all bytes are in `pending` */
	if (metrics_too_large(feed, len) || !end || !len)
		return 0;
	r = read_database(feed, err);
	return r < 0 ? r : (ssize_t)len;
}

const struct metrics_format metrics_mlflow_db = {
	.take = take, .locks = true, .most = LIMIT_METRICS_DATABASE};
