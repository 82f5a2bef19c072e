#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/str.h"
#include "sync/record/names.h"

/* Any name can be read back from its text form, which has no character with a special meaning in
 * JSON or in a line. */
static void every_name_survives_its_text_form(void **state)
{
	static const char *const names[] = {"plain", "a b", "%41", "new\nline", "tab\t", "\x01",
		"\x7f", "quote\"\\", "Z\xc3\xbcrich", "\xff\xfe", "cut \xc3", "\xf0\x9f\x98\x80",
		"\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80", "-", "%"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct buf text = BUF_INIT(1000), back = BUF_INIT(1000);

		names_encode(&text, names[i]);
		assert_true(str_is_utf8(text.data, text.len));
		assert_null(strpbrk(text.data, " \"\\\n\t\x01\x7f"));
		assert_int_equal(names_decode(&back, text.data), 0);
		assert_string_equal(buf_str(&back), names[i]);
		buf_release(&text);
		buf_release(&back);
	}
}

/* An invalid text form is refused instead of being guessed. */
static void a_broken_text_form_is_refused(void **state)
{
	static const char *const texts[] = {"%", "%4", "%4g", "%00", "a%"};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct buf back = BUF_INIT(1000);

		assert_int_equal(names_decode(&back, texts[i]), -1);
		buf_release(&back);
	}
}

/* Overlong forms, surrogates, and characters that are too large or truncated are not UTF-8. */
static void utf8_is_told_from_what_looks_like_it(void **state)
{
	static const struct {
		const char *text;
		bool good;
	} cases[] = {{"", true}, {"abc", true}, {"\xc2\x80", true}, {"\xdf\xbf", true},
		{"\xe0\xa0\x80", true}, {"\xef\xbf\xbf", true}, {"\xf0\x90\x80\x80", true},
		{"\xf4\x8f\xbf\xbf", true}, {"\x80", false}, {"\xc1\xbf", false},
		{"\xe0\x9f\xbf", false}, {"\xed\xbf\xbf", false}, {"\xf0\x8f\xbf\xbf", false},
		{"\xf4\x90\x80\x80", false}, {"\xf8\x88\x80\x80\x80", false}, {"a\xc3", false},
		{"\xe2\x82", false}, {"\xe2\x28\xa1", false}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(str_is_utf8(cases[i].text, strlen(cases[i].text)), cases[i].good);
}

/* The key is the path if the path is UTF-8, otherwise its text form. */
static void a_key_is_the_path_where_it_can_be(void **state)
{
	struct buf key = BUF_INIT(100);

	(void)state;
	assert_false(names_key(&key, "a b/%41\n"));
	assert_string_equal(buf_str(&key), "a b/%41\n");
	buf_clear(&key);
	assert_true(names_key(&key, "a b/\xff%"));
	assert_string_equal(buf_str(&key), "a%20b/%FF%25");
	buf_release(&key);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_name_survives_its_text_form),
		cmocka_unit_test(a_broken_text_form_is_refused),
		cmocka_unit_test(utf8_is_told_from_what_looks_like_it),
		cmocka_unit_test(a_key_is_the_path_where_it_can_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
