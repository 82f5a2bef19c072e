/* Tables, JSON, times, and a log that grows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <penstock/error.h>

#include "cli/print/follow.h"
#include "cli/print/util.h"

/* Standard output of a test goes to a file. */
static int saved, written;

static void output_begin(void)
{
	char path[] = "/tmp/penstock-print-XXXXXX";

	fflush(stdout);
	saved = dup(STDOUT_FILENO);
	written = mkstemp(path);
	unlink(path);
	dup2(written, STDOUT_FILENO);
}

static const char *output_end(void)
{
	static char text[4096];
	ssize_t n;

	fflush(stdout);
	n = pread(written, text, sizeof(text) - 1, 0);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	close(written);
	text[n < 0 ? 0 : n] = '\0';
	return text;
}

static void test_columns_are_as_wide_as_their_cells(void **state)
{
	struct grid grid = grid_new("NAME", "TEXT");

	(void)state;
	grid_add(&grid, "a");
	grid_add(&grid, NULL);
	grid_addf(&grid, "%s-%d", "länger", 1);
	grid_add_cut(&grid, "one two three", 8);
	output_begin();
	grid_print(&grid);
	assert_string_equal(output_end(), "NAME      TEXT\n"
					  "a         -\n"
					  "länger-1  one two…\n");
}

static void test_control_characters_of_names_are_masked(void **state)
{
	struct grid grid = grid_new("N");

	(void)state;
	grid_add(&grid, "a\033[2Jb\nc\xc2\x9b");
	output_begin();
	grid_print(&grid);
	show_name(stdout, "x\ry\x7f\xc3\xa9");
	assert_string_equal(output_end(), "N\na?[2Jb c?\nx?y?\xc3\xa9");
}

static void test_json_has_any_bytes_and_null_for_nothing(void **state)
{
	json_t *text = json_text("a\xff\xe2\x82z"), *none = json_text("");

	(void)state;
	assert_string_equal(json_string_value(text), "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz");
	assert_true(json_is_null(none));
	json_decref(text);
	json_decref(none);
	none = json_time(0);
	assert_true(json_is_null(none));
	json_decref(none);
}

static void test_a_stream_of_json_is_a_list(void **state)
{
	struct json_stream stream = {0}, empty = {0};

	(void)state;
	output_begin();
	json_stream_add(&stream, json_pack("{s:i}", "a", 1));
	json_stream_add(&stream, json_pack("{s:i}", "a", 2));
	json_stream_end(&stream);
	json_stream_end(&empty);
	assert_string_equal(output_end(), "[\n  {\"a\":1},\n  {\"a\":2}\n]\n[]\n");
}

static void test_durations_are_in_the_unit_that_fits(void **state)
{
	static const struct {
		int64_t ms;
		const char *text;
	} cases[] = {{0, "0 ms"}, {999, "999 ms"}, {1000, "1.0 s"}, {61000, "1 min 1 s"},
		{3600000, "1 h 0 min"}, {90061000, "25 h 1 min"}};
	char text[SHOW_DURATION_SIZE];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_string_equal(show_duration(cases[i].ms, text), cases[i].text);
}

static void append(const char *path, const char *text)
{
	FILE *f = fopen(path, "ae");

	fputs(text, f);
	fclose(f);
}

static void follow_lines(int64_t lines, const char *first, const char *rest)
{
	char dir[] = "/tmp/penstock-print-XXXXXX", path[64];
	struct follow log = {.path = path, .fd = -1, .lines = lines};
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/log", dir);
	output_begin();
	assert_int_equal(follow_print(&log, &err), 0);
	assert_int_equal(log.fd, -1);
	append(path, "1\n2\n3\n");
	assert_int_equal(follow_print(&log, &err), 0);
	append(path, "4");
	assert_int_equal(follow_print(&log, &err), 0);
	append(path, "\n");
	assert_int_equal(follow_print(&log, &err), 0);
	follow_close(&log);
	unlink(path);
	rmdir(dir);
	snprintf(path, sizeof(path), "%s%s", first, rest);
	assert_string_equal(output_end(), path);
}

static void test_a_log_is_printed_as_it_grows(void **state)
{
	(void)state;
	follow_lines(-1, "1\n2\n3\n", "4\n");
	follow_lines(0, "", "4\n");
	follow_lines(2, "2\n3\n", "4\n");
	follow_lines(9, "1\n2\n3\n", "4\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_columns_are_as_wide_as_their_cells),
		cmocka_unit_test(test_control_characters_of_names_are_masked),
		cmocka_unit_test(test_json_has_any_bytes_and_null_for_nothing),
		cmocka_unit_test(test_a_stream_of_json_is_a_list),
		cmocka_unit_test(test_durations_are_in_the_unit_that_fits),
		cmocka_unit_test(test_a_log_is_printed_as_it_grows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
