/* Changes of a list that the browser already has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "ui/changes.h"

/* Remembers a list under the tag `tag`. Returns the changes since the list `since`, or NULL if that
 * list is unknown. The text is valid until the next call. */
static const char *changes_of(
	struct changes *changes, unsigned since, unsigned tag, const char *text)
{
	static struct buf out = BUF_INIT(1 << 20);
	_cleanup_(buf_release) struct buf list = BUF_INIT(1 << 20);
	char old[24], now[24];

	snprintf(old, sizeof(old), "%016x", since);
	snprintf(now, sizeof(now), "\"%016x\"", tag);
	buf_add_str(&list, text);
	buf_release(&out);
	return changes_since(changes, since ? old : NULL, &list, now, &out) ? buf_str(&out) : NULL;
}

static void the_changes_make_the_new_list_of_the_old_one(void **state)
{
	static const char *const cases[][3] = {
		{"[1,2,3]", "[1,2,3]", "{\"removed\":[],\"changed\":[]}"},
		{"[]", "[1]", "{\"removed\":[],\"changed\":[[0,1]]}"},
		{"[1]", " [ ] ", "{\"removed\":[0],\"changed\":[]}"},
		{"[1,2,3]", "[4,1,3]", "{\"removed\":[1],\"changed\":[[0,4]]}"},
		{"[{\"a\": 1}, {\"a\": 2}]", "[\n {\"a\": 1},\n {\"a\": 3}\n]\n",
			"{\"removed\":[1],\"changed\":[[1,{\"a\": 3}]]}"},
		/* Brackets and commas in strings do not end an entry. */
		{"[[1,[2]],\"a,\\\"]\\\\\",{\"b\":[3,{}],\"c\":\"}\"}]",
			"[[1,[2]],\"a,\\\"]\\\\\",{\"b\":[3,{}],\"c\":\"]\"}]",
			"{\"removed\":[2],\"changed\":[[2,{\"b\":[3,{}],\"c\":\"]\"}]]}"},
		{"[[1],[2]]", "[[2]]", "{\"removed\":[0],\"changed\":[]}"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct changes *changes = changes_new();

		assert_null(changes_of(changes, 0, 1, cases[i][0]));
		assert_string_equal(cases[i][2], changes_of(changes, 1, 2, cases[i][1]));
		changes_free(changes);
	}
}

static void an_unknown_list_has_no_changes(void **state)
{
	struct changes *changes = changes_new();

	(void)state;
	assert_null(changes_of(changes, 7, 1, "[1]"));
	assert_null(changes_of(changes, 7, 2, "[2]"));
	assert_non_null(changes_of(changes, 2, 2, "[2]"));
	changes_free(changes);
	changes_free(NULL);
}

/* The format cannot describe entries that only moved. */
static void another_order_is_sent_as_a_whole(void **state)
{
	struct changes *changes = changes_new();

	(void)state;
	changes_of(changes, 0, 1, "[1,2,3]");
	assert_null(changes_of(changes, 1, 2, "[2,1,3]"));
	assert_null(changes_of(changes, 1, 3, "[1,1,2,3]"));
	changes_free(changes);
}

/* The list of a page that polls is kept, and the list of a closed page is dropped. */
static void the_lists_that_were_used_last_are_remembered(void **state)
{
	struct changes *changes = changes_new();
	char text[32];

	(void)state;
	changes_of(changes, 0, 1, "[1]");
	changes_of(changes, 0, 2, "[2]");
	for (unsigned i = 3; i < 3 + LIMIT_UI_LISTS - 1; i++) {
		snprintf(text, sizeof(text), "[%u]", i);
		changes_of(changes, 0, 1, "[1]");
		changes_of(changes, 0, i, text);
	}
	assert_non_null(changes_of(changes, 1, 1, "[1]"));
	assert_null(changes_of(changes, 2, 1, "[1]"));
	changes_free(changes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_changes_make_the_new_list_of_the_old_one),
		cmocka_unit_test(an_unknown_list_has_no_changes),
		cmocka_unit_test(another_order_is_sent_as_a_whole),
		cmocka_unit_test(the_lists_that_were_used_last_are_remembered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
