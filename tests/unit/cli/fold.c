/* Errors with the same cause are combined. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include <penstock/error.h>

#include "base/error.h"
#include "cli/print/fold.h"

static char noted[256];

static void note(void *cookie, const char *text)
{
	(void)cookie;
	snprintf(noted, sizeof(noted), "%s", text);
}

static void test_alike_errors_are_shown_ten_times(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct fold fold = {0};
	unsigned shown = 0;
	char name[16];

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "d/f%u x", i);
		error_set(&err, PENSTOCK_E_PERMISSION, "PUT s3://b/%s: AccessDenied: no", name);
		shown += fold_shows(&fold, name, NULL, &err);
	}
	error_set(&err, PENSTOCK_E_NOT_FOUND, "%s: missing", name);
	assert_true(fold_shows(&fold, name, NULL, &err));
	fold_end(&fold, note, NULL);

	assert_int_equal(shown, FOLD_SHOWN);
	assert_non_null(strstr(noted, "990 "));
	assert_non_null(strstr(noted, "AccessDenied: no"));
}

/* The name is a single letter, which also occurs in the words of the message. */
static void test_a_short_name_is_a_word(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct fold fold = {0};
	unsigned shown = 0;

	(void)state;
	for (int c = 'a'; c < 'z'; c++) {
		const char name[] = {c, '\0'};

		error_set(&err, PENSTOCK_E_IO, "cannot read %s: damaged", name);
		shown += fold_shows(&fold, name, NULL, &err);
	}
	fold_end(&fold, note, NULL);

	assert_int_equal(shown, FOLD_SHOWN);
}

static void test_an_error_that_repeats_is_shown_once(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct fold fold = {0};

	(void)state;
	noted[0] = '\0';
	error_set(&err, PENSTOCK_E_NOT_FOUND, "PUT s3://b/a: NoSuchBucket");
	err.repeats = 1;
	assert_true(fold_shows(&fold, "a", "s3://b/a", &err));
	assert_false(fold_shows(&fold, NULL, NULL, &err));
	fold_end(&fold, note, NULL);

	assert_string_equal(noted, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alike_errors_are_shown_ten_times),
		cmocka_unit_test(test_a_short_name_is_a_word),
		cmocka_unit_test(test_an_error_that_repeats_is_shown_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
