/* The headers that are stored with an object. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "store/header.h"

/* A header is found by its complete name; an empty list has no headers. */
static void finds_a_header(void **state)
{
	static const char headers[] = "a\0one\0ab\0two\0:own\0";
	const char *p = NULL, *name, *value;
	size_t n = 0;
	(void)state;

	assert_string_equal(store_header_find(headers, sizeof(headers), "ab"), "two");
	assert_string_equal(store_header_find(headers, sizeof(headers), ":own"), "");
	assert_null(store_header_find(headers, sizeof(headers), "b"));
	assert_null(store_header_find(NULL, 0, "a"));
	while (store_header_next(headers, sizeof(headers), &p, &name, &value))
		n++;
	assert_int_equal(n, 3);
}

/* A new value replaces the old one, NULL removes the header, and other headers stay. */
static void replaces_a_header(void **state)
{
	_cleanup_(buf_release) struct buf old = BUF_INIT(64), set = BUF_INIT(64),
					  gone = BUF_INIT(64);
	(void)state;

	store_header_add(&old, "Content-Type", "x");
	store_header_add(&old, ":own", "1");

	store_header_replace(&set, old.data, old.len, ":own", "2");
	store_header_replace(&gone, set.data, set.len, ":own", NULL);

	assert_string_equal(store_header_find(set.data, set.len, ":own"), "2");
	assert_string_equal(store_header_find(set.data, set.len, "content-type"), "x");
	assert_int_equal(set.len, old.len);
	assert_null(store_header_find(gone.data, gone.len, ":own"));
	assert_string_equal(store_header_find(gone.data, gone.len, "content-type"), "x");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_a_header),
		cmocka_unit_test(replaces_a_header),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
