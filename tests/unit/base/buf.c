#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/error.h"

/* What was added can be read back, as bytes and as a string. */
static void a_buffer_holds_what_was_added(void **state)
{
	struct buf b = BUF_INIT(100);

	(void)state;
	buf_add_str(&b, "one ");
	buf_printf(&b, "%d", 2);
	buf_add_char(&b, '!');

	assert_false(buf_failed(&b));
	assert_string_equal(buf_str(&b), "one 2!");
	assert_int_equal(b.len, 6);
	buf_consume(&b, 4);
	assert_string_equal(buf_str(&b), "2!");
	buf_release(&b);
}

/* The limit is exact, failing sticks, and the error names the contents and the limit. */
static void a_buffer_refuses_what_exceeds_its_limit(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct buf b = BUF_INIT(4);

	(void)state;
	assert_int_equal(buf_add_str(&b, "1234"), 0);
	assert_int_equal(buf_add_str(&b, "5"), -1);
	assert_int_equal(buf_add_str(&b, ""), -1);

	assert_string_equal(buf_str(&b), "1234");
	assert_int_equal(buf_error(&b, "the list", &err), -PENSTOCK_E_LIMIT);
	assert_string_equal(err.message, "the list is longer than the limit of 4 bytes");
	assert_null(buf_take(&b));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_buffer_holds_what_was_added),
		cmocka_unit_test(a_buffer_refuses_what_exceeds_its_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
