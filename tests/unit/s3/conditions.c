#include "s3_test.h"

#include "s3/conditions.h"

#define BEFORE "Sun, 06 Nov 1994 08:49:36 GMT"
#define NOW    "Sun, 06 Nov 1994 08:49:37 GMT"
#define AFTER  "Sun, 06 Nov 1994 08:49:38 GMT"
#define T      CONDITION_PASS
#define F      CONDITION_FAILED
#define N      CONDITION_NOT_MODIFIED

static const struct condition_state there = {true, "\"abc\"", 784111777};
static const struct condition_state weak = {true, "W/\"abc\"", 784111777};
static const struct condition_state missing = {false, NULL, 0};

/* RFC 9110, 13.2.2: ETags take precedence over dates, and If-Match over If-None-Match. */
static void conditions_hold_in_the_order_of_the_rfc(void **state)
{
	static const struct {
		struct conditions c;
		const struct condition_state *object;
		enum condition_result read, write;
	} rows[] = {
		{{NULL, NULL, NULL, NULL}, &there, T, T},
		{{"\"abc\"", NULL, NULL, NULL}, &there, T, T},
		{{"abc", NULL, NULL, NULL}, &there, T, T},
		{{"*", NULL, NULL, NULL}, &there, T, T},
		{{"\"x\", \"abc\"", NULL, NULL, NULL}, &there, T, T},
		{{"\"x\"", NULL, NULL, NULL}, &there, F, F},
		{{"W/\"abc\"", NULL, NULL, NULL}, &there, F, F},
		{{"\"abc\"", NULL, NULL, NULL}, &weak, F, F},
		{{"\"abc\"", NULL, NULL, NULL}, &missing, F, F},
		{{"*", NULL, NULL, NULL}, &missing, F, F},
		{{NULL, "*", NULL, NULL}, &missing, T, T},
		{{NULL, "*", NULL, NULL}, &there, N, F},
		{{NULL, "\"abc\"", NULL, NULL}, &there, N, F},
		{{NULL, "W/\"abc\"", NULL, NULL}, &there, N, F},
		{{NULL, "\"abc\"", NULL, NULL}, &weak, N, F},
		{{NULL, "\"x\"", NULL, NULL}, &there, T, T},
		{{NULL, NULL, BEFORE, NULL}, &there, T, T},
		{{NULL, NULL, NOW, NULL}, &there, N, T},
		{{NULL, NULL, AFTER, NULL}, &there, N, T},
		{{NULL, NULL, "rubbish", NULL}, &there, T, T},
		{{NULL, NULL, NULL, BEFORE}, &there, F, F},
		{{NULL, NULL, NULL, NOW}, &there, T, T},
		{{NULL, NULL, NULL, "rubbish"}, &there, T, T},
		/* S3 replies 200 if If-Match is true and If-Unmodified-Since is false. */
		{{"\"abc\"", NULL, NULL, BEFORE}, &there, T, T},
		/* S3 replies 304 if If-None-Match is false and If-Modified-Since is true. */
		{{NULL, "\"abc\"", BEFORE, NULL}, &there, N, F},
		{{NULL, "\"x\"", AFTER, NULL}, &there, T, T},
		{{"\"x\"", "\"abc\"", NULL, NULL}, &there, F, F},
		{{"\"abc\"", "\"abc\"", NULL, NULL}, &there, N, F},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char row[12];

		snprintf(row, sizeof(row), "row %zu", i);
		assert_row(
			conditions_evaluate(&rows[i].c, rows[i].object, true) == rows[i].read, row);
		assert_row(conditions_evaluate(&rows[i].c, rows[i].object, false) == rows[i].write,
			row);
		/* The conditions on a copy's source are those of a read, but the reply is never
		 * 304. */
		assert_row(conditions_evaluate_copy_source(&rows[i].c, rows[i].object) ==
				   (rows[i].read == T ? T : F),
			row);
	}
}

static void tags_with_commas_spaces_and_odd_ends_are_compared(void **state)
{
	static const struct {
		const char *list, *etag;
		bool weak_allowed, match;
	} rows[] = {
		{"\"a,b\"", "\"a,b\"", false, true},
		{"\"a\",\"b\"", "\"b\"", false, true},
		{" , \"a\" ,, \"b\" ", "\"b\"", false, true},
		{"\"\"", "\"\"", false, true},
		{"\"a", "\"a\"", false, true},
		{"abc-3", "\"abc-3\"", false, true},
		{"abc ", "abc", false, true},
		{"\"*\"", "\"a\"", false, false},
		{"\"A\"", "\"a\"", false, false},
		{"", "\"a\"", false, false},
		{",", "\"a\"", false, false},
		{"W/", "\"a\"", true, false},
		{"W/\"a\"", "\"a\"", true, true},
		{"\"a\"\"b\"", "\"b\"", false, false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_row(etag_list_matches(rows[i].list, rows[i].etag, rows[i].weak_allowed) ==
				   rows[i].match,
			rows[i].list);
}

/* A range must only be sent if the client has the same version. */
static void if_range_needs_exactly_this_version(void **state)
{
	(void)state;
	assert_true(condition_if_range(NULL, &there));
	assert_true(condition_if_range("\"abc\"", &there));
	assert_true(condition_if_range(NOW, &there));
	assert_false(condition_if_range(BEFORE, &there));
	assert_false(condition_if_range(AFTER, &there));
	assert_false(condition_if_range("W/\"abc\"", &there));
	assert_false(condition_if_range("\"abc\"", &weak));
	assert_false(condition_if_range("\"x\"", &there));
	assert_false(condition_if_range("\"abc\"", &missing));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(conditions_hold_in_the_order_of_the_rfc),
		cmocka_unit_test(tags_with_commas_spaces_and_odd_ends_are_compared),
		cmocka_unit_test(if_range_needs_exactly_this_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
