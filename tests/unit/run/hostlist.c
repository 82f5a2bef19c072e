#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "run/cluster/hostlist.h"
#include "base/limits.h"

/* Appends the names to `out`, separated by spaces. */
static void joined(const char *text, struct buf *out)
{
	_cleanup_(strlist_release) struct strlist names = {0};

	assert_int_equal(hostlist_expand(text, &names, NULL), 0);
	for (size_t i = 0; i < names.n; i++)
		buf_printf(out, "%s%s", i ? " " : "", names.items[i]);
}

static void check(const char *text, const char *expected)
{
	_cleanup_(buf_release) struct buf names = BUF_INIT(MIB);

	joined(text, &names);
	assert_string_equal(buf_str(&names), expected);
}

/* Ranges, leading zeros, several brackets and several items are expanded in Slurm's order of the
 * nodes. */
static void lists_are_expanded_in_the_order_of_the_nodes(void **state)
{
	(void)state;
	check("login", "login");
	check("a,b,a", "a b a");
	check("n[1-3,7]", "n1 n2 n3 n7");
	check("n[01-03]", "n01 n02 n03");
	check("n[8-11]", "n8 n9 n10 n11");
	check("n[08-11,100]", "n08 n09 n10 n11 n100");
	check("n[1-2]-ib[01-02],login", "n1-ib01 n1-ib02 n2-ib01 n2-ib02 login");
	check("[1-2]x", "1x 2x");
	check("r[0-1][0-1]", "r00 r01 r10 r11");
	check("gpu-a100.cluster.local", "gpu-a100.cluster.local");
}

/* Programs get each name as a separate word. */
static void lists_are_expanded_into_words(void **state)
{
	_cleanup_free_ char *words = hostlist_words("n[01-02],login");

	(void)state;
	assert_string_equal(words, "n01 n02 login");
	assert_null(hostlist_words("n["));
}

/* An invalid list is refused, and none of its hosts are added. */
static void what_is_no_list_is_refused_as_a_whole(void **state)
{
	static const char *const bad[] = {"", ",", "a,", ",a", "n[", "n]", "n[]", "n[1", "n1]",
		"n[3-1]", "n[1-]", "n[-1]", "n[1,]", "n[a]", "n[1-2-3]", "n[[1]]", "a b", "a\tb",
		"n[1x]", "n[1234567890123456789]", "n[1][2][3][4][5][6][7][8][9]"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_(strlist_release) struct strlist names = {0};
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

		assert_int_equal(hostlist_expand(bad[i], &names, &err), -PENSTOCK_E_INVALID);
		assert_int_equal(names.n, 0);
	}
}

/* A short text that names more hosts than the limit is refused, and does not fill the memory. */
static void a_short_text_that_names_too_many_is_refused(void **state)
{
	static const char *const large[] = {"n[0-16384]", "n[0-999999999999999999]",
		"n[0-9][0-9][0-9][0-9][0-9]", "a,n[1-16383],b"};
	_cleanup_(strlist_release) struct strlist most = {0};

	(void)state;
	assert_int_equal(hostlist_expand("n[0-16383]", &most, NULL), 0);
	assert_int_equal(most.n, LIMIT_HOSTLIST);
	for (size_t i = 0; i < ARRAY_SIZE(large); i++) {
		_cleanup_(strlist_release) struct strlist names = {0};

		assert_int_equal(hostlist_expand(large[i], &names, NULL), -PENSTOCK_E_LIMIT);
		assert_int_equal(names.n, 0);
	}
}

/* A name of up to 255 bytes is valid. */
static void names_are_as_long_as_those_of_dns(void **state)
{
	_cleanup_(strlist_release) struct strlist names = {0};
	char name[258];

	(void)state;
	memset(name, 'a', sizeof(name) - 1);
	name[256] = '\0';
	assert_int_equal(hostlist_expand(name, &names, NULL), -PENSTOCK_E_LIMIT);
	name[255] = '\0';
	assert_int_equal(hostlist_expand(name, &names, NULL), 0);
	assert_string_equal(names.items[0], name);
}

/* Slurm also shortens the list of the tasks on each node. */
static void tasks_of_a_node_are_read_from_the_shortened_list(void **state)
{
	(void)state;
	assert_int_equal(hostlist_count("2", 0), 2);
	assert_int_equal(hostlist_count("2(x3),1", 0), 2);
	assert_int_equal(hostlist_count("2(x3),1", 2), 2);
	assert_int_equal(hostlist_count("2(x3),1", 3), 1);
	assert_int_equal(hostlist_count("2(x3),1", 4), -1);
	assert_int_equal(hostlist_count("", 0), -1);
	assert_int_equal(hostlist_count("2(x", 0), -1);
	assert_int_equal(hostlist_count("2(x3", 0), -1);
	assert_int_equal(hostlist_count("2x", 0), -1);
	assert_int_equal(hostlist_count("1,", 1), -1);
	assert_int_equal(hostlist_count("99999999999", 0), -1);
}

/* The processes of a job connect to its first host. */
static void the_first_host_can_be_had_alone(void **state)
{
	_cleanup_free_ char *first = hostlist_first("pn[07-12],login");
	_cleanup_free_ char *none = hostlist_first("pn[");

	(void)state;
	assert_string_equal(first, "pn07");
	assert_null(none);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_are_expanded_in_the_order_of_the_nodes),
		cmocka_unit_test(lists_are_expanded_into_words),
		cmocka_unit_test(what_is_no_list_is_refused_as_a_whole),
		cmocka_unit_test(a_short_text_that_names_too_many_is_refused),
		cmocka_unit_test(names_are_as_long_as_those_of_dns),
		cmocka_unit_test(tasks_of_a_node_are_read_from_the_shortened_list),
		cmocka_unit_test(the_first_host_can_be_had_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
