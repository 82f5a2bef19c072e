#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/error.h"
#include "run/env_file.h"

static struct strlist parse(const char *text)
{
	struct strlist env = {0};

	assert_int_equal(env_file_parse(text, strlen(text), &env, NULL), 0);
	return env;
}

/* What broke in the original: commas, quotes and equals signs stay as they are. */
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

/* KEY<<MARK carries several lines, without the last newline. */
static void blocks_carry_several_lines(void **state)
{
	struct strlist env = parse("NOTE<<END\none\ntwo = 2\n\nEND\nNONE<<E\nE\nA=1\n");

	(void)state;
	assert_string_equal(strlist_get(&env, "NOTE"), "one\ntwo = 2\n");
	assert_string_equal(strlist_get(&env, "NONE"), "");
	assert_string_equal(strlist_get(&env, "A"), "1");
	strlist_release(&env);
}

/* Comments, names that are none, and the two variables nobody may set are passed over. */
static void other_lines_are_skipped(void **state)
{
	struct strlist env = parse(
		"# A=1\n1B=2\nno equals\n=x\nPATH=/evil\nLD_LIBRARY_PATH=/evil\n");

	(void)state;
	assert_int_equal(env.n, 0);
	strlist_release(&env);
}

/* An unfinished block would swallow the rest: it is an error that names the key. */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_keep_every_character),
		cmocka_unit_test(blocks_carry_several_lines),
		cmocka_unit_test(other_lines_are_skipped),
		cmocka_unit_test(an_unfinished_block_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
