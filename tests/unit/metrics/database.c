/* MLflow's database, which is read with SQLite. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/limits.h"
#include "metrics/read.h"

#define TABLES                                                                                     \
	"CREATE TABLE runs (run_uuid TEXT, experiment_id INTEGER);"                                \
	"CREATE TABLE metrics (key TEXT, value FLOAT, timestamp BIGINT, run_uuid TEXT,"            \
	" step BIGINT, is_nan BOOLEAN);"
#define POINTS                                                                                     \
	"INSERT INTO runs VALUES ('ab', 7);"                                                       \
	"INSERT INTO metrics VALUES ('loss', 0.25, 1700000002000, 'ab', 2, 0),"                    \
	" ('loss', 0.5, 1700000001000, 'ab', 1, 0), ('val/acc', 0, -5, 'ab', 0, 1),"               \
	" ('lost', 1, 1, 'no run', 1, 0);"

struct result {
	struct metrics metrics;
	char problem[160];
};

static void read_bytes(struct result *out, const void *data, size_t len)
{
	struct metrics_feed feed;

	*out = (struct result){0};
	assert_int_equal(0, metrics_feed_init(&feed, &out->metrics, "d/mlflow.db", NULL));
	assert_non_null(feed.format);
	for (size_t at = 0; at < len; at += 1000)
		assert_int_equal(0, metrics_feed_add(&feed, (const char *)data + at,
					    len - at < 1000 ? len - at : 1000, NULL));
	assert_int_equal(0, metrics_feed_end(&feed, NULL));
	snprintf(out->problem, sizeof(out->problem), "%s", feed.problem);
	metrics_feed_release(&feed);
}

static void run_sql(sqlite3 *db, const char *sql)
{
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		fail_msg("%s", sqlite3_errmsg(db));
}

/* Reads the database that the statements create. If `wal`, the database is marked as one with a
 * write-ahead log. */
static void read_sql(struct result *out, const char *sql, bool wal)
{
	unsigned char *bytes;
	sqlite3_int64 len;
	sqlite3 *db;

	assert_int_equal(SQLITE_OK, sqlite3_open(":memory:", &db));
	run_sql(db, sql);
	bytes = sqlite3_serialize(db, "main", &len, 0);
	assert_non_null(bytes);
	if (wal)
		bytes[18] = bytes[19] = 2;
	read_bytes(out, bytes, (size_t)len);
	sqlite3_free(bytes);
	sqlite3_close(db);
}

static void points_are_read_in_the_order_of_their_times(void **state)
{
	struct result r;

	(void)state;
	for (int wal = 0; wal < 2; wal++) {
		const struct metrics_series *loss, *acc;

		read_sql(&r, TABLES POINTS, wal);
		assert_string_equal("", r.problem);
		assert_int_equal(2, r.metrics.n);
		loss = metrics_find(&r.metrics, "d/mlflow.db/7/ab/loss");
		acc = metrics_find(&r.metrics, "d/mlflow.db/7/ab/val/acc");
		assert_int_equal(2, loss->n);
		assert_int_equal(1, loss->points[0].step);
		assert_int_equal(1700000001000, loss->points[0].time_ms);
		assert_true(loss->points[1].value == 0.25);
		assert_true(isnan(acc->points[0].value));
		assert_int_equal(0, acc->points[0].time_ms);
		metrics_release(&r.metrics);
	}
}

/* The file may be from another user, so no content may cause more than an error. */
static void other_databases_are_a_problem(void **state)
{
	static const char *const cases[] = {
		"CREATE TABLE metrics (key TEXT)",
		"CREATE TABLE runs (run_uuid TEXT, experiment_id INTEGER);"
		"CREATE TABLE m (key, value, timestamp, run_uuid, step, is_nan);"
		"CREATE VIEW metrics AS SELECT * FROM m",
		/* The join of 40,000 runs and 40,000 points would take too long. */
		TABLES "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 40000)"
		       "INSERT INTO runs SELECT 'r' || i, i FROM n;"
		       "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 40000)"
		       "INSERT INTO metrics SELECT 'm', 1, 1, 'r40000', i, 0 FROM n",
	};
	static const char text[] = "SQLite format 3, but not";
	_cleanup_free_ char *large = calloc(1, LIMIT_METRICS_DATABASE + 1);
	struct result r;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		read_sql(&r, cases[i], false);
		assert_string_not_equal("", r.problem);
		assert_int_equal(0, r.metrics.n);
		metrics_release(&r.metrics);
	}
	read_bytes(&r, text, sizeof(text));
	assert_string_not_equal("", r.problem);
	read_bytes(&r, "", 0);
	assert_string_equal("", r.problem);
	read_bytes(&r, large, LIMIT_METRICS_DATABASE + 1);
	assert_non_null(strstr(r.problem, "62 MiB"));
}

static void note(void *cookie, const char *path, const char *problem)
{
	assert_string_equal("mlflow.db", path);
	snprintf(cookie, 160, "%s", problem);
}

/* A half-written change would look like damage or like other points. */
static void a_database_that_is_being_changed_is_not_read(void **state)
{
	char dir[] = "/tmp/mlflow-db-XXXXXX", problem[160] = "";
	_cleanup_free_ char *path = NULL;
	struct metrics metrics = {0};
	sqlite3 *db;

	(void)state;
	assert_non_null(mkdtemp(dir));
	path = path_join(dir, "mlflow.db");
	assert_int_equal(SQLITE_OK, sqlite3_open(path, &db));
	run_sql(db, TABLES POINTS);
	assert_int_equal(0, metrics_read_dir(&metrics, dir, note, problem, NULL));
	assert_string_equal("", problem);
	assert_int_equal(2, metrics.n);
	metrics_release(&metrics);

	run_sql(db, "BEGIN EXCLUSIVE");
	assert_int_equal(0, metrics_read_dir(&metrics, dir, note, problem, NULL));
	assert_string_not_equal("", problem);
	assert_int_equal(0, metrics.n);
	sqlite3_close(db);
	assert_int_equal(0, fs_remove_tree(dir, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(points_are_read_in_the_order_of_their_times),
		cmocka_unit_test(other_databases_are_a_problem),
		cmocka_unit_test(a_database_that_is_being_changed_is_not_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
