/*
 * Records and claims on a network file system. If `far` is true, all paths that begin with `dir`
 * count as paths on a network file system.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "records/claims.h"
#include "records/records.h"

static char dir[64];
static bool far;

bool __real_fs_is_network(const char *path);
bool __wrap_fs_is_network(const char *path);
bool __wrap_fs_is_network(const char *path)
{
	return (far && strncmp(path, dir, strlen(dir)) == 0) || __real_fs_is_network(path);
}

static int set_up(void **state)
{
	(void)state;
	far = false;
	snprintf(dir, sizeof(dir), "/tmp/penstock-network-test-XXXXXX");
	assert_non_null(mkdtemp(dir));
	return setenv("PENSTOCK_CLAIMS_DIR", dir, 1);
}

static int tear_down(void **state)
{
	(void)state;
	return fs_remove_tree(dir, NULL);
}

static void write_row(struct records *records)
{
	int attempt = 0;

	assert_int_equal(records_begin(records,
				 &(struct records_begin){.id = "0123456789ab",
					 .workflow = "/w.json",
					 .pid = 4711,
					 .provenance = "{}"},
				 &attempt, NULL),
		0);
}

/* SQLite keeps the journal mode in the header of the database, for all processes. */
static void assert_journal_is(const char *mode)
{
	char path[128];
	sqlite3 *db;
	sqlite3_stmt *row;

	snprintf(path, sizeof(path), "%s/runs.db", dir);
	assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA journal_mode", -1, &row, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(row), SQLITE_ROW);
	assert_string_equal((const char *)sqlite3_column_text(row, 0), mode);
	sqlite3_finalize(row);
	sqlite3_close(db);
}

static bool has_shared_memory(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/runs.db-shm", dir);
	return access(path, F_OK) == 0;
}

/* A write-ahead log needs shared memory, which two machines do not have. */
static void the_database_does_without_a_write_ahead_log_there(void **state)
{
	struct records *records = NULL;

	(void)state;
	far = true;
	assert_int_equal(records_open(&records, dir, NULL), 0);
	write_row(records);
	assert_false(has_shared_memory());
	records_free(records);
	assert_journal_is("delete");
}

static void a_database_that_was_moved_there_is_changed(void **state)
{
	struct records *records = NULL;

	(void)state;
	assert_int_equal(records_open(&records, dir, NULL), 0);
	write_row(records);
	assert_true(has_shared_memory());
	records_free(records);
	assert_journal_is("wal");

	far = true;
	assert_int_equal(records_open(&records, dir, NULL), 0);
	records_free(records);
	assert_journal_is("delete");
}

/* Other machines cannot see a lock of this machine. */
static void claims_are_refused_there_by_name(void **state)
{
	static const struct machine_capacity machine = {.cpus = 1, .n_cpus = 1, .memory = 64 * MIB};
	const struct claim_request request = {
		.run_id = "aaa", .name = "n", .tasks = 1, .cpus_per_task = 1};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct claim *claim = NULL;

	(void)state;
	far = true;
	assert_int_equal(
		claim_acquire(&claim, &machine, &request, NULL, &err), -PENSTOCK_E_UNSUPPORTED);
	assert_null(claim);
	assert_non_null(strstr(err.message, dir));

	far = false;
	assert_int_equal(claim_acquire(&claim, &machine, &request, NULL, &err), 0);
	claim_release(claim);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_database_does_without_a_write_ahead_log_there),
		TEST(a_database_that_was_moved_there_is_changed),
		TEST(claims_are_refused_there_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
