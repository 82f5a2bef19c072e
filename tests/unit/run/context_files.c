/* The list of a context's files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "run/workdir/context_files.h"

static char path[] = "/tmp/penstock-context-XXXXXX";

static int make_file(void **state)
{
	int fd = mkstemp(strcpy(path, "/tmp/penstock-context-XXXXXX"));

	(void)state;
	close(fd);
	return fd < 0 ? -1 : 0;
}

static int remove_file(void **state)
{
	(void)state;
	return unlink(path);
}

static void add(struct context_files *files, const char *name, char digit, time_t at)
{
	const struct stat st = {.st_mode = S_IFREG | 0644,
		.st_size = 5,
		.st_ino = 7,
		.st_mtim = {.tv_sec = at, .tv_nsec = 3}};
	struct context_file *f = context_files_add(files, name, &st);

	assert_non_null(f);
	memset(f->sum, digit, sizeof(f->sum) - 1);
	f->sum[sizeof(f->sum) - 1] = '\0';
}

static void names_of_any_kind_are_read_back(void **state)
{
	struct context_files files = {0}, again = {0};
	char digest[CONTEXT_SUM_SIZE], second[CONTEXT_SUM_SIZE];

	(void)state;
	add(&files, "b\nc d", 'b', 2);
	add(&files, " leading", 'a', 1);
	context_files_sort(&files);

	assert_int_equal(context_files_write(&files, path, NULL), 0);
	assert_int_equal(context_files_read(&again, path, NULL), 0);

	assert_int_equal(again.n, 2);
	assert_int_equal(context_files_changes(&files, &again, &(struct buf)BUF_INIT(100)), 0);
	assert_true(context_file_is_untouched(&files.items[1], &again.items[1]));
	assert_non_null(context_files_find(&again, " leading"));
	assert_null(context_files_find(&again, "leading"));
	assert_int_equal(context_files_digest(&files, digest, NULL), 0);
	assert_int_equal(context_files_digest(&again, second, NULL), 0);
	assert_string_equal(digest, second);
	context_files_release(&files);
	context_files_release(&again);
}

static void changes_are_named(void **state)
{
	_cleanup_(buf_release) struct buf names = BUF_INIT(1000);
	struct context_files before = {0}, now = {0};

	(void)state;
	add(&before, "changed", 'a', 1);
	add(&before, "gone", 'a', 1);
	add(&before, "same", 'a', 1);
	add(&now, "changed", 'b', 1);
	add(&now, "new1", 'a', 1);
	add(&now, "new2", 'a', 1);
	add(&now, "same", 'a', 2);

	assert_int_equal(context_files_changes(&before, &now, &names), 4);

	assert_string_equal(buf_str(&names), "changed, gone, new1 and 1 more");
	assert_false(context_file_is_untouched(&before.items[2], &now.items[3]));
	context_files_release(&before);
	context_files_release(&now);
}

static void a_damaged_list_is_an_empty_one(void **state)
{
	struct context_files files = {0};

	(void)state;
	assert_int_equal(fs_write_atomic(path, "aa 0 1 1 1", 11, 0600, NULL), 0);

	assert_int_equal(context_files_read(&files, path, NULL), 0);

	assert_int_equal(files.n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			names_of_any_kind_are_read_back, make_file, remove_file),
		cmocka_unit_test(changes_are_named),
		cmocka_unit_test_setup_teardown(
			a_damaged_list_is_an_empty_one, make_file, remove_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
