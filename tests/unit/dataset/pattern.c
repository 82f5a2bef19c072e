/* URLs that name several shards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "dataset/source/internal.h"

/* Returns the code; `out` has the names, separated by spaces. */
static int expand(const char *text, struct buf *out)
{
	_cleanup_(strlist_release) struct strlist names = {0};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r = source_expand("https://host/", text, &names, &err);

	buf_clear(out);
	for (size_t i = 0; r == 0 && i < names.n; i++)
		buf_printf(out, "%s%s", i ? " " : "", names.items[i]);
	if (r < 0)
		assert_non_null(strstr(err.message, "https://host/"));
	return r;
}

static void braces_are_replaced_by_each_of_their_values(void **state)
{
	static const char *const cases[][2] = {
		{"a.tar", "a.tar"},
		{"a-{1..3}.tar", "a-1.tar a-2.tar a-3.tar"},
		{"{8..11}", "8 9 10 11"},
		{"{08..11}", "08 09 10 11"},
		{"{0..2}", "0 1 2"},
		{"{1..003}", "001 002 003"},
		{"{5..5}", "5"},
		{"{a,bc,}x", "ax bcx x"},
		{"{1..2,5}", "1..2 5"},
		{"{a,b}/{0..1}.npy", "a/0.npy a/1.npy b/0.npy b/1.npy"},
		{"{9223372036854775806..9223372036854775807}",
			"9223372036854775806 9223372036854775807"},
	};
	_cleanup_(buf_release) struct buf out = BUF_INIT(1 << 20);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(expand(cases[i][0], &out), 0);
		assert_string_equal(buf_str(&out), cases[i][1]);
	}
}

static void other_braces_are_refused(void **state)
{
	static const char *const cases[] = {"{", "}", "{}", "{a}", "{1..}", "{..1}", "{2..1}",
		"{a..c}", "{-1..1}", "{1..2..3}", "{1,{2,3}}", "{1..2}}", "}{1..2}",
		"{1..99999999999999999999}"};
	_cleanup_(buf_release) struct buf out = BUF_INIT(1 << 20);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(expand(cases[i], &out), -(int)PENSTOCK_E_INVALID);
}

static void as_many_names_as_the_limit_are_allowed(void **state)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(1 << 24);

	(void)state;
	assert_int_equal(expand("{1..100000}", &out), 0);
	assert_int_equal(expand("{1..100}{1..1000}", &out), 0);
	assert_int_equal(expand("{0..100000}", &out), -(int)PENSTOCK_E_LIMIT);
	assert_int_equal(expand("{0..9223372036854775807}", &out), -(int)PENSTOCK_E_LIMIT);
	assert_int_equal(expand("{0..999}{0..99}{a,b}", &out), -(int)PENSTOCK_E_LIMIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(braces_are_replaced_by_each_of_their_values),
		cmocka_unit_test(other_braces_are_refused),
		cmocka_unit_test(as_many_names_as_the_limit_are_allowed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
