#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "alloc_fail.h"

/* Numbers are integers within bounds; a sign, a space or an overflow is refused. */
static void numbers_are_read_strictly(void **state)
{
	static const char *const bad[] = {"", " 1", "1 ", "+1", "-1", "1x", "0x1",
		"18446744073709551616", "99999999999999999999999"};
	uint64_t u = 7;
	int64_t i = 7;

	(void)state;
	for (size_t n = 0; n < ARRAY_SIZE(bad); n++)
		assert_false(str_to_u64(bad[n], 0, UINT64_MAX, &u));
	assert_true(u == 7);
	assert_true(str_to_u64("18446744073709551615", 0, UINT64_MAX, &u));
	assert_true(u == UINT64_MAX);
	assert_false(str_to_u64("5", 6, 9, &u));
	assert_false(str_to_u64("10", 6, 9, &u));
	assert_true(str_to_i64("-9223372036854775808", INT64_MIN, INT64_MAX, &i));
	assert_true(i == INT64_MIN);
	assert_false(str_to_i64("9223372036854775808", INT64_MIN, INT64_MAX, &i));
	assert_false(str_to_i64("--1", INT64_MIN, INT64_MAX, &i));
	assert_false(str_to_i64("-", INT64_MIN, INT64_MAX, &i));
}

/* Sizes may have binary or decimal units; any other text is refused. */
static void sizes_have_binary_and_decimal_units(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {{"512", 512}, {"64k", 65536}, {"1.5GiB", 1610612736}, {"2MB", 2000000},
		{"2 MB", 2000000}, {"1T", UINT64_C(1) << 40}, {"3b", 3}, {"0", 0}, {"1Ki", 1024}};
	static const char *const bad[] = {"", "k", "-1", "1x", "1 kk", "1kBx", "0x10", "1e3", "inf",
		"nan", "1.2.3", "99999999T"};
	uint64_t bytes;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_true(str_to_size(good[i].text, &bytes));
		assert_true(bytes == good[i].bytes);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(str_to_size(bad[i], &bytes));
}

/* Sizes are shown with three digits and decimal units. */
static void sizes_are_shown_in_three_digits(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} shown[] = {{0, "0 B"}, {999, "999 B"}, {1000, "1.0 kB"}, {99949, "99.9 kB"},
		{99951, "100 kB"}, {999499, "999 kB"}, {999500, "1.0 MB"}, {UINT64_MAX, "18.4 EB"}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(shown); i++) {
		char text[STR_SIZE_SIZE];

		str_format_size(shown[i].bytes, text);
		assert_string_equal(text, shown[i].text);
	}
}

/* Hexadecimal text is written and parsed; an odd number of digits is refused. */
static void hexadecimal_round_trips(void **state)
{
	unsigned char bytes[4] = {0, 0x7f, 0x80, 0xff};
	unsigned char back[4];
	char text[9];

	(void)state;
	str_hex(bytes, 4, text);
	assert_string_equal(text, "007f80ff");
	assert_int_equal(str_unhex("007F80fF", back, 4), 0);
	assert_memory_equal(back, bytes, 4);
	assert_int_equal(str_unhex("007f80f", back, 4), -1);
	assert_int_equal(str_unhex("007f80ff0", back, 4), -1);
	assert_int_equal(str_unhex("007f80fg", back, 4), -1);
}

/* Two secrets of any lengths compare as equal exactly if the strings are equal. */
static void secrets_are_compared_whole(void **state)
{
	(void)state;
	assert_true(str_equal_secret("", ""));
	assert_true(str_equal_secret("abc", "abc"));
	assert_false(str_equal_secret("abc", "abd"));
	assert_false(str_equal_secret("abc", "ab"));
	assert_false(str_equal_secret("ab", "abc"));
	assert_false(str_equal_secret("", "a"));
}

/* A mistyped word finds the nearest word; a very different word finds no word. */
static void the_nearest_word_is_near(void **state)
{
	static const char *const words[] = {"resources", "run", "resume"};

	(void)state;
	assert_string_equal(str_nearest("resourcez", words, 3), "resources");
	assert_string_equal(str_nearest("rum", words, 3), "run");
	assert_string_equal(str_nearest("rnu", words, 3), "run");
	assert_string_equal(str_nearest("reusme", words, 3), "resume");
	assert_string_equal(str_nearest("RESUME", words, 3), "resume");
	assert_null(str_nearest("image", words, 3));
	assert_null(str_nearest("", words, 3));
	assert_null(str_nearest("r", words, 0));
}

