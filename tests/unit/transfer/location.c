/* Names of locations, wildcards, and the effect of --include and --exclude. */
#include "transfer/location.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"

static void places_are_told_apart(void **state)
{
	static const struct {
		const char *text;
		enum location_kind kind;
		const char *bucket;
		const char *key;
	} cases[] = {
		{"s3://bucket", LOCATION_OBJECT, "bucket", ""},
		{"s3://bucket/", LOCATION_OBJECT, "bucket", ""},
		{"s3://bucket/a//b%20?", LOCATION_OBJECT, "bucket", "a//b%20?"},
		{"s3://bucket//a", LOCATION_OBJECT, "bucket", "/a"},
		{"http://host/x?y=s3://z", LOCATION_HTTP, "", "http://host/x?y=s3://z"},
		{"https://host", LOCATION_HTTP, "", "https://host"},
		{"-", LOCATION_STDIO, "", "-"},
		{"./-", LOCATION_LOCAL, "", "./-"},
		{"dir/s3://x", LOCATION_LOCAL, "", "dir/s3://x"},
		{"/tmp/a b", LOCATION_LOCAL, "", "/tmp/a b"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct location at = {0};

		assert_int_equal(0, location_parse(&at, cases[i].text, NULL));
		assert_int_equal(cases[i].kind, at.kind);
		assert_string_equal(cases[i].bucket, at.bucket);
		assert_string_equal(cases[i].key, at.key);
		location_release(&at);
	}
}

static void what_is_no_place_is_refused(void **state)
{
	static const char *const bad[] = {"", "s3://", "s3:///key", "s3://A", "ftp://x/y",
		"s4://b/k",
		"s3://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/k"};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct location at = {0};

		assert_int_equal(-PENSTOCK_E_INVALID, location_parse(&at, bad[i], NULL));
		assert_null(at.text);
	}
}

static void a_listing_begins_with_the_last_directory_before_a_wildcard(void **state)
{
	static const struct {
		const char *text;
		size_t len;
	} cases[] = {{"s3://bucket/a/b", 3}, {"s3://bucket/a/b*", 2}, {"s3://bucket/*", 0},
		{"s3://bucket/a?/b/", 0}, {"s3://bucket/a/b/", 4}, {"s3://bucket/a/b/?", 4}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct location at = {0};

		assert_int_equal(0, location_parse(&at, cases[i].text, NULL));
		assert_int_equal(cases[i].len, location_literal_prefix(&at));
		location_release(&at);
	}
}

static void wildcards_match(void **state)
{
	static const struct {
		const char *pattern;
		const char *text;
		bool matches;
	} cases[] = {
		{"", "", true},
		{"", "a", false},
		{"*", "", true},
		{"*", "a/b/c", true},
		{"a*c", "abc", true},
		{"a*c", "ac", true},
		{"a*c", "acb", false},
		{"a*b*c", "aXbYbZc", true},
		{"*.txt", "a.txt.txt", true},
		{"*.txt", "a.txt.", false},
		{"?", "", false},
		{"?", "a", true},
		{"??", "a", false},
		{"a?c*", "abc", true},
		{"[a]", "a", false},
		{"[a]", "[a]", true},
		{"\\*", "\\x", true},
		{"**a", "bba", true},
		{"a", "ab", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (wildcard_match(cases[i].pattern, cases[i].text) != cases[i].matches)
			fail_msg("\"%s\" and \"%s\"", cases[i].pattern, cases[i].text);
	}
}

/* Simple matchers take exponential time for patterns with many stars. */
static void a_pattern_of_many_stars_ends(void **state)
{
	char pattern[129], text[1025];

	(void)state;
	for (size_t i = 0; i < sizeof(pattern) - 1; i++)
		pattern[i] = i % 2 ? 'a' : '*';
	pattern[sizeof(pattern) - 1] = '\0';
	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 2] = 'b';
	text[sizeof(text) - 1] = '\0';
	assert_false(wildcard_match(pattern, text));
}

static void filters_take_what_is_included_and_not_excluded(void **state)
{
	struct strlist none = {0}, include = {0}, exclude = {0};
	struct path_filter filter = {&none, &none};

	(void)state;
	strlist_add(&include, "*.txt");
	strlist_add(&include, "keep/*");
	strlist_add(&exclude, "*tmp*");
	assert_true(path_filter_takes(&filter, "anything"));
	filter.exclude = &exclude;
	assert_true(path_filter_takes(&filter, "anything"));
	assert_false(path_filter_takes(&filter, "a/tmp/b"));
	filter.include = &include;
	assert_false(path_filter_takes(&filter, "anything"));
	assert_true(path_filter_takes(&filter, "a/b.txt"));
	assert_true(path_filter_takes(&filter, "keep/x"));
	assert_false(path_filter_takes(&filter, "keep/tmp"));
	strlist_release(&include);
	strlist_release(&exclude);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(places_are_told_apart),
		cmocka_unit_test(what_is_no_place_is_refused),
		cmocka_unit_test(a_listing_begins_with_the_last_directory_before_a_wildcard),
		cmocka_unit_test(wildcards_match),
		cmocka_unit_test(a_pattern_of_many_stars_ends),
		cmocka_unit_test(filters_take_what_is_included_and_not_excluded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
