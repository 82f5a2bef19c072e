#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "records/layout.h"
#include "records/records.h"
#include "records/supervisor.h"

#define ID "0123456789ab"

static char home[64];
static struct records *records;

static int set_up(void **state)
{
	(void)state;
	snprintf(home, sizeof(home), "/tmp/penstock-records-test-XXXXXX");
	assert_non_null(mkdtemp(home));
	return records_open(&records, home, NULL);
}

static int tear_down(void **state)
{
	(void)state;
	records_freep(&records);
	return fs_remove_tree(home, NULL);
}

static int begin(const char *id, const char *name)
{
	int attempt = 0;

	assert_int_equal(records_begin(records,
				 &(struct records_begin){.id = id,
					 .name = name,
					 .workflow = "/w.json",
					 .output = "s3://b/",
					 .pid = 4711,
					 .provenance = "{\"host\":\"x\"}"},
				 &attempt, NULL),
		0);
	return attempt;
}

/* Takes the run's lock, as its supervisor does. */
static int hold_lock(const char *id)
{
	char path[128];
	int fd = -1;

	snprintf(path, sizeof(path), "%s/runs/%s", home, id);
	assert_int_equal(fs_mkdirs(path, 0700, NULL), 0);
	snprintf(path, sizeof(path), "%s/runs/%s/lock", home, id);
	assert_int_equal(supervisor_begin(path, id, &fd, NULL), 0);
	return fd;
}

static int end_as(const char *id, int attempt, enum run_state state)
{
	return records_end(records, id, attempt,
		&(struct records_end){.state = state,
			.class = RUN_CLASS_USER,
			.exit_code = 3,
			.step_code = 65,
			.message = "'train' exited with 65"},
		NULL);
}

/* An attempt is recorded from start to end, and read back unchanged. */
static void an_attempt_is_recorded(void **state)
{
	struct records_attempt last = {0};
	int lock = hold_lock(ID);

	(void)state;
	assert_int_equal(begin(ID, "cifar10"), 1);
	assert_int_equal(records_set_state(records, ID, 1, RUN_STAGING, NULL), 0);
	assert_int_equal(records_set_state(records, ID, 1, RUN_RUNNING, NULL), 0);
	assert_int_equal(records_step_done(records, ID, 1, 0, "unpack", NULL), 0);
	assert_int_equal(records_set_sync(records, ID, 1,
				 &(struct records_sync){.lag_ms = 1200,
					 .bytes_waiting = 5000000000,
					 .files_published = 7,
					 .bytes_published = 8,
					 .last_error = "refused"},
				 NULL),
		0);

	assert_int_equal(records_last_attempt(records, ID, &last, NULL), 0);
	assert_int_equal(last.attempt, 1);
	assert_int_equal(last.state, RUN_RUNNING);
	assert_int_equal(last.steps_done, 1);
	assert_int_equal(last.pid, 4711);
	assert_true(last.started_ns > 0 && last.ended_ns == 0);
	assert_int_equal(last.sync_lag_ms, 1200);
	assert_true(last.sync_bytes_waiting == 5000000000);
	assert_string_equal(last.sync_error, "refused");
	assert_string_equal(last.provenance, "{\"host\":\"x\"}");
	records_attempt_release(&last);

	assert_int_equal(end_as(ID, 1, RUN_FAILED), 0);
	assert_int_equal(records_last_attempt(records, ID, &last, NULL), 0);
	assert_int_equal(last.state, RUN_FAILED);
	assert_int_equal(last.class, RUN_CLASS_USER);
	assert_int_equal(last.exit_code, 3);
	assert_int_equal(last.step_code, 65);
	assert_string_equal(last.message, "'train' exited with 65");
	assert_true(last.ended_ns >= last.started_ns);
	records_attempt_release(&last);
	close(lock);
}

/* Live states only move forward, and an end state is final. */
static void states_only_move_forward(void **state)
{
	int lock = hold_lock(ID);

	(void)state;
	begin(ID, NULL);
	assert_int_equal(records_set_state(records, ID, 1, RUN_RUNNING, NULL), 0);

	assert_int_equal(
		records_set_state(records, ID, 1, RUN_STAGING, NULL), -PENSTOCK_E_INTERNAL);
	assert_int_equal(records_set_state(records, ID, 1, RUN_FAILED, NULL), -PENSTOCK_E_INTERNAL);
	assert_int_equal(
		records_set_state(records, ID, 2, RUN_RUNNING, NULL), -PENSTOCK_E_INTERNAL);
	assert_int_equal(end_as(ID, 1, RUN_RUNNING), -PENSTOCK_E_INTERNAL);
	assert_int_equal(end_as(ID, 1, RUN_SUCCEEDED), 0);
	assert_int_equal(end_as(ID, 1, RUN_FAILED), -PENSTOCK_E_INTERNAL);
	assert_int_equal(
		records_set_state(records, ID, 1, RUN_FLUSHING, NULL), -PENSTOCK_E_INTERNAL);
	close(lock);
}

