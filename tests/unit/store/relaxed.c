#include "fixture.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/process/process.h"
#include "store/internal.h"

#define LARGE (STORE_INLINE_MAX + 1000)

static void open_relaxed(struct fixture *f, int64_t ms)
{
	assert_int_equal(
		store_open(&f->store,
			&(struct store_options){.root = f->root, .relaxed = true, .relaxed_ms = ms},
			NULL),
		0);
}

#define MARK_SLOT 4096
#define MARK_SIZE (2 * MARK_SLOT)

/* Reads the mark, the file "relaxed" that shows how much of the write-ahead log may be trusted.
 * Returns the length of the file; 0 if the file is missing. */
static ssize_t read_mark(const struct fixture *f, char mark[static MARK_SIZE])
{
	char path[128];
	ssize_t n;
	int fd;

	memset(mark, 0, MARK_SIZE);
	snprintf(path, sizeof(path), "%s/relaxed", f->root);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, mark, MARK_SIZE);
	if (fd >= 0)
		close(fd);
	return n;
}

static bool is_marked(const struct fixture *f)
{
	char mark[MARK_SIZE];

	return read_mark(f, mark) > 0;
}

/* Makes the next start assume that the machine has crashed. */
static void pretend_another_boot(const struct fixture *f)
{
	char path[128], mark[MARK_SIZE];

	assert_int_equal(read_mark(f, mark), MARK_SIZE);
	for (size_t i = 0; i < MARK_SIZE; i += MARK_SLOT)
		if (mark[i])
			memset(mark + i, '0', PROCESS_BOOT_ID_SIZE - 1);
	snprintf(path, sizeof(path), "%s/relaxed", f->root);
	assert_int_equal(fs_write_atomic(path, mark, MARK_SIZE, 0600, NULL), 0);
}

static const char *filled(char c)
{
	static char text[LARGE + 1];

	memset(text, c, LARGE);
	return text;
}

