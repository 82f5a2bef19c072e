/* The record of live executions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "run/process/live.h"

static char dir[] = "/tmp/penstock-live-XXXXXX";
static struct live_files *files;

static int make_run(void **state)
{
	(void)state;
	return mkdtemp(strcpy(dir, "/tmp/penstock-live-XXXXXX")) &&
			       live_files_new(&files, dir, NULL) == 0
		       ? 0
		       : -1;
}

static int remove_run(void **state)
{
	(void)state;
	live_files_free(files);
	return fs_remove_tree(dir, NULL);
}

/* Begins an execution whose only task is this process. */
static struct live_file *begin(unsigned long serial, const char *name, const char *group)
{
	struct live_step step = {.serial = serial, .name = (char *)(uintptr_t)name, .cwd = dir};
	struct live_file *file = NULL;

	assert_int_equal(strlist_add(&step.cgroups, group), 0);
	assert_int_equal(live_begin(files, &step, &file, NULL), 0);
	strlist_release(&step.cgroups);
	return file;
}

static void start(const struct live_file *file, unsigned long serial)
{
	pid_t self = getpid();
	struct live_step step = {.serial = serial, .pids = &self, .n = 1};

	assert_int_equal(live_started(file, &step, NULL), 0);
}

static int describe(void *cookie, const struct live_step *step)
{
	buf_printf(cookie, "%lu %s %s", step->serial, step->name,
		step->cgroups.n ? step->cgroups.items[0] : "-");
	for (size_t i = 0; i < step->n; i++)
		buf_add_str(cookie, step->pids[i] == getpid() ? " here" : " gone");
	buf_add_char(cookie, '\n');
	return 0;
}

static void assert_lives(const char *wanted)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(1000);

	live_each(dir, describe, &text);
	assert_string_equal(buf_str(&text), wanted);
}

/* Returns the path of the n-th file, from 0. */
static char *path_of(unsigned long n)
{
	char *path = NULL;

	assert_true(asprintf(&path, "%s/live/%lu", dir, (1UL << 31) + n) > 0);
	return path;
}

static void groups_are_known_before_tasks(void **state)
{
	struct live_file *file = begin(7, "train", "/group");

	(void)state;
	assert_lives("7 train /group\n");
	start(file, 7);
	assert_lives("7 train /group here\n");
	live_over(files, file);
	assert_lives("");
}

static void the_next_one_takes_the_file_and_nothing_of_the_last(void **state)
{
	_cleanup_free_ char *second = path_of(1);
	struct live_file *file = begin(8, "one", "/a");

	(void)state;
	start(file, 8);
	live_over(files, file);
	/* The file still has the second line of the previous execution, at the same offset as that
	 * of the next one. */
	file = begin(9, "two", "/b");
	assert_lives("9 two /b\n");
	start(file, 9);
	assert_lives("9 two /b here\n");
	live_over(files, file);
	assert_int_equal(access(second, F_OK), -1);
}

static void several_come_in_the_order_of_their_starts(void **state)
{
	struct live_file *first = begin(1, "first", "/a");
	struct live_file *second = begin(2, "second", "/b");

	(void)state;
	start(first, 1);
	start(second, 2);
	assert_lives("1 first /a here\n2 second /b here\n");
	live_over(files, first);
	first = begin(3, "third", "/c");
	assert_lives("2 second /b here\n3 third /c\n");
	live_over(files, first);
	live_over(files, second);
}

static void cut_to(const char *path, size_t len)
{
	assert_int_equal(truncate(path, (off_t)len), 0);
}

static void what_a_killed_writer_left_is_taken_as_far_as_it_is_whole(void **state)
{
	_cleanup_free_ char *path = path_of(0);
	_cleanup_(buf_release) struct buf text = BUF_INIT(4096);
	struct live_file *file = begin(4, "torn", "/g");
	size_t first;

	(void)state;
	start(file, 4);
	assert_int_equal(fs_read(path, &text, NULL), 0);
	first = (size_t)(strchr(buf_str(&text), '\n') - buf_str(&text)) + 1;
	for (size_t len = text.len; len-- > first;) {
		cut_to(path, len);
		assert_lives("4 torn /g\n");
	}
	/* If the first line is incomplete, no process has joined the groups of the execution
	 * yet. */
	cut_to(path, first - 1);
	assert_lives("");
	cut_to(path, first / 2);
	assert_lives("");
	live_over(files, file);
}

static void a_line_that_is_written_over_half_is_not_believed(void **state)
{
	_cleanup_free_ char *path = path_of(0);
	_cleanup_(buf_release) struct buf text = BUF_INIT(4096);
	struct live_file *file = begin(5, "aaaa", "/g");
	char *name;

	(void)state;
	assert_int_equal(fs_read(path, &text, NULL), 0);
	name = strstr(text.data, "aaaa");
	assert_non_null(name);
	memcpy(name, "bb", 2);
	assert_int_equal(fs_write_atomic(path, text.data, text.len, 0600, NULL), 0);
	assert_lives("");
	live_over(files, file);
}

static void one_with_a_file_of_its_own_is_read_alike(void **state)
{
	pid_t self = getpid();
	struct live_step step = {
		.serial = 30,
		.name = (char *)(uintptr_t) "rank",
		.cwd = dir,
		.node = (char *)(uintptr_t) "node1",
		.pids = &self,
		.n = 1,
	};
	_cleanup_free_ char *node = NULL;
	struct live_file *file;

	(void)state;
	/* An execution with a file of its own may have any number, here 0 and then 30. */
	step.serial = 0;
	assert_int_equal(live_write(dir, &step, NULL), 0);
	file = begin(1, "here", "/g");
	assert_lives("0 rank - here\n1 here /g\n");
	live_remove(dir, 0);
	assert_lives("1 here /g\n");
	live_over(files, file);
	step.serial = 30;
	assert_int_equal(live_write(dir, &step, NULL), 0);
	assert_lives("30 rank - here\n");
	node = live_node(dir, 30);
	assert_string_equal(node, "node1");
	live_remove(dir, 30);
	assert_lives("");
	assert_null(live_node(dir, 30));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_run, remove_run)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(groups_are_known_before_tasks),
		TEST(the_next_one_takes_the_file_and_nothing_of_the_last),
		TEST(several_come_in_the_order_of_their_starts),
		TEST(what_a_killed_writer_left_is_taken_as_far_as_it_is_whole),
		TEST(a_line_that_is_written_over_half_is_not_believed),
		TEST(one_with_a_file_of_its_own_is_read_alike),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