static int64_t started(const char *id)
{
	struct records_attempt last;
	int64_t ns;

	assert_int_equal(records_last_attempt(records, id, &last, NULL), 0);
	ns = last.started_ns;
	records_attempt_release(&last);
	return ns;
}

static void an_attempt_starts_when_it_leaves_the_queue(void **state)
{
	int lock = hold_lock(ID);
	int64_t queued, left;

	(void)state;
	begin(ID, NULL);
	queued = started(ID);
	assert_int_equal(records_set_state(records, ID, 1, RUN_STAGING, NULL), 0);
	left = started(ID);
	assert_true(left > queued);
	assert_int_equal(records_set_state(records, ID, 1, RUN_RUNNING, NULL), 0);
	assert_true(started(ID) == left);
	close(lock);
}

/* After the end, a flush may publish the remaining output, once. */
static void a_flush_completes_an_end(void **state)
{
	struct records_end end = {.state = RUN_FAILED,
		.class = RUN_CLASS_OUTPUT,
		.exit_code = 73,
		.unflushed = true,
		.flushed_state = RUN_SUCCEEDED};
	struct records_attempt last = {0};

	(void)state;
	begin(ID, NULL);
	assert_int_equal(records_end(records, ID, 1, &end, NULL), 0);
	assert_int_equal(records_last_attempt(records, ID, &last, NULL), 0);
	assert_true(last.unflushed);
	assert_int_equal(last.flushed_state, RUN_SUCCEEDED);
	records_attempt_release(&last);

	end = (struct records_end){.state = RUN_SUCCEEDED};
	assert_int_equal(records_end(records, ID, 1, &end, NULL), 0);
	assert_int_equal(records_end(records, ID, 1, &end, NULL), -PENSTOCK_E_INTERNAL);
}

/* A preempted run that waits to be resumed can be stopped. A run that was resumed, or that ended
 * otherwise, cannot. */
static void a_preempted_run_is_ended_while_it_waits(void **state)
{
	const struct records_end stopped = {
		.state = RUN_STOPPED, .class = RUN_CLASS_USER, .exit_code = 130};
	struct records_attempt last = {0};

	(void)state;
	begin(ID, NULL);
	assert_int_equal(end_as(ID, 1, RUN_PREEMPTED), 0);
	assert_int_equal(records_end(records, ID, 1, &stopped, NULL), -PENSTOCK_E_INTERNAL);
	assert_int_equal(records_end_waiting(records, ID, 1, &stopped, NULL), 0);
	assert_int_equal(records_last_attempt(records, ID, &last, NULL), 0);
	assert_int_equal(last.state, RUN_STOPPED);
	assert_int_equal(last.exit_code, 130);
	records_attempt_release(&last);
	assert_int_equal(records_end_waiting(records, ID, 1, &stopped, NULL), -PENSTOCK_E_INTERNAL);

	assert_int_equal(begin(ID, NULL), 2);
	assert_int_equal(end_as(ID, 2, RUN_PREEMPTED), 0);
	assert_int_equal(begin(ID, NULL), 3);
	assert_int_equal(records_end_waiting(records, ID, 2, &stopped, NULL), -PENSTOCK_E_INTERNAL);
	assert_int_equal(end_as(ID, 3, RUN_SUCCEEDED), 0);
	assert_int_equal(records_end_waiting(records, ID, 3, &stopped, NULL), -PENSTOCK_E_INTERNAL);
}

/* A run in a live state whose lock is free is lost, and the next attempt records this state. */
static void without_its_lock_a_live_run_is_lost(void **state)
{
	struct records_attempt last = {0};
	int lock = hold_lock(ID);

	(void)state;
	begin(ID, NULL);
	records_set_state(records, ID, 1, RUN_RUNNING, NULL);
	records_step_done(records, ID, 1, 0, "one", NULL);
	close(lock); /* as a kill does */

	assert_int_equal(records_last_attempt(records, ID, &last, NULL), 0);
	assert_int_equal(last.state, RUN_LOST);
	records_attempt_release(&last);
	assert_false(supervisor_lives(home, ID));
	lock = hold_lock(ID);
	assert_int_equal(begin(ID, NULL), 2);
	assert_int_equal(records_last_attempt(records, ID, &last, NULL), 0);
	assert_int_equal(last.state, RUN_QUEUED);
	assert_int_equal(last.steps_done, 0);
	records_attempt_release(&last);
	close(lock);
}

