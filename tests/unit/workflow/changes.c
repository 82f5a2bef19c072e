/* Differences between workflows, and an edited file with overrides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "workflow/changes.h"

#define STEPS(a, b)                                                                                \
	"{\"name\": \"w\", \"env\": [{\"key\": \"E\", \"value\": \"1\"}], \"steps\": [" a ", " b   \
	"]}"
#define STEP(name, command, more)                                                                  \
	"{\"name\": \"" name "\", \"run\": {\"command\": \"" command "\"" more "}}"
#define PREPARE STEP("prepare", "p", "")
#define TRAIN	STEP("train", "t", "")

static void fields_are_named_as_options_name_them(void **state)
{
	static const struct {
		const char *before, *now, *names;
		size_t n, first_step;
	} rows[] = {
		{STEPS(PREPARE, TRAIN), STEPS(PREPARE, TRAIN), "", 0, SIZE_MAX},
		{STEPS(PREPARE, TRAIN), STEPS(PREPARE, STEP("train", "other", "")),
			"steps.train.run.command", 1, 1},
		/* Changed resources or step names do not change the results of steps. */
		{STEPS(PREPARE, TRAIN),
			STEPS(STEP("prepare", "p", ", \"resources\": {\"tasks\": 2}"), TRAIN),
			"steps.prepare.run.resources", 1, SIZE_MAX},
		{STEPS(PREPARE, TRAIN), STEPS(STEP("first", "p", ""), TRAIN), "steps.first.name", 1,
			SIZE_MAX},
		/* A variable with the name "name" changes the result, unlike the name of a step. */
		{STEPS(PREPARE, TRAIN),
			STEPS(STEP("prepare", "p", ", \"env\": [{\"key\": \"name\"}]"), TRAIN),
			"steps.prepare.run.env", 1, 0},
		{STEPS(PREPARE, TRAIN), STEPS(PREPARE, TRAIN ", " TRAIN), "steps.train", 1, 2},
		{"{\"input\": {\"a\": 1}, \"steps\": [{}]}",
			"{\"input\": {\"a\": 2}, \"steps\": [{}]}", "input.a", 1, 0},
		{"{\"env\": [{\"key\": \"E\", \"value\": \"1\"}], \"x\": null}",
			"{\"env\": [{\"key\": \"E\", \"value\": \"2\"}]}", "env.E.value", 1,
			SIZE_MAX},
		/* Unchanged entries are not named. */
		{"{\"env\": [{\"key\": \"B\", \"value\": \"1\"}, {\"key\": \"C\"}]}",
			"{\"env\": [{\"key\": \"A\"}, {\"key\": \"B\", \"value\": \"1\"}]}",
			"env.A, env.C", 2, SIZE_MAX},
		{STEPS(PREPARE, TRAIN), STEPS(STEP("new", "n", "") ", " PREPARE, TRAIN),
			"steps.new", 1, 0},
		{STEPS(PREPARE ", " STEP("old", "o", ""), TRAIN), STEPS(PREPARE, TRAIN),
			"steps.old", 1, 1},
		{"{\"a\": [1, 2, 3, 4, 5, 6, 7]}", "{\"a\": []}",
			"a[0], a[1], a[2], a[3], a[4] and 2 more", 7, SIZE_MAX},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct workflow_changes changes;

		assert_int_equal(workflow_compare(rows[i].before, rows[i].now, &changes, NULL), 0);

		assert_string_equal(changes.names, rows[i].names);
		assert_int_equal(changes.n, rows[i].n);
		assert_int_equal(changes.first_step, rows[i].first_step);
	}
}

static void an_edited_file_is_taken_and_overrides_stay(void **state)
{
	static const struct {
		const char *before, *now, *record, *merged;
	} rows[] = {
		{"{\"a\": 1, \"b\": 1}", "{\"a\": 2, \"b\": 1}", "{\"a\": 1, \"b\": 9}",
			"{\"a\": 2, \"b\": 9}"},
		{"{\"a\": 1}", "{}", "{\"a\": 1, \"o\": 5}", "{\"o\": 5}"},
		{"{}", "{\"env\": [{\"key\": \"A\"}]}", "{\"env\": [{\"key\": \"O\"}]}",
			"{\"env\": [{\"key\": \"O\"}, {\"key\": \"A\"}]}"},
		{"{\"env\": [{\"key\": \"A\"}]}", "{}",
			"{\"env\": [{\"key\": \"A\"}, {\"key\": \"O\"}]}",
			"{\"env\": [{\"key\": \"O\"}]}"},
		{"{}", "{\"n\": {\"m\": 1}}", "{\"o\": 5}", "{\"o\": 5, \"n\": {\"m\": 1}}"},
		{"{\"s\": [{\"c\": 1}, {\"c\": 2}]}", "{\"s\": [{\"c\": 1}, {\"c\": 3}, {}]}",
			"{\"s\": [{\"c\": 7}, {\"c\": 2}]}",
			"{\"s\": [{\"c\": 7}, {\"c\": 3}, {}]}"},
		{"{\"env\": [{\"key\": \"A\", \"value\": 1}, {\"key\": \"B\"}]}",
			"{\"env\": [{\"key\": \"A\", \"value\": 2}, {\"key\": \"C\"}]}",
			"{\"env\": [{\"key\": \"A\", \"value\": 1}, {\"key\": \"B\"}, {\"key\": "
			"\"O\"}]}",
			"{\"env\": [{\"key\": \"A\", \"value\": 2}, {\"key\": \"O\"}, {\"key\": "
			"\"C\"}]}"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		_cleanup_(buf_release) struct buf out = BUF_INIT(1000);
		json_t *merged, *expected = json_loads(rows[i].merged, 0, NULL);

		assert_int_equal(
			workflow_merge(rows[i].before, rows[i].now, rows[i].record, &out, NULL), 0);

		merged = json_loads(buf_str(&out), 0, NULL);
		assert_non_null(expected);
		assert_true(json_equal(merged, expected));
		json_decref(merged);
		json_decref(expected);
	}
}

static void a_damaged_record_is_an_error(void **state)
{
	struct workflow_changes changes;

	(void)state;
	assert_int_equal(workflow_compare("{", "{}", &changes, NULL), -(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(workflow_merge("{}", "{}", "", &(struct buf)BUF_INIT(10), NULL),
		-(int)PENSTOCK_E_CORRUPT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_are_named_as_options_name_them),
		cmocka_unit_test(an_edited_file_is_taken_and_overrides_stay),
		cmocka_unit_test(a_damaged_record_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
