/* Sources and targets of copies (struct place), and the names that items get below them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "copy/content_type.h"
#include "copy/place.h"

static char dir[] = "/tmp/place-XXXXXX";

/* Creates in `dir` the directory "d", the file "f" and the file "star*". */
static int set_up(void **state)
{
	(void)state;
	return !mkdtemp(dir) || chdir(dir) < 0 || fs_mkdirs("d", 0777, NULL) < 0 ||
			       fs_write_atomic("f", "", 0, 0666, NULL) < 0 ||
			       fs_write_atomic("star*", "", 0, 0666, NULL) < 0
		       ? -1
		       : 0;
}

static int tear_down(void **state)
{
	(void)state;
	return chdir("/") < 0 ? -1 : fs_remove_tree(dir, NULL);
}

static void a_place_is_taken_apart(void **state)
{
	static const struct {
		const char *text;
		bool literal;
		enum location_kind kind;
		const char *base, *name;
		bool wildcard, directory;
	} cases[] = {
		{"s3://bkt", false, LOCATION_OBJECT, "", "", false, true},
		{"s3://bkt/", false, LOCATION_OBJECT, "", "", false, true},
		{"s3://bkt/k", false, LOCATION_OBJECT, "k/", "k", false, false},
		{"gs://bkt/x/k", false, LOCATION_OBJECT, "x/k/", "k", false, false},
		{"s3://bkt/x/", false, LOCATION_OBJECT, "x/", "", false, true},
		{"s3://bkt/x/*.tar", false, LOCATION_OBJECT, "x/", "*.tar", true, false},
		{"s3://bkt/x/*.tar", true, LOCATION_OBJECT, "x/*.tar/", "*.tar", false, false},
		{"s3://bkt/x/y*/a", false, LOCATION_OBJECT, "x/", "a", true, false},
		{"s3://bkt/a?", false, LOCATION_OBJECT, "", "a?", true, false},
		{"d", false, LOCATION_LOCAL, "d", "d", false, true},
		{"d/", false, LOCATION_LOCAL, "d", "", false, true},
		{"f", false, LOCATION_LOCAL, "f", "f", false, false},
		{"new/", false, LOCATION_LOCAL, "new", "", false, true},
		{"d/new", false, LOCATION_LOCAL, "d/new", "new", false, false},
		{".", false, LOCATION_LOCAL, ".", "", false, true},
		{"d/..", false, LOCATION_LOCAL, "d/..", "", false, true},
		{"/", false, LOCATION_LOCAL, "", "", false, true},
		{"d//", false, LOCATION_LOCAL, "d", "", false, true},
		{"*.csv", false, LOCATION_LOCAL, ".", "*.csv", true, false},
		{"d/*.csv", false, LOCATION_LOCAL, "d", "*.csv", true, false},
		/* A file of this name exists. */
		{"star*", false, LOCATION_LOCAL, "star*", "star*", false, false},
		{"http://h/a/b", false, LOCATION_HTTP, "http://h/a/b/", "b", false, false},
		{"http://h/a/?q=/", false, LOCATION_HTTP, NULL, NULL, false, true},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(place_release) struct place place = {0};
		_cleanup_free_ char *name = NULL;

		assert_int_equal(0, place_parse(&place, cases[i].text, cases[i].literal, NULL));
		name = place_name(&place);
		if (place.kind != cases[i].kind || place.wildcard != cases[i].wildcard ||
			place.directory != cases[i].directory)
			fail_msg("%s", cases[i].text);
		if (cases[i].base)
			assert_string_equal(cases[i].base, place.base);
		if (cases[i].name)
			assert_string_equal(cases[i].name, name);
	}
}

static void each_kind_has_its_own_member(void **state)
{
	_cleanup_(place_release) struct place object = {0}, file = {0}, url = {0}, pipe = {0};

	(void)state;
	assert_int_equal(0, place_parse(&object, "gs://bkt/x/k", false, NULL));
	assert_string_equal("bkt", object.bucket);
	assert_string_equal("x/k", object.key);
	assert_true(object.google && !object.path && !object.url);
	assert_int_equal(0, place_parse(&file, "d/f", false, NULL));
	assert_string_equal("d/f", file.path);
	assert_true(!file.key && !file.url);
	assert_int_equal(0, place_parse(&url, "http://me:secret@h/a?sign=secret", false, NULL));
	assert_string_equal("http://me:secret@h/a?sign=secret", url.url);
	assert_null(strstr(url.text, "secret"));
	assert_int_equal(0, place_parse(&pipe, "-", false, NULL));
	assert_true(pipe.kind == LOCATION_STDIO && !pipe.base && !pipe.key && !pipe.path);
	assert_int_equal(-(int)PENSTOCK_E_INVALID, place_parse(&pipe, "s3://", false, NULL));
	assert_int_equal(-(int)PENSTOCK_E_INVALID, place_parse(&pipe, "", false, NULL));
}

