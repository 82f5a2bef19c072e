/* The record of finished steps and iterations. */
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
#include "base/error.h"
#include "base/fs.h"
#include "run/walk/finished.h"

static char path[] = "/tmp/penstock-finished-XXXXXX";

static int make_file(void **state)
{
	int fd = mkstemp(strcpy(path, "/tmp/penstock-finished-XXXXXX"));

	(void)state;
	close(fd);
	return fd < 0 ? -1 : 0;
}

static int remove_file(void **state)
{
	(void)state;
	return unlink(path);
}

static void write_lines(const char *text)
{
	assert_int_equal(fs_write_atomic(path, text, strlen(text), 0600, NULL), 0);
}

static struct finished_steps *open_again(void)
{
	struct finished_steps *progress = NULL;

	assert_int_equal(finished_open(&progress, path, true, "this-boot", NULL), 0);
	return progress;
}

static void what_lies_in_something_finished_is_not_kept(void **state)
{
	struct finished_steps *progress;
	_cleanup_(buf_release) struct buf text = BUF_INIT(1000);

	(void)state;
	write_lines("d 0.0\n"
		    "d 0.1\n"
		    "d 0\n"
		    "d 1.i0.0\n"
		    "i 1 0\n"
		    "d 1.i1.0\n"
		    "i 1 1\n"
		    "d 1.i2.0\n"
		    "d 1.i12\n"
		    "d 3.i2\n"
		    "d 3.i10.1\n"
		    "d 31\n"
		    "d cut");

	progress = open_again();

	assert_true(finished_has(progress, "0"));
	assert_int_equal(finished_iterations(progress, "1"), 2);
	assert_true(finished_has(progress, "1.i2.0"));
	assert_true(finished_has(progress, "3.i10.1"));
	assert_true(finished_has(progress, "31"));
	assert_false(finished_has(progress, "cut"));
	finished_free(progress);
	assert_int_equal(fs_read(path, &text, NULL), 0);
	assert_null(strstr(buf_str(&text), "d 0.0"));
	assert_null(strstr(buf_str(&text), "1.i1.0"));
	assert_non_null(strstr(buf_str(&text), "1.i12"));
}

/* A parallel loop can write this file. Comparing each line with all others would take hours. */
static void a_million_iterations_are_read_at_once(void **state)
{
	enum { MANY = 1000000, LINE = 16 };
	char *text = malloc(MANY * LINE + 1);
	struct finished_steps *progress;
	size_t len = 0;

	(void)state;
	assert_non_null(text);
	for (int i = 0; i < MANY; i++)
		len += (size_t)snprintf(text + len, LINE + 1, "d 0.i%d\n", i);
	assert_int_equal(fs_write_atomic(path, text, len, 0600, NULL), 0);
	free(text);

	progress = open_again();

	assert_true(finished_has(progress, "0.i0"));
	assert_true(finished_has(progress, "0.i999999"));
	finished_free(progress);
}

static bool is_finished_after(const char *lines)
{
	struct finished_steps *progress;
	bool finished, believed;

	write_lines(lines);
	progress = open_again();
	finished = finished_has(progress, "0");
	believed = finished_is_believed(progress);
	finished_free(progress);
	assert_int_equal(finished, believed && strstr(lines, "d 0\n"));
	return believed;
}

/* A crash of the machine may lose the files of a step, although its end was recorded. */
static void after_another_boot_nothing_is_finished(void **state)
{
	(void)state;

	assert_true(is_finished_after("b this-boot\nd 0\n"));
	assert_true(is_finished_after("d 0\n")); /* older versions did not record boots */
	assert_false(is_finished_after("b other-boot\nd 0\n"));
	assert_false(is_finished_after("")); /* the record was lost, too */
	assert_true(is_finished_after("b other-boot\nd 0\ns\n"));
	assert_false(is_finished_after("b other-boot\nd 0\ns\nd 1\n"));
	assert_false(is_finished_after("b other-boot\nd 0\ns\nb third-boot\n"));
	assert_true(is_finished_after("b other-boot\nb this-boot\nd 0\n"));
}

/* The record shows the boot in which the attempt ran, or that all its files are on the disk. */
static void the_boot_and_the_sync_are_on_record(void **state)
{
	struct finished_steps *progress = NULL;
	_cleanup_(buf_release) struct buf text = BUF_INIT(1000);

	(void)state;
	assert_int_equal(unlink(path), 0);
	assert_int_equal(finished_open(&progress, path, false, "this-boot", NULL), 0);
	assert_int_equal(finished_settle(path, "/proc", NULL), 0);
	assert_true(finished_done(progress, "0"));
	finished_free(progress);
	assert_int_equal(fs_read(path, &text, NULL), 0);
	assert_string_equal(buf_str(&text), "b this-boot\nd 0\n");

	assert_int_equal(finished_settle(path, "/proc", NULL), 0);

	buf_clear(&text);
	assert_int_equal(fs_read(path, &text, NULL), 0);
	assert_string_equal(buf_str(&text), "b this-boot\nd 0\ns\n");
}

static void a_record_that_cannot_be_read_has_one_code(void **state)
{
	struct finished_steps *progress = NULL;
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r;

	(void)state;
	r = finished_open(&progress, "/tmp", true, NULL, &err);

	assert_true(r < 0);
	assert_int_equal(r, -(int)err.code);
	assert_null(progress);
}

static void a_reader_writes_nothing(void **state)
{
	static const char lines[] = "b other-boot\nd 0\nd 1.i0\nd 1.i7\nd 1.i8.0\nd 11.i2\ni 2 4\n";
	struct finished_steps *progress = NULL;
	_cleanup_(buf_release) struct buf text = BUF_INIT(1000);

	(void)state;
	write_lines(lines);
	assert_int_equal(finished_read(&progress, path, NULL, NULL), 0);
	assert_true(finished_has(progress, "0"));
	assert_int_equal(finished_parallel(progress, "1"), 2);
	assert_int_equal(finished_iterations(progress, "2"), 5);
	finished_free(progress);
	assert_int_equal(fs_read(path, &text, NULL), 0);
	assert_string_equal(buf_str(&text), lines);
	assert_int_equal(finished_read(&progress, path, "this-boot", NULL), 0);
	assert_false(finished_has(progress, "0"));
	finished_free(progress);
	unlink(path);
	assert_int_equal(finished_read(&progress, path, NULL, NULL), 0);
	assert_false(finished_has(progress, "0"));
	finished_free(progress);
	assert_int_equal(access(path, F_OK), -1);
	write_lines("");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			after_another_boot_nothing_is_finished, make_file, remove_file),
		cmocka_unit_test_setup_teardown(
			the_boot_and_the_sync_are_on_record, make_file, remove_file),
		cmocka_unit_test_setup_teardown(
			what_lies_in_something_finished_is_not_kept, make_file, remove_file),
		cmocka_unit_test_setup_teardown(
			a_million_iterations_are_read_at_once, make_file, remove_file),
		cmocka_unit_test(a_record_that_cannot_be_read_has_one_code),
		cmocka_unit_test_setup_teardown(a_reader_writes_nothing, make_file, remove_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