/* Only one supervisor holds the lock; testing the lock does not prevent others from taking it. */
static void the_lock_has_one_owner(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	char path[128];
	char mine[32];
	int second = -1;
	int first = hold_lock(ID);

	(void)state;
	snprintf(path, sizeof(path), "%s/runs/%s/lock", home, ID);
	snprintf(mine, sizeof(mine), "%d", (int)getpid());
	assert_true(supervisor_lives(home, ID));
	assert_int_equal(supervisor_begin(path, ID, &second, &err), -PENSTOCK_E_EXISTS);
	assert_non_null(strstr(err.message, mine));
	assert_non_null(strstr(err.message, " 20"));
	close(first);

	for (int i = 0; i < 1000; i++)
		assert_false(supervisor_lives(home, ID));
	assert_int_equal(supervisor_begin(path, ID, &second, NULL), 0);
	close(second);
}

/* The lock of a removed file has no effect, so the lock is taken on the new file. */
static void a_removed_lock_is_not_kept(void **state)
{
	struct stat st;
	char path[128];
	int fd = hold_lock(ID);

	(void)state;
	snprintf(path, sizeof(path), "%s/runs/%s/lock", home, ID);
	assert_int_equal(unlink(path), 0);

	assert_false(supervisor_lives(home, ID));
	int again = hold_lock(ID);
	assert_int_equal(fstat(again, &st), 0);
	assert_int_equal(st.st_nlink, 1);
	close(fd);
	close(again);
}

/* The supervisor that holds the lock is found as a process that can be signalled and awaited. */
static void the_supervisor_is_found_by_its_lock(void **state)
{
	struct process found = PROCESS_INIT;
	int ends[2];
	int status;
	pid_t pid;
	char c;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		hold_lock(ID);
		_exit(write(ends[1], "x", 1) != 1 || pause());
	}
	assert_int_equal(read(ends[0], &c, 1), 1);

	assert_int_equal(supervisor_find(home, ID, &found, NULL), 1);
	assert_int_equal(found.pid, pid);
	process_signal(&found, SIGKILL);
	waitpid(pid, &status, 0);
	process_release(&found);
	assert_int_equal(supervisor_find(home, ID, &found, NULL), 0);
	assert_int_equal(supervisor_find(home, "ffffffffffff", &found, NULL), 0);
	close(ends[0]);
	close(ends[1]);
}

/* If the pid in the lock file now belongs to another process, that process is not signalled. */
static void a_stranger_with_the_number_is_not_signalled(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct process found = PROCESS_INIT;
	int lock = hold_lock(ID);
	pid_t stranger = fork();
	char text[32];
	int status;

	(void)state;
	if (stranger == 0) {
		close(lock);
		pause();
		_exit(0);
	}
	/* The child has closed its copy of the lock when its list of descriptors lacks the
	 * descriptor. */
	snprintf(text, sizeof(text), "/proc/%d/fd/%d", (int)stranger, lock);
	while (access(text, F_OK) == 0)
		usleep(1000);
	snprintf(text, sizeof(text), "%d\n", (int)stranger);
	assert_int_equal(ftruncate(lock, 0), 0);
	assert_int_equal(fs_pwrite_all(lock, text, strlen(text), 0), 0);

	assert_int_equal(supervisor_find(home, ID, &found, &err), -PENSTOCK_E_TIMEOUT);
	kill(stranger, SIGKILL);
	waitpid(stranger, &status, 0);
	close(lock);
}

static char listed[256];

static int list_name(void *cookie, const struct records_run *run)
{
	(void)cookie;
	strncat(listed, run->name ? run->name : run->id, sizeof(listed) - strlen(listed) - 1);
	strncat(listed, " ", sizeof(listed) - strlen(listed) - 1);
	return 0;
}