static void wildcards_match_below_the_base(void **state)
{
	static const struct {
		const char *place, *path;
		int matches;
	} cases[] = {
		{"s3://bkt/x/*.tar", "a.tar", 1},
		{"s3://bkt/x/*.tar", "y/a.tar", 1}, /* '*' matches a slash, too */
		{"s3://bkt/x/*.tar", "a.tgz", 0},
		{"s3://bkt/x/a?c", "abc", 1},
		{"s3://bkt/x/a?c", "abbc", 0},
		{"s3://bkt/*/a.csv", "2024/a.csv", 1},
		{"d/*.csv", "a.csv", 1},
		{"d/*.csv", "a.txt", 0},
		{"*.csv", "a.csv", 1},
		{"./*.csv", "a.csv", 1},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(place_release) struct place place = {0};

		assert_int_equal(0, place_parse(&place, cases[i].place, false, NULL));
		if (place_matches(&place, cases[i].path) != cases[i].matches)
			fail_msg("%s, %s", cases[i].place, cases[i].path);
	}
}

static void a_target_is_resolved(void **state)
{
	static const struct {
		const char *place, *name;
		const char *key, *path, *url; /* the result is one of these */
		size_t path_root;
	} cases[] = {
		{"s3://bkt/x/", "a/b", "x/a/b", NULL, NULL, 0},
		{"s3://bkt/x", "a", "x/a", NULL, NULL, 0},
		{"s3://bkt", "a", "a", NULL, NULL, 0},
		{"s3://bkt/x", NULL, "x", NULL, NULL, 0},
		{"s3://bkt/x/", "dir/", "x/dir/", NULL, NULL, 0},
		/* Keys may have forms that paths cannot have. */
		{"s3://bkt/", "../a", "../a", NULL, NULL, 0},
		{"d", "a/b", NULL, "d/a/b", NULL, 1},
		{"d/", "a", NULL, "d/a", NULL, 1},
		{"/", "a", NULL, "/a", NULL, 1},
		{"d/new", NULL, NULL, "d/new", NULL, 0},
		{"http://h/x/", "a b/c", NULL, NULL, "http://h/x/a%20b/c", 0},
		{"http://h/x?q", NULL, NULL, NULL, "http://h/x?q", 0},
		{"-", "a", NULL, NULL, NULL, 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(place_release) struct place place = {0};
		_cleanup_(target_release) struct target target = {0};

		assert_int_equal(0, place_parse(&place, cases[i].place, true, NULL));
		assert_int_equal(0, target_resolve(&target, &place, cases[i].name, NULL));
		assert_true(!cases[i].key == !target.key && !cases[i].path == !target.path &&
			    !cases[i].url == !target.url);
		if (target.key)
			assert_string_equal(cases[i].key, target.key);
		if (target.path)
			assert_string_equal(cases[i].path, target.path);
		if (target.url)
			assert_string_equal(cases[i].url, target.url);
		assert_int_equal(cases[i].path_root, target.path_root);
	}
}

static void impossible_files_are_refused(void **state)
{
	static const char *const refused[] = {"", "..", ".", "a/../b", "a/..", "./a", "a//b",
		"/etc/passwd", "/", "../a", "a/./b"};
	static const char *const taken[] = {
		"a", "a/b", "a/", "...", ".hidden", "a..b", "..a/b..", " ", "a\nb", "\xff"};
	char longest[300];
	_cleanup_(place_release) struct place place = {0};

	(void)state;
	assert_int_equal(0, place_of_directory(&place, "d"));
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		struct target target = {0};

		assert_int_equal(-(int)PENSTOCK_E_INVALID,
			target_resolve(&target, &place, refused[i], NULL));
		assert_null(target.path);
	}
	for (size_t i = 0; i < ARRAY_SIZE(taken); i++)
		assert_int_equal(0, place_check_file_name(taken[i], NULL));
	memset(longest, 'x', sizeof(longest));
	longest[255] = '\0';
	assert_int_equal(0, place_check_file_name(longest, NULL));
	longest[255] = 'x';
	longest[256] = '\0';
	assert_int_equal(-(int)PENSTOCK_E_INVALID, place_check_file_name(longest, NULL));
}

static void impossible_keys_are_refused(void **state)
{
	_cleanup_(place_release) struct place place = {0};
	struct target target = {0};
	char longest[1030];

	(void)state;
	assert_int_equal(0, place_of_prefix(&place, "s3", "b", "p"));
	assert_int_equal(
		-(int)PENSTOCK_E_INVALID, target_resolve(&target, &place, "latin-\xe9", NULL));
	memset(longest, 'x', sizeof(longest));
	longest[1022] = '\0'; /* 1024 with "p/" */
	assert_int_equal(0, target_resolve(&target, &place, longest, NULL));
	assert_int_equal(1024, strlen(target.key));
	target_release(&target);
	longest[1022] = 'x';
	longest[1023] = '\0';
	assert_int_equal(-(int)PENSTOCK_E_INVALID, target_resolve(&target, &place, longest, NULL));
}

static void an_ending_says_the_type(void **state)
{
	(void)state;
	assert_string_equal("text/csv", content_type_of("a/b.csv"));
	assert_string_equal("image/png", content_type_of("A.PNG"));
	assert_string_equal("application/gzip", content_type_of("a.tar.gz"));
	assert_null(content_type_of("a"));
	assert_null(content_type_of("a.csv/b"));
	assert_null(content_type_of(".csv"));
	assert_null(content_type_of("a.unknown"));
	assert_null(content_type_of("a."));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_place_is_taken_apart),
		cmocka_unit_test(each_kind_has_its_own_member),
		cmocka_unit_test(wildcards_match_below_the_base),
		cmocka_unit_test(a_target_is_resolved),
		cmocka_unit_test(impossible_files_are_refused),
		cmocka_unit_test(impossible_keys_are_refused),
		cmocka_unit_test(an_ending_says_the_type),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
