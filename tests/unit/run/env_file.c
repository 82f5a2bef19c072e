#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/error.h"
#include "run/step/env_file.h"

static struct strlist parse(const char *text)
{
	struct strlist env = {0};

	assert_int_equal(env_file_parse(text, strlen(text), &env, NULL), 0);
	return env;
}

/* Commas, quotes and equals signs are kept. DeepSquare's own runner broke such values. */
static void values_keep_every_character(void **state)
{
	struct strlist env = parse("A=1,2,3\nB=say \"hi\" 'you'\nC=x=y=z\nEMPTY=\nA=4");

	(void)state;
	assert_string_equal(strlist_get(&env, "A"), "4");
	assert_string_equal(strlist_get(&env, "B"), "say \"hi\" 'you'");
	assert_string_equal(strlist_get(&env, "C"), "x=y=z");
	assert_string_equal(strlist_get(&env, "EMPTY"), "");
	strlist_release(&env);
}

/* KEY<<MARK starts a value of several lines, without the last newline. */
static void blocks_carry_several_lines(void **state)
{
	struct strlist env = parse("NOTE<<END\none\ntwo = 2\n\nEND\nNONE<<E\nE\nA=1\n");

	(void)state;
	assert_string_equal(strlist_get(&env, "NOTE"), "one\ntwo = 2\n");
	assert_string_equal(strlist_get(&env, "NONE"), "");
	assert_string_equal(strlist_get(&env, "A"), "1");
	strlist_release(&env);
}

/* Comments, invalid names and the two forbidden variables are skipped. */
static void other_lines_are_skipped(void **state)
{
	struct strlist env = parse(
		"# A=1\n1B=2\nno equals\n=x\nPATH=/evil\nLD_LIBRARY_PATH=/evil\n");

	(void)state;
	assert_int_equal(env.n, 0);
	strlist_release(&env);
}

/* A block without its end mark would contain the rest of the file, so it is an error that names the
 * key. */
static void an_unfinished_block_is_named(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct strlist env = {0};
	const char *text = "KEY<<END\none\n";

	(void)state;
	assert_int_equal(env_file_parse(text, strlen(text), &env, &err), -PENSTOCK_E_INVALID);
	assert_non_null(strstr(err.message, "KEY<<END"));
	strlist_release(&env);
}

static struct env_file_odd check(const char *text, size_t from)
{
	struct env_file_odd odd;

	env_file_check(text, strlen(text), from, &odd);
	return odd;
}

/* Lines without an effect are counted, and the numbers of these lines are reported; lines of a long
 * value do not count. */
static void lines_that_set_nothing_are_counted(void **state)
{
	const char *text = "# A=1\nA=1\nexport B=2\nN<<END\nno equals\nEND\n\nPATH=/x\n1=2\nX\n";
	struct env_file_odd odd = check(text, 0);

	(void)state;
	assert_int_equal(odd.n, 4);
	assert_int_equal(odd.lines[0], 3);
	assert_int_equal(odd.lines[1], 8);
	assert_int_equal(odd.lines[2], 9);
	assert_int_equal(odd.whole, strlen(text));
	assert_string_equal(odd.block, "");
	odd = check(text, (size_t)(strstr(text, "1=2") - text));
	assert_int_equal(odd.n, 2);
	assert_int_equal(odd.lines[0], 9);
}

/* Two kinds of incomplete text are distinguished: a line without a newline, and a value without its
 * end mark. */
static void what_is_whole_ends_before_what_is_not(void **state)
{
	struct env_file_odd odd = check("A=1\nB<<END\none\nEN\nC=3\n", 0);

	(void)state;
	assert_string_equal(odd.block, "B<<END");
	assert_int_equal(odd.whole, 4);
	assert_int_equal(odd.n, 0);
	assert_int_equal(check("A=1\nB=2", 0).whole, 4);
	assert_int_equal(check("B<<E\nx\nE", 0).whole, 8);
	assert_string_equal(check("A<<\nx\n", 0).block, "A<<");
	assert_string_equal(check("A<<\033[m\nx\n", 0).block, "A<<?[m");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_keep_every_character),
		cmocka_unit_test(blocks_carry_several_lines),
		cmocka_unit_test(other_lines_are_skipped),
		cmocka_unit_test(an_unfinished_block_is_named),
		cmocka_unit_test(lines_that_set_nothing_are_counted),
		cmocka_unit_test(what_is_whole_ends_before_what_is_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