/* Runs are listed by the start of their last attempt, newest first. */
static void runs_are_listed_newest_first(void **state)
{
	(void)state;
	begin("aaaaaaaaaaaa", "one");
	begin("bbbbbbbbbbbb", "two");
	begin("cccccccccccc", NULL);
	end_as("aaaaaaaaaaaa", 1, RUN_STOPPED);
	begin("aaaaaaaaaaaa", "one");
	listed[0] = '\0';

	assert_int_equal(records_list(records, list_name, NULL, NULL), 0);
	assert_string_equal(listed, "one cccccccccccc two ");
}

static void check_found(const char *word, const char *id)
{
	struct records_run run = {0};

	assert_int_equal(records_find(records, word, &run, NULL), 0);
	assert_string_equal(run.id, id);
	records_run_release(&run);
}

static void check_not_found(const char *word, int code, const char *says)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct records_run run = {0};

	assert_int_equal(records_find(records, word, &run, &err), -code);
	assert_non_null(strstr(err.message, says));
}

/* A run is found by its id, by a unique prefix of the id, or by its name, which finds the newest
 * run with the name. */
static void runs_are_found_by_id_beginning_or_name(void **state)
{
	(void)state;
	begin("abcd00000001", "cifar10");
	begin("abcd00000002", "cifar10");
	begin("beef00000003", "abcd00000001");

	check_found("abcd00000001", "abcd00000001"); /* an id has precedence over a name */
	check_found("cifar10", "abcd00000002");
	check_found("beef", "beef00000003");
	check_not_found("abcd", PENSTOCK_E_INVALID, "'abcd'");
	check_not_found("bee", PENSTOCK_E_NOT_FOUND, "'bee'");
	check_not_found("*", PENSTOCK_E_NOT_FOUND, "'*'");
	check_not_found("", PENSTOCK_E_NOT_FOUND, "''");
}

static int count_steps(void *cookie, const struct records_step *step)
{
	assert_string_equal(step->name, step->step ? "train" : "unpack");
	++*(int *)cookie;
	return 0;
}

/* The steps of an attempt are removed with the run. */
static void a_removed_run_leaves_nothing(void **state)
{
	struct records_attempt last = {0};
	int n = 0;

	(void)state;
	begin(ID, NULL);
	records_step_done(records, ID, 1, 0, "unpack", NULL);
	records_step_done(records, ID, 1, 1, "train", NULL);
	assert_int_equal(records_steps(records, ID, count_steps, &n, NULL), 0);
	assert_int_equal(n, 2);

	assert_int_equal(records_remove(records, ID, NULL), 0);
	assert_int_equal(records_last_attempt(records, ID, &last, NULL), -PENSTOCK_E_NOT_FOUND);
	assert_int_equal(records_steps(records, ID, count_steps, &n, NULL), 0);
	assert_int_equal(n, 2);
	assert_int_equal(records_remove(records, ID, NULL), -PENSTOCK_E_NOT_FOUND);
	assert_int_equal(begin(ID, NULL), 1);
}

static void check_refused(int code, const char *says)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct records *other = NULL;

	assert_int_equal(records_open(&other, home, &err), -code);
	assert_non_null(strstr(err.message, "runs.db"));
	assert_non_null(strstr(err.message, says));
	assert_null(other);
}

static void put_database(const void *data, size_t len)
{
	char path[128];

	records_freep(&records);
	for (int i = 0; i < 3; i++) {
		static const char *const suffixes[] = {"", "-wal", "-shm"};

		snprintf(path, sizeof(path), "%s/runs.db%s", home, suffixes[i]);
		unlink(path);
	}
	snprintf(path, sizeof(path), "%s/runs.db", home);
	assert_int_equal(fs_write_atomic(path, data, len, 0600, NULL), 0);
}

