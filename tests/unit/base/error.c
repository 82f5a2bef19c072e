#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"

/* error_set() returns the negative code and formats the message. */
static void a_raise_returns_its_code(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	(void)state;
	assert_int_equal(error_set(&err, PENSTOCK_E_LIMIT, "%d of %s", 3, "x"), -PENSTOCK_E_LIMIT);
	assert_int_equal(err.code, PENSTOCK_E_LIMIT);
	assert_string_equal(err.message, "3 of x");
	assert_int_equal(error_set(NULL, PENSTOCK_E_LIMIT, "not reported"), -PENSTOCK_E_LIMIT);
}

/* errno determines the code and the last part of the message. */
static void errno_gives_code_and_text(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	(void)state;
	assert_int_equal(error_errno(&err, ENOSPC, "cannot write %s", "f"), -PENSTOCK_E_NO_SPACE);
	assert_string_equal(err.message, "cannot write f: No space left on device");
	assert_int_equal(error_code_of_errno(ENOENT), PENSTOCK_E_NOT_FOUND);
	assert_int_equal(error_code_of_errno(EACCES), PENSTOCK_E_PERMISSION);
	assert_int_equal(error_code_of_errno(ECONNREFUSED), PENSTOCK_E_UNAVAILABLE);
	assert_int_equal(error_code_of_errno(EIO), PENSTOCK_E_IO);
}

/* Texts of libraries and foreign names can contain line breaks and control characters; a message is
 * still one line of plain text. */
static void a_message_is_one_line(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	(void)state;
	error_set(&err, PENSTOCK_E_PROTOCOL, "it said %s", "one\ntwo\r\n\x1b[2Jthree\n\n");

	assert_string_equal(err.message, "it said one two  ?[2Jthree");
}

/* Context is added before and after the message, and the code does not change. */
static void context_is_put_around_a_message(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	(void)state;
	error_set(&err, PENSTOCK_E_NOT_FOUND, "no such key");

	assert_int_equal(error_prefix(&err, "run %s", "7"), -PENSTOCK_E_NOT_FOUND);
	error_suffix(&err, " (attempt %d)", 2);
	assert_string_equal(err.message, "run 7: no such key (attempt 2)");
	assert_int_equal(err.code, PENSTOCK_E_NOT_FOUND);
}

/* A caller that passes no error object gets the original code through every layer. */
static void context_keeps_the_code_of_an_error_without_a_message(void **state)
{
	_cleanup_error_ struct penstock_error other = PENSTOCK_ERROR_INIT;
	struct penstock_error own = PENSTOCK_ERROR_INIT;

	(void)state;
	error_set(NULL, PENSTOCK_E_NOT_FOUND, "no such key");
	error_set(&other, PENSTOCK_E_LIMIT, "in another place");
	assert_int_equal(error_prefix(NULL, "run %s", "7"), -PENSTOCK_E_NOT_FOUND);
	error_errno(NULL, ENOSPC, "cannot write 'f'");
	assert_int_equal(error_prefix(NULL, "x"), -PENSTOCK_E_NO_SPACE);
	error_memory(NULL);
	assert_int_equal(error_prefix(NULL, "x"), -PENSTOCK_E_MEMORY);
	error_set(&own, PENSTOCK_E_TIMEOUT, "late");
	error_move(NULL, &own);
	assert_int_equal(error_prefix(NULL, "x"), -PENSTOCK_E_TIMEOUT);
	/* Later calls that succeed do not change the code. */
	assert_int_equal(error_move(NULL, &own), 0);
	assert_int_equal(error_prefix(NULL, "x"), -PENSTOCK_E_TIMEOUT);
}

/* A moved error has one owner, and its source is empty afterwards. */
static void errors_move(void **state)
{
	struct penstock_error from = PENSTOCK_ERROR_INIT;
	struct penstock_error to = PENSTOCK_ERROR_INIT;

	(void)state;
	error_set(&to, PENSTOCK_E_IO, "the older one");
	error_set(&from, PENSTOCK_E_TIMEOUT, "late");

	assert_int_equal(error_move(&to, &from), -PENSTOCK_E_TIMEOUT);
	assert_null(from.message);
	assert_string_equal(to.message, "late");
	assert_int_equal(error_move(NULL, &to), -PENSTOCK_E_TIMEOUT);
	assert_null(to.message);
	penstock_error_release(&to);
	penstock_error_release(NULL);
}

/* Reporting that memory ran out allocates no memory; the error can be released and replaced like
 * any other error. */
static void out_of_memory_is_an_error_like_others(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	(void)state;
	assert_int_equal(error_memory(&err), -PENSTOCK_E_MEMORY);
	assert_string_equal(err.message, "out of memory");
	error_set(&err, PENSTOCK_E_IO, "another");
	assert_string_equal(err.message, "another");
	assert_int_equal(error_memory(&err), -PENSTOCK_E_MEMORY);
	assert_int_equal(error_prefix(&err, "x"), -PENSTOCK_E_MEMORY);
}

/* Every code has its own name. */
static void codes_have_names(void **state)
{
	(void)state;
	for (int i = 0; i < PENSTOCK_CODE_COUNT_; i++) {
		assert_non_null(penstock_code_name((enum penstock_code)i));
		for (int j = 0; j < i; j++)
			assert_string_not_equal(penstock_code_name((enum penstock_code)i),
				penstock_code_name((enum penstock_code)j));
	}
	assert_string_equal(penstock_code_name((enum penstock_code)999), "unknown");
}

static void the_reason_comes_before_the_hint(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	(void)state;
	error_errno(&err, ENOSPC, "cannot write '%s'; set TMPDIR to another directory", "a; b");
	assert_string_equal(err.message,
		"cannot write 'a; b': No space left on device; set TMPDIR to another directory");
	error_errno(&err, ENOENT, "cannot open '%s'", "a; b");
	assert_string_equal(err.message, "cannot open 'a; b': No such file or directory");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_reason_comes_before_the_hint),
		cmocka_unit_test(a_raise_returns_its_code),
		cmocka_unit_test(errno_gives_code_and_text),
		cmocka_unit_test(a_message_is_one_line),
		cmocka_unit_test(context_is_put_around_a_message),
		cmocka_unit_test(context_keeps_the_code_of_an_error_without_a_message),
		cmocka_unit_test(errors_move),
		cmocka_unit_test(out_of_memory_is_an_error_like_others),
		cmocka_unit_test(codes_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
