#include "s3_test.h"

#include "s3/range.h"

#define MAX "18446744073709551615"

/* One range, as in RFC 9110; any other header is ignored. */
static void a_range_is_cut_to_the_object(void **state)
{
	static const struct {
		const char *header;
		uint64_t size;
		enum range_result result;
		uint64_t first, last;
	} rows[] = {
		{NULL, 10, RANGE_WHOLE, 0, 0},
		{"bytes=0-9", 10, RANGE_PART, 0, 9},
		{"bytes=0-0", 10, RANGE_PART, 0, 0},
		{"bytes=2-", 10, RANGE_PART, 2, 9},
		{"bytes=9-100", 10, RANGE_PART, 9, 9},
		{"bytes=0-" MAX, 10, RANGE_PART, 0, 9},
		{"bytes=0-99999999999999999999999", 10, RANGE_PART, 0, 9},
		{"bytes=-3", 10, RANGE_PART, 7, 9},
		{"bytes=-10", 10, RANGE_PART, 0, 9},
		{"bytes=-11", 10, RANGE_PART, 0, 9},
		{"Bytes=1-2 ", 10, RANGE_PART, 1, 2},
		{"bytes=10-", 10, RANGE_UNSATISFIABLE, 0, 0},
		{"bytes=10-20", 10, RANGE_UNSATISFIABLE, 0, 0},
		{"bytes=" MAX "-", 10, RANGE_UNSATISFIABLE, 0, 0},
		{"bytes=99999999999999999999999-", 10, RANGE_UNSATISFIABLE, 0, 0},
		{"bytes=-0", 10, RANGE_UNSATISFIABLE, 0, 0},
		{"bytes=0-0", 0, RANGE_UNSATISFIABLE, 0, 0},
		{"bytes=-1", 0, RANGE_UNSATISFIABLE, 0, 0},
		{"bytes= 1-2", 10, RANGE_WHOLE, 0, 0},
		{"bytes= -1", 10, RANGE_WHOLE, 0, 0},
		{"bytes=5-4", 10, RANGE_WHOLE, 0, 0},
		{"bytes=-", 10, RANGE_WHOLE, 0, 0},
		{"bytes=", 10, RANGE_WHOLE, 0, 0},
		{"bytes", 10, RANGE_WHOLE, 0, 0},
		{"bytes=1", 10, RANGE_WHOLE, 0, 0},
		{"bytes=1-2,3-4", 10, RANGE_WHOLE, 0, 0},
		{"bytes=1-2x", 10, RANGE_WHOLE, 0, 0},
		{"bytes=a-2", 10, RANGE_WHOLE, 0, 0},
		{"bytes=--2", 10, RANGE_WHOLE, 0, 0},
		{"items=1-2", 10, RANGE_WHOLE, 0, 0},
		{"", 10, RANGE_WHOLE, 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *what = rows[i].header ? rows[i].header : "none";
		struct byte_range r = {0, 0};

		assert_row(range_parse(rows[i].header, rows[i].size, &r) == rows[i].result, what);
		assert_row(r.first == rows[i].first && r.last == rows[i].last, what);
	}
}

static void the_source_of_a_part_copy_needs_both_ends(void **state)
{
	static const char *const bad[] = {"bytes=0-", "bytes=-5", "bytes=5-4", "bytes=1-2 ", "0-5",
		"bytes=0-5,7-8", "", "bytes=0-99999999999999999999",
		"bytes=0-18446744073709551615"};
	struct byte_range r;

	(void)state;
	assert_true(range_parse_copy_source("bytes=5-10485764", &r));
	assert_int_equal(r.first, 5);
	assert_int_equal(byte_range_length(&r), 10485760);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_row(!range_parse_copy_source(bad[i], &r), bad[i]);
}

/* A client must detect a reply that has another range than requested. */
static void content_range_is_read_strictly(void **state)
{
	static const struct {
		const char *header;
		bool good, satisfied;
		uint64_t first, last, size;
	} rows[] = {
		{"bytes 0-9/100", true, true, 0, 9, 100},
		{"bytes 0-99/100", true, true, 0, 99, 100},
		{"bytes 7-9/*", true, true, 7, 9, RANGE_UNKNOWN_SIZE},
		{"bytes */100", true, false, 0, 0, 100},
		{"bytes 0-100/100", false, false, 0, 0, 0},
		{"bytes 9-0/100", false, false, 0, 0, 0},
		{"bytes */*", false, false, 0, 0, 0},
		{"bytes 0-9", false, false, 0, 0, 0},
		{"bytes 0-/100", false, false, 0, 0, 0},
		{"bytes=0-9/100", false, false, 0, 0, 0},
		{"bytes 0-9/100x", false, false, 0, 0, 0},
		{"bytes 0-" MAX "/*", false, false, 0, 0, 0},
		{"bytes 0-9/" MAX, false, false, 0, 0, 0},
		{"bytes 0-9/99999999999999999999999", false, false, 0, 0, 0},
		{"bytes ", false, false, 0, 0, 0},
		{"", false, false, 0, 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct byte_range r = {0, 0};
		uint64_t size = 0;
		bool satisfied = false;

		assert_row(
			range_parse_content(rows[i].header, &r, &size, &satisfied) == rows[i].good,
			rows[i].header);
		assert_row(satisfied == rows[i].satisfied && r.first == rows[i].first &&
				   r.last == rows[i].last && size == rows[i].size,
			rows[i].header);
	}
}

static void what_is_formatted_can_be_read(void **state)
{
	const struct byte_range in = {UINT64_MAX - 10, UINT64_MAX - 2};
	char text[RANGE_TEXT_SIZE];
	struct byte_range out;
	uint64_t size;
	bool satisfied;

	(void)state;
	range_format_content(&in, UINT64_MAX - 1, text);
	assert_true(range_parse_content(text, &out, &size, &satisfied));
	assert_memory_equal(&in, &out, sizeof(in));
	range_format_request(&in, text);
	assert_true(range_parse_copy_source(text, &out));
	assert_memory_equal(&in, &out, sizeof(in));
	range_format_unsatisfied(7, text);
	assert_string_equal(text, "bytes */7");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_range_is_cut_to_the_object),
		cmocka_unit_test(the_source_of_a_part_copy_needs_both_ends),
		cmocka_unit_test(content_range_is_read_strictly),
		cmocka_unit_test(what_is_formatted_can_be_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
