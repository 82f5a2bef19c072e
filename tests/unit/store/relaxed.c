#include "fixture.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/process.h"

#define LARGE (STORE_INLINE_MAX + 1000)

static void open_relaxed(struct fixture *f, int64_t ms)
{
	assert_int_equal(
		store_open(&f->store,
			&(struct store_options){.root = f->root, .relaxed = true, .relaxed_ms = ms},
			NULL),
		0);
}

#define MARK_SIZE 128

/* Returns the length of the mark, 0 if there is no mark. */
static ssize_t read_mark(const struct fixture *f, char mark[static MARK_SIZE])
{
	char path[128];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/relaxed", f->root);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, mark, MARK_SIZE - 1);
	if (fd >= 0)
		close(fd);
	mark[n] = '\0';
	return n;
}

static bool is_marked(const struct fixture *f)
{
	char mark[MARK_SIZE];

	return read_mark(f, mark) > 0;
}

/* Makes the next start believe that the machine crashed. */
static void pretend_another_boot(const struct fixture *f)
{
	char path[128], mark[MARK_SIZE];
	ssize_t n = read_mark(f, mark);

	assert_true(n >= PROCESS_BOOT_ID_SIZE - 1);
	memset(mark, '0', PROCESS_BOOT_ID_SIZE - 1);
	snprintf(path, sizeof(path), "%s/relaxed", f->root);
	assert_int_equal(fs_write_atomic(path, mark, (size_t)n, 0600, NULL), 0);
}

static const char *filled(char c)
{
	static char text[LARGE + 1];

	memset(text, c, LARGE);
	return text;
}

/* Changes an object in a relaxed store and deletes another, and dies. */
static void change_and_die(struct fixture *f)
{
	pid_t pid;
	int status;

	store_close(f->store);
	f->store = NULL;
	pid = fork();
	if (pid == 0) {
		struct store_delete item = {.key = "deleted"};

		open_relaxed(f, 0);
		put(f, "large", "new", filled('n'));
		put(f, "small", "new", "new");
		store_delete(f->store, "b", &item, 1, NULL);
		raise(SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_true(is_marked(f));
}

static void put_old(struct fixture *f)
{
	assert_int_equal(put(f, "large", "old", filled('o')), STORE_OK);
	assert_int_equal(put(f, "deleted", "old", filled('d')), STORE_OK);
	assert_int_equal(put(f, "small", "old", "old"), STORE_OK);
}

/* Acknowledged writes outlive the process, and opening the store as durable makes them durable. */
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

/* After a crash of the machine the store is what it was at its last sync point, whole: the files
 * that it had then are still there. */
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

/* A store of an older version marked its log with the boot id alone, and trusted none of it. */
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

/* Returns after the sync point that follows. There is none while no change is made. */
static void put_and_sync(struct fixture *f, const char *key, const char *text)
{
	char before[MARK_SIZE], mark[MARK_SIZE];

	read_mark(f, before);
	put(f, key, "e", text);
	while (read_mark(f, mark) == 0 || strcmp(mark, before) == 0)
		clock_sleep_ms(1);
}

/* A reader of another process prevents that the log is copied into the database: a crash then goes
 * back to the last sync point in the log, with the files that replaced others since the start. */
static void a_reader_does_not_move_the_last_sync_point(void **state)
{
	struct fixture *f = *state;
	char path[128];
	sqlite3 *reader;
	pid_t pid;
	int status;

	put_old(f);
	store_close(f->store);
	f->store = NULL;
	pid = fork();
	if (pid == 0) {
		open_relaxed(f, 1);
		put_and_sync(f, "large", filled('1'));
		snprintf(path, sizeof(path), "%s/meta.db", f->root);
		sqlite3_open(path, &reader);
		sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM objects", NULL, NULL, NULL);
		put_and_sync(f, "large", filled('2'));
		put_and_sync(f, "small", "second");
		atomic_store(&disk_fails, true);
		put(f, "large", "third", filled('3'));
		put(f, "small", "third", "third");
		raise(SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	pretend_another_boot(f);

	fixture_open(f, false);
	assert_content(f, "large", filled('2'));
	assert_content(f, "small", "second");
}

/* No sync point names the file of an object that was put and replaced since the last one. */
static void files_that_no_sync_point_names_are_removed_at_once(void **state)
{
	struct fixture *f = *state;

	put_old(f);
	store_close(f->store);
	open_relaxed(f, 3600000);
	for (int i = 0; i < 5; i++)
		assert_int_equal(put(f, "large", "e", filled('a')), STORE_OK);
	/* "old" of "large" is kept, and so is "deleted" */
	while (count_files(f) > 3)
		clock_sleep_ms(1);
	assert_int_equal(count_files(f), 3);
}

/* Unreferenced files are removed at the next sync point, while the store is used. */
static void sync_points_come_by_themselves(void **state)
{
	struct fixture *f = *state;
	struct store_delete item = {.key = "k"};
	int64_t deadline = clock_monotonic_ms() + 60000;

	store_close(f->store);
	open_relaxed(f, 1);
	for (int i = 0; i < 50; i++)
		assert_int_equal(put(f, "k", "e", filled('a')), STORE_OK);
	assert_int_equal(store_delete(f->store, "b", &item, 1, NULL), STORE_OK);

	while (count_files(f) && clock_monotonic_ms() < deadline)
		clock_sleep_ms(1);
	assert_int_equal(count_files(f), 0);
	/* A sync point ends with the mark. */
	while (!is_marked(f) && clock_monotonic_ms() < deadline)
		clock_sleep_ms(1);
	assert_true(is_marked(f));
}

/* A store that was closed needs no mark: all of it is on the disk, and no file is left over. */
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
		cmocka_unit_test_setup_teardown(
			files_that_no_sync_point_names_are_removed_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(sync_points_come_by_themselves, setup, teardown),
		cmocka_unit_test_setup_teardown(closing_is_a_sync_point, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