static void run_sql(const char *sql)
{
	char path[128];
	sqlite3 *db;

	snprintf(path, sizeof(path), "%s/runs.db", home);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

/* A file that is not a database, the database of another program, and the database of a later
 * version are not changed. */
static void a_foreign_database_is_refused(void **state)
{
	char text[5000];
	_cleanup_(buf_release) struct buf after = BUF_INIT(MIB);
	char path[128];

	(void)state;
	memset(text, 'x', sizeof(text));
	put_database(text, sizeof(text));
	check_refused(PENSTOCK_E_CORRUPT, "");
	snprintf(path, sizeof(path), "%s/runs.db", home);
	assert_int_equal(fs_read(path, &after, NULL), 0);
	assert_int_equal(after.len, sizeof(text));
	assert_memory_equal(after.data, text, sizeof(text));

	put_database("", 0);
	run_sql("CREATE TABLE runs (a)");
	check_refused(PENSTOCK_E_CORRUPT, "");

	put_database("", 0);
	assert_int_equal(records_open(&records, home, NULL), 0);
	records_freep(&records);
	run_sql("PRAGMA user_version = 99");
	check_refused(PENSTOCK_E_UNSUPPORTED, "");
}

/* A damaged records database is an error and is not overwritten. */
static void a_damaged_database_is_an_error(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	char junk[4096];
	char path[128];
	int fd;
	int r;

	(void)state;
	for (int i = 0; i < 50; i++)
		begin(ID, "x");
	records_freep(&records);
	/* After the checkpoint, SQLite reads the records from runs.db, not from the write-ahead
	 * log. */
	run_sql("PRAGMA wal_checkpoint(TRUNCATE)");
	snprintf(path, sizeof(path), "%s/runs.db", home);
	fd = open(path, O_RDWR | O_CLOEXEC);
	memset(junk, 0xa5, sizeof(junk));
	for (off_t at = 4096; at < 40960; at += 4096)
		assert_int_equal(fs_pwrite_all(fd, junk, sizeof(junk), at), 0);
	close(fd);

	r = records_open(&records, home, &err);
	if (r == 0)
		r = records_list(records, list_name, NULL, &err);
	assert_int_equal(r, -PENSTOCK_E_CORRUPT);
	assert_non_null(strstr(err.message, "runs.db"));
}

/* Eight processes that create the same database all succeed. */
static void many_begin_at_once(void **state)
{
	pid_t pids[8];

	(void)state;
	put_database("", 0);
	for (int i = 0; i < 8; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			char id[RECORDS_ID_SIZE];

			if (records_open(&records, home, NULL) < 0)
				_exit(1);
			snprintf(id, sizeof(id), "%012d", i);
			for (int n = 0; n < 5; n++)
				begin(id, NULL);
			_exit(0);
		}
	}
	for (int i = 0; i < 8; i++) {
		int status;

		waitpid(pids[i], &status, 0);
		assert_int_equal(status, 0);
	}

	assert_int_equal(records_open(&records, home, NULL), 0);
	struct records_run run = {0};
	assert_int_equal(records_find(records, "000000000007", &run, NULL), 0);
	assert_int_equal(run.last.attempt, 5);
	records_run_release(&run);
}

static void *write_states(void *cookie)
{
	for (int i = 0; i < 200; i++)
		assert_int_equal(
			records_set_sync(records, ID, 1, &(struct records_sync){.lag_ms = i}, NULL),
			0);
	return cookie;
}

/* While a reader lists runs, writers do not wait. */
static int write_while_listing(void *cookie, const struct records_run *run)
{
	struct records *writer = cookie;

	assert_string_equal(run->id, ID);
	assert_int_equal(records_set_state(writer, ID, 1, RUN_RUNNING, NULL), 0);
	return 0;
}

static void readers_do_not_block_writers(void **state)
{
	struct records *writer = NULL;
	pthread_t threads[2];

	(void)state;
	begin(ID, NULL);
	assert_int_equal(records_open(&writer, home, NULL), 0);
	assert_int_equal(records_list(records, write_while_listing, writer, NULL), 0);
	records_free(writer);

	/* Several threads use one handle. */
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, write_states, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

/* Only the owner can read the records. */
static void the_records_are_private(void **state)
{
	static const char *const names[] = {"runs.db", "runs.db-wal", "runs.db-shm"};
	struct stat st;
	char path[128];

	(void)state;
	begin(ID, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", home, names[i]);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 0777, 0600);
	}
}

/* The home is $PENSTOCK_HOME, else in $XDG_DATA_HOME, else in $HOME; only its owner can read it. */
static void the_home_follows_the_environment(void **state)
{
	_cleanup_free_ char *first = NULL;
	_cleanup_free_ char *second = NULL;
	_cleanup_free_ char *third = NULL;
	char path[128];
	struct stat st;

	(void)state;
	snprintf(path, sizeof(path), "%s/a/b", home);
	setenv("PENSTOCK_HOME", path, 1);
	assert_int_equal(records_home(&first, NULL), 0);
	assert_string_equal(first, path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);

	unsetenv("PENSTOCK_HOME");
	setenv("XDG_DATA_HOME", home, 1);
	assert_int_equal(records_home(&second, NULL), 0);
	snprintf(path, sizeof(path), "%s/penstock", home);
	assert_string_equal(second, path);

	unsetenv("XDG_DATA_HOME");
	setenv("HOME", home, 1);
	assert_int_equal(records_home(&third, NULL), 0);
	snprintf(path, sizeof(path), "%s/.local/share/penstock", home);
	assert_string_equal(third, path);
}

/* An id that a crash has damaged is replaced once, and no temporary file stays in the home. */
static void a_damaged_id_of_the_home_is_replaced(void **state)
{
	static const char damaged[1000] = "damaged";
	static const size_t sizes[] = {7, sizeof(damaged)};
	char path[128], first[RECORDS_HOME_ID_SIZE], second[RECORDS_HOME_ID_SIZE];
	DIR *d;

	(void)state;
	snprintf(path, sizeof(path), "%s/id", home);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		assert_int_equal(fs_write_atomic(path, damaged, sizes[i], 0600, NULL), 0);

		assert_int_equal(records_home_id(home, first, NULL), 0);
		assert_int_equal(records_home_id(home, second, NULL), 0);

		assert_string_equal(first, second);
	}
	d = opendir(home);
	for (struct dirent *e; (e = readdir(d));)
		assert_int_not_equal(strncmp(e->d_name, ".id-", 4), 0);
	closedir(d);
}