static void assert_killed(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* In a relaxed store, changes two objects, deletes a third one, and dies. */
static void change_and_die(struct fixture *f)
{
	pid_t pid;

	store_close(f->store);
	f->store = NULL;
	pid = fork();
	if (pid == 0) {
		struct store_delete item = {.key = "deleted"};

		open_relaxed(f, 0);
		put(f, "large", "new", filled('n'));
		put(f, "small", "new", "new");
		store_delete(f->store, "b", 0, &item, 1, NULL);
		raise(SIGKILL);
	}
	assert_killed(pid);
	assert_true(is_marked(f));
}

static void put_old(struct fixture *f)
{
	assert_int_equal(put(f, "large", "old", filled('o')), STORE_OK);
	assert_int_equal(put(f, "deleted", "old", filled('d')), STORE_OK);
	assert_int_equal(put(f, "small", "old", "old"), STORE_OK);
}

/* Acknowledged writes survive a crash of the process, and opening the store as durable makes them
 * durable. */
static void a_crash_of_the_process_loses_nothing(void **state)
{
	struct fixture *f = *state;
	struct store_object *object = NULL;

	put_old(f);
	change_and_die(f);

	fixture_open(f, false);
	assert_content(f, "large", filled('n'));
	assert_content(f, "small", "new");
	assert_int_equal(
		store_object_get(f->store, "b", "deleted", &object, NULL), STORE_NO_SUCH_KEY);
	assert_false(is_marked(f));
}

/* After a crash of the machine, the store has the state of its last sync point, with all files that
 * it had at that time. */
static void a_crash_of_the_machine_goes_back_to_the_last_sync_point(void **state)
{
	struct fixture *f = *state;

	put_old(f);
	change_and_die(f);
	pretend_another_boot(f);

	fixture_open(f, false);
	assert_content(f, "large", filled('o'));
	assert_content(f, "small", "old");
	assert_content(f, "deleted", filled('d'));
}

/* The mark of an older version of penstock has only the boot id; in another boot, the write-ahead
 * log of such a mark is discarded. */
static void a_mark_without_a_length_trusts_no_log(void **state)
{
	struct fixture *f = *state;
	char path[128];

	put_old(f);
	change_and_die(f);
	snprintf(path, sizeof(path), "%s/relaxed", f->root);
	fs_write_atomic(path, "another boot", 12, 0600, NULL);

	fixture_open(f, false);
	assert_content(f, "large", filled('o'));
	assert_content(f, "small", "old");
}

static void put_and_sync(struct fixture *f, const char *key, const char *text)
{
	int64_t deadline = clock_monotonic_ms() + 60000;

	put(f, key, "e", text);
	while (atomic_load(&f->store->unsynced_since_ms)) {
		if (clock_monotonic_ms() >= deadline)
			abort(); /* an assertion in the child would continue with the other tests */
		clock_sleep_ms(1);
	}
}

/* A reader prevents the write-ahead log from being copied into the database. After a crash, the
 * store has the state of the last sync point in the log, with the files that were replaced since
 * the start. */
static void a_reader_does_not_move_the_last_sync_point(void **state)
{
	struct fixture *f = *state;
	char path[128];
	sqlite3 *reader;
	pid_t pid;

	put_old(f);
	store_close(f->store);
	f->store = NULL;
	pid = fork();
	if (pid == 0) {
		open_relaxed(f, 1);
		put_and_sync(f, "large", filled('1'));
		snprintf(path, sizeof(path), "%s/meta.db", f->root);
		if (sqlite3_open(path, &reader) ||
			sqlite3_exec(
				reader, "BEGIN; SELECT count(*) FROM objects", NULL, NULL, NULL))
			_exit(1);
		put_and_sync(f, "large", filled('2'));
		put_and_sync(f, "small", "second");
		atomic_store(&failing, FAIL_SYNCFS);
		put(f, "large", "third", filled('3'));
		put(f, "small", "third", "third");
		raise(SIGKILL);
	}
	assert_killed(pid);
	pretend_another_boot(f);

	fixture_open(f, false);
	assert_content(f, "large", filled('2'));
	assert_content(f, "small", "second");
}

/* If the write of a mark fails, the mark may still be valid, so the files of its sync point
 * stay. */
static void a_note_that_failed_may_be_valid(void **state)
{
	struct fixture *f = *state;
	int64_t deadline = clock_monotonic_ms() + 60000;
	pid_t pid;

	put_old(f);
	store_close(f->store);
	f->store = NULL;
	pid = fork();
	if (pid == 0) {
		int before;

		open_relaxed(f, 1);
		put_and_sync(f, "large", filled('1'));
		atomic_store(&failing, FAIL_MARK);
		put(f, "large", "second", filled('2'));
		before = atomic_load(&n_failures);
		/* The second failed mark from now on is written after the put. */
		while (atomic_load(&n_failures) < before + 2 && clock_monotonic_ms() < deadline)
			clock_sleep_ms(1);
		atomic_store(&failing, FAIL_SYNCFS);
		put(f, "large", "third", filled('3'));
		store_reclaim(f->store);
		raise(SIGKILL);
	}
	assert_killed(pid);
	pretend_another_boot(f);

	fixture_open(f, false);
	assert_content(f, "large", filled('2'));
}

/* When the store is closed without a sync, the changes after the last sync point are not copied
 * into the database. */
static void closing_without_a_sync_goes_back_to_the_last_one(void **state)
{
	struct fixture *f = *state;

	put_old(f);
	store_close(f->store);
	open_relaxed(f, 3600000);
	put(f, "large", "new", filled('n'));
	atomic_store(&failing, FAIL_SYNCFS);
	store_close(f->store);
	atomic_store(&failing, FAIL_NOTHING);
	pretend_another_boot(f);

	fixture_open(f, false);
	assert_content(f, "large", filled('o'));
}

/* Linux reports a lost page only once, so the sync of the next start succeeds. */
static void a_failed_sync_undoes_the_last_changes_in_the_same_boot(void **state)
{
	struct fixture *f = *state;

	put_old(f);
	store_close(f->store);
	open_relaxed(f, 3600000);
	put(f, "large", "new", filled('n'));
	atomic_store(&failing, FAIL_SYNCFS);
	store_close(f->store);
	atomic_store(&failing, FAIL_NOTHING);

	fixture_open(f, false);
	assert_content(f, "large", filled('o'));
	assert_content(f, "small", "old");
}

/* After a failed sync, the next start undoes all changes since the last sync point, so the store
 * refuses further changes. */
static void no_change_is_acknowledged_after_a_failed_sync(void **state)
{
	struct fixture *f = *state;
	int64_t deadline = clock_monotonic_ms() + 60000;
	int before = atomic_load(&n_failures);

	put_old(f);
	store_close(f->store);
	open_relaxed(f, 1);
	atomic_store(&failing, FAIL_SYNCFS);
	put(f, "large", "new", filled('n'));
	while (atomic_load(&n_failures) == before && clock_monotonic_ms() < deadline)
		clock_sleep_ms(1);
	atomic_store(&failing, FAIL_NOTHING);

	assert_int_equal(put(f, "small", "new", "new"), STORE_FAILED);
	assert_content(f, "small", "old");
	store_close(f->store);
	fixture_open(f, false);
	assert_content(f, "large", filled('o'));
	assert_int_equal(put(f, "small", "new", "new"), STORE_OK);
}

/* The first sync after a crash of the process fails. */
static void a_failed_sync_of_the_start_undoes_the_last_changes(void **state)
{
	struct fixture *f = *state;

	put_old(f);
	change_and_die(f);
	atomic_store(&failing, FAIL_SYNCFS);
	assert_true(store_open(&f->store, &(struct store_options){.root = f->root}, NULL) < 0);
	atomic_store(&failing, FAIL_NOTHING);

	fixture_open(f, false);
	assert_content(f, "large", filled('o'));
	assert_content(f, "deleted", filled('d'));
}

/* If an object is put and replaced between two sync points, no sync point refers to its file. */
static void files_that_no_sync_point_names_are_removed_at_once(void **state)
{
	struct fixture *f = *state;
	int64_t deadline = clock_monotonic_ms() + 60000;

	put_old(f);
	store_close(f->store);
	open_relaxed(f, 3600000);
	for (int i = 0; i < 5; i++)
		assert_int_equal(put(f, "large", "e", filled('a')), STORE_OK);
	/* the old file of "large" is kept, and so is that of "deleted" */
	while (count_all_files(f) > 3 && clock_monotonic_ms() < deadline)
		clock_sleep_ms(1);
	assert_int_equal(count_all_files(f), 3);
}

/* While the store is in use, unreferenced files are removed at the next sync point. */
static void sync_points_come_by_themselves(void **state)
{
	struct fixture *f = *state;
	struct store_delete item = {.key = "k"};
	int64_t deadline = clock_monotonic_ms() + 60000;

	store_close(f->store);
	open_relaxed(f, 1);
	for (int i = 0; i < 50; i++)
		assert_int_equal(put(f, "k", "e", filled('a')), STORE_OK);
	assert_int_equal(store_delete(f->store, "b", 0, &item, 1, NULL), STORE_OK);

	while (count_files(f) && clock_monotonic_ms() < deadline)
		clock_sleep_ms(1);
	assert_int_equal(count_files(f), 0);
	/* A sync point ends by writing the mark. */
	while (!is_marked(f) && clock_monotonic_ms() < deadline)
		clock_sleep_ms(1);
	assert_true(is_marked(f));
}

/* After a close the store needs no mark, because all of it is on disk, and no surplus file is
 * left. */
static void closing_is_a_sync_point(void **state)
{
	struct fixture *f = *state;

	store_close(f->store);
	open_relaxed(f, 0);
	for (int i = 0; i < 5; i++)
		assert_int_equal(put(f, "k", "e", filled('a')), STORE_OK);
	store_close(f->store);
	f->store = NULL;
	assert_int_equal(count_files(f), 1);
	assert_false(is_marked(f));

	fixture_open(f, false);
	assert_content(f, "k", filled('a'));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_crash_of_the_process_loses_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_crash_of_the_machine_goes_back_to_the_last_sync_point, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_mark_without_a_length_trusts_no_log, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_reader_does_not_move_the_last_sync_point, setup, teardown),
		cmocka_unit_test_setup_teardown(a_note_that_failed_may_be_valid, setup, teardown),
		cmocka_unit_test_setup_teardown(
			closing_without_a_sync_goes_back_to_the_last_one, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_failed_sync_undoes_the_last_changes_in_the_same_boot, setup, teardown),
		cmocka_unit_test_setup_teardown(
			no_change_is_acknowledged_after_a_failed_sync, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_failed_sync_of_the_start_undoes_the_last_changes, setup, teardown),
		cmocka_unit_test_setup_teardown(
			files_that_no_sync_point_names_are_removed_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(sync_points_come_by_themselves, setup, teardown),
		cmocka_unit_test_setup_teardown(closing_is_a_sync_point, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