/* Lists own their strings, and variables in them are set and replaced. */
static void lists_hold_variables(void **state)
{
	_cleanup_(strlist_release) struct strlist list = {0};
	char word[] = "A=1";

	(void)state;
	assert_int_equal(strlist_add(&list, word), 0);
	word[0] = 'X';
	assert_int_equal(strlist_addf(&list, "B=%d", 2), 0);
	assert_int_equal(strlist_set(&list, "A", "one"), 0);
	assert_int_equal(strlist_set(&list, "C", ""), 0);

	assert_string_equal(strlist_get(&list, "A"), "one");
	assert_string_equal(strlist_get(&list, "B"), "2");
	assert_string_equal(strlist_get(&list, "C"), "");
	assert_null(strlist_get(&list, "X"));
	assert_int_equal(list.n, 3);
	assert_null(list.items[3]);
	assert_int_equal(strlist_add_all(&list, (const char *const[]){"d", "e", NULL}), 0);
	assert_int_equal(strlist_add_all(&list, NULL), 0);
	assert_int_equal(list.n, 5);
	assert_string_equal(list.items[4], "e");
}

/* A formatted string belongs to the caller. */
static void strings_are_formatted(void **state)
{
	_cleanup_free_ char *text = str_printf("%s-%d", "a", 7);

	(void)state;
	assert_string_equal(text, "a-7");
}

/* Prefixes and suffixes are matched. */
static void beginnings_and_ends_match(void **state)
{
	(void)state;
	assert_true(str_starts("s3://b", "s3://"));
	assert_false(str_starts("s3:", "s3://"));
	assert_true(str_starts_any("b=1", (const char *const[]){"a=", "b="}, 2));
	assert_false(str_starts_any("c=1", (const char *const[]){"a=", "b="}, 2));
	assert_true(str_ends("a.tar.gz", ".gz"));
	assert_false(str_ends("gz", ".gz"));
	assert_true(str_starts("", "") && str_ends("", ""));
}

/* A text of any length is complete, or NULL if out of memory. asprintf() would write beyond the end
 * of some texts if memory runs out. */
static void a_text_is_whole_or_null(void **state)
{
	(void)state;
	for (int len = 1; len <= 500; len++) {
		for (size_t n = 1;; n++) {
			_cleanup_free_ char *text = NULL;

			alloc_fail_arm(n);
			text = str_printf("%0*d", len, 0);
			if (!alloc_fail_disarm()) {
				assert_int_equal(strlen(text), len);
				break;
			}
			assert_null(text);
		}
	}
}

/* Table 3-7 of the Unicode standard has these bounds. */
static void utf8_is_well_formed(void **state)
{
	static const struct {
		const char *text;
		size_t length;
	} cases[] = {
		{"a", 1},
		{"\x7f", 1},
		{"\x80", 0},
		{"\xc1\xbf", 0},
		{"\xc2\x80", 2},
		{"\xc3\x84", 2},
		{"\xdf\xbf", 2},
		{"\xc3", 0},
		{"\xc3\xc0", 0},
		{"\xe0\x9f\xbf", 0},
		{"\xe0\xa0\x80", 3},
		{"\xe1\x80\x80", 3},
		{"\xed\x9f\xbf", 3},
		{"\xed\xa0\x80", 0},
		{"\xee\x80\x80", 3},
		{"\xe1\x80\x7f", 0},
		{"\xf0\x8f\xbf\xbf", 0},
		{"\xf0\x90\x80\x80", 4},
		{"\xf1\x80\x80\x80", 4},
		{"\xf4\x8f\xbf\xbf", 4},
		{"\xf4\x90\x80\x80", 0},
		{"\xf5\x80\x80\x80", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(
			str_utf8_length(cases[i].text, strlen(cases[i].text)), cases[i].length);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_are_read_strictly),
		cmocka_unit_test(sizes_have_binary_and_decimal_units),
		cmocka_unit_test(sizes_are_shown_in_three_digits),
		cmocka_unit_test(hexadecimal_round_trips),
		cmocka_unit_test(secrets_are_compared_whole),
		cmocka_unit_test(the_nearest_word_is_near),
		cmocka_unit_test(lists_hold_variables),
		cmocka_unit_test(strings_are_formatted),
		cmocka_unit_test(beginnings_and_ends_match),
		cmocka_unit_test(a_text_is_whole_or_null),
		cmocka_unit_test(utf8_is_well_formed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
