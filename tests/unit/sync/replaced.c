#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "sync/replaced.h"

#define STATE "p/.penstock/runs/ID/"

static char *key_of(const char *path, const char *etag, bool of_run, unsigned n)
{
	struct object_info there = {.size = 3, .modified_ns = 5};
	struct buf key = BUF_INIT(LIMIT_S3_KEY * 4);
	char *copy;

	snprintf(there.etag, sizeof(there.etag), "%s", etag);
	if (of_run)
		assert_int_equal(strlist_add(&there.metadata, "penstock-run=other"), 0);
	assert_int_equal(replaced_key(STATE, path, &there, n, &key, NULL), 0);
	copy = strdup(buf_str(&key));
	buf_release(&key);
	strlist_release(&there.metadata);
	return copy;
}

/* The key of a copy contains the path of the object and shows if a run published the object. */
static void a_key_has_path_and_origin(void **state)
{
	static const char *const etags[] = {"\"0a1b-3\"", "\"odd/etag.run\"", "", "plain"};
	static const char *const paths[] = {"a", "a.run/b~2", "x/.run/y"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(etags) * ARRAY_SIZE(paths) * 4; i++) {
		struct buf decoded = BUF_INIT(1000);
		const char *path = paths[i / 4 % ARRAY_SIZE(paths)];
		bool of_run = i & 1;
		char *key = key_of(path, etags[i / 4 / ARRAY_SIZE(paths)], of_run, i & 2 ? 2 : 1);

		assert_int_equal(replaced_is_of_run(STATE, key), of_run);
		assert_string_equal(replaced_path(STATE, key, &decoded), path);
		buf_release(&decoded);
		free(key);
	}
}

/* A name that is too long for a key is replaced by a hash, so its copies are still counted
 * together. */
static void a_long_name_has_no_path(void **state)
{
	struct buf decoded = BUF_INIT(1000);
	char path[1021], *one, *other;

	(void)state;
	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	one = key_of(path, "\"1\"", true, 1);
	other = key_of(path, "\"2\"", true, 2);

	assert_null(replaced_path(STATE, one, &decoded));
	assert_true(replaced_is_of_run(STATE, one) && replaced_is_of_run(STATE, other));
	assert_string_equal(strrchr(one, '/'), strrchr(other, '/'));
	free(one);
	free(other);
	buf_release(&decoded);
}

/* Returns the sizes of the copies to delete, in order, as the digits of a number. */
static unsigned going(const struct replaced_bound *bound)
{
	struct replaced_copy items[] = {
		{.key = (char *)"k1",
			.path = (char *)"a",
			.size = 1,
			.made_ns = 10,
			.by_run = true},
		{.key = (char *)"k2",
			.path = (char *)"b",
			.size = 2,
			.made_ns = 10,
			.by_run = true},
		{.key = (char *)"k3",
			.path = (char *)"a",
			.size = 3,
			.made_ns = 30,
			.by_run = true},
		{.key = (char *)"k4", .path = (char *)"a", .size = 4, .made_ns = 40},
		{.key = (char *)"k5",
			.path = (char *)"a",
			.size = 5,
			.made_ns = 20,
			.by_run = true},
	};
	struct replaced_list list = {items, ARRAY_SIZE(items)};
	unsigned n = 0;
	size_t count = replaced_choose(&list, bound), seen = 0;

	for (size_t i = 0; i < list.n; i++) {
		if (list.items[i].going) {
			n = 10 * n + (unsigned)list.items[i].size;
			seen++;
		}
	}
	assert_int_equal(count, seen);
	return n;
}

/* The newest copies of each file stay. Copies of objects that no run published stay unless `all` is
 * set. */
static void the_oldest_copies_of_a_file_go(void **state)
{
	(void)state;
	assert_int_equal(going(&(struct replaced_bound){.keep = 3, .before_ns = INT64_MIN}), 0);
	assert_int_equal(going(&(struct replaced_bound){.keep = 2, .before_ns = INT64_MIN}), 1);
	assert_int_equal(going(&(struct replaced_bound){.keep = 1, .before_ns = INT64_MIN}), 51);
	assert_int_equal(going(&(struct replaced_bound){.before_ns = INT64_MIN}), 3512);
	assert_int_equal(going(&(struct replaced_bound){.keep = 9, .before_ns = 20}), 12);
	assert_int_equal(
		going(&(struct replaced_bound){.keep = 1, .before_ns = INT64_MIN, .all = true}),
		351);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_key_has_path_and_origin),
		cmocka_unit_test(a_long_name_has_no_path),
		cmocka_unit_test(the_oldest_copies_of_a_file_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
