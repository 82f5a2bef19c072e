#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/error.h"

/* Added bytes can be read as bytes and as a string. */
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

/* The limit is exact, a failed addition stays failed, and the error names the contents and the
 * limit. */
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
	assert_non_null(strstr(err.message, " 4 "));
	assert_null(buf_take(&b));
}

/* Reserved memory counts only after it is filled. */
static void room_is_counted_when_it_is_filled(void **state)
{
	struct buf b = BUF_INIT(1000);
	char *room;

	(void)state;
	buf_add_str(&b, "ab");
	room = buf_reserve(&b, 900);
	assert_non_null(room);
	assert_int_equal(b.len, 2);
	memcpy(room, "cd", 2);
	buf_grown(&b, 2);
	assert_string_equal(buf_str(&b), "abcd");
	assert_null(buf_reserve(&b, 997));
	assert_true(buf_failed(&b));
	buf_release(&b);
}

/* buf_take() gives the contents to the caller; the buffer is then empty and has the same limit. */
static void contents_can_be_taken_over(void **state)
{
	struct buf b = BUF_INIT(10);
	char *taken;

	(void)state;
	buf_add_str(&b, "0123456789");
	taken = buf_take(&b);
	assert_string_equal(taken, "0123456789");
	assert_int_equal(b.len, 0);
	assert_string_equal(buf_str(&b), "");
	free(taken);

	assert_int_equal(buf_add(&b, "x\0y", 3), 0);
	buf_truncate(&b, 1);
	assert_string_equal(buf_str(&b), "x");
	assert_int_equal(buf_printf(&b, "%s", "longer than ten"), -1);
	buf_clear(&b);
	assert_int_equal(buf_add_str(&b, "again"), 0);
	assert_string_equal(buf_str(&b), "again");
	buf_release(&b);
	buf_release(&b);
}

/* Many small additions give the same result as one addition of the whole limit. */
static void a_buffer_grows_to_its_limit(void **state)
{
	struct buf b = BUF_INIT(100000);
	char big[1000];

	(void)state;
	memset(big, 'x', sizeof(big));
	for (int i = 0; i < 99; i++)
		assert_int_equal(buf_add(&b, big, sizeof(big)), 0);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(buf_add_char(&b, 'y'), 0);
	assert_int_equal(b.len, 100000);
	assert_int_equal(strlen(buf_str(&b)), 100000);
	assert_int_equal(buf_add_char(&b, 'z'), -1);
	assert_true(b.cap <= 100001);
	buf_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_buffer_holds_what_was_added),
		cmocka_unit_test(a_buffer_refuses_what_exceeds_its_limit),
		cmocka_unit_test(room_is_counted_when_it_is_filled),
		cmocka_unit_test(contents_can_be_taken_over),
		cmocka_unit_test(a_buffer_grows_to_its_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