/* An id that cannot be read may still be valid. */
static void an_unreadable_id_of_the_home_stays(void **state)
{
	char path[128], id[RECORDS_HOME_ID_SIZE];
	struct stat st;

	(void)state;
	snprintf(path, sizeof(path), "%s/id", home);
	assert_int_equal(symlink("elsewhere", path), 0);

	assert_int_equal(records_home_id(home, id, NULL), -PENSTOCK_E_INVALID);

	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
}

/* The directory that all users share is created once, with permissions for all users. */
static void the_shared_directory_is_open_to_all(void **state)
{
	struct run_layout layout;
	struct stat st;

	(void)state;
	assert_int_equal(run_layout_init(&layout, home, ID, 1, NULL), 0);
	free(layout.world_tmp);
	layout.world_tmp = path_join(home, "world");

	assert_int_equal(run_layout_create(&layout, NULL), 0);
	assert_int_equal(stat(layout.world_tmp, &st), 0);
	assert_int_equal(st.st_mode & 07777, 01777);
	assert_int_equal(run_layout_create(&layout, NULL), 0);
	run_layout_release(&layout);
}

/* SQLite reports an I/O error if a directory is not writable; the message names the missing
 * permission. */
static void a_home_that_cannot_be_written_is_a_matter_of_permission(void **state)
{
	char path[128];
	int status;
	pid_t child;

	(void)state;
	records_freep(&records);
	snprintf(path, sizeof(path), "%s/runs.db", home);
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(chmod(path, 0666), 0);
	assert_int_equal(fs_write_atomic(path, "", 0, 0666, NULL), 0);
	snprintf(path, sizeof(path), "%s/runs.db-wal", home);
	assert_int_equal(fs_write_atomic(path, "x", 1, 0666, NULL), 0);
	assert_int_equal(chmod(home, 0555), 0);

	child = fork();
	if (child == 0) {
		struct penstock_error err = PENSTOCK_ERROR_INIT;

		if (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0)
			_exit(9);
		_exit(records_open(&records, home, &err) == -PENSTOCK_E_PERMISSION &&
					strstr(err.message, strerror(EACCES))
				? 0
				: 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(chmod(home, 0755), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_attempt_is_recorded),
		TEST(states_only_move_forward),
		TEST(an_attempt_starts_when_it_leaves_the_queue),
		TEST(a_preempted_run_is_ended_while_it_waits),
		TEST(a_flush_completes_an_end),
		TEST(without_its_lock_a_live_run_is_lost),
		TEST(the_lock_has_one_owner),
		TEST(a_removed_lock_is_not_kept),
		TEST(the_supervisor_is_found_by_its_lock),
		TEST(a_stranger_with_the_number_is_not_signalled),
		TEST(runs_are_listed_newest_first),
		TEST(runs_are_found_by_id_beginning_or_name),
		TEST(a_removed_run_leaves_nothing),
		TEST(a_foreign_database_is_refused),
		TEST(a_damaged_database_is_an_error),
		TEST(many_begin_at_once),
		TEST(readers_do_not_block_writers),
		TEST(the_records_are_private),
		TEST(a_damaged_id_of_the_home_is_replaced),
		TEST(an_unreadable_id_of_the_home_stays),
		TEST(the_shared_directory_is_open_to_all),
		TEST(a_home_that_cannot_be_written_is_a_matter_of_permission),
		TEST(the_home_follows_the_environment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
