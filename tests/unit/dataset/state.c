/* The saved position in a data set, which comes back from a checkpoint, perhaps damaged or
 * edited. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "dataset/order/state.h"

static const struct order_state example = {.seed = 42,
	.epoch = 3,
	.delivered = 640000,
	.samples = 1281167,
	.order = 0x123456789abcdef};

static const char example_text[] = "{\"version\":1,\"seed\":42,\"epoch\":3,\"delivered\":640000,"
				   "\"samples\":1281167,\"order\":\"0123456789abcdef\"}";

static int parse(const char *text, struct order_state *s, struct penstock_error *err)
{
	return order_state_parse(s, text, strlen(text), err);
}

static void assert_states_equal(const struct order_state *a, const struct order_state *b)
{
	assert_true(a->seed == b->seed && a->epoch == b->epoch && a->delivered == b->delivered &&
		    a->samples == b->samples && a->order == b->order);
}

/* Checkpoints of older versions contain this text, so it must not change. */
static void test_the_text_stays_as_it_is(void **state)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_DATASET_STATE);
	struct order_state s = {.seed = 0};

	(void)state;
	assert_int_equal(order_state_format(&example, &text, NULL), 0);
	assert_string_equal(buf_str(&text), example_text);
	assert_int_equal(parse(example_text, &s, NULL), 0);
	assert_states_equal(&s, &example);
}

static void test_the_largest_numbers_can_be_saved(void **state)
{
	static const struct order_state largest = {
		INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, UINT64_MAX};
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_DATASET_STATE);
	struct order_state s = {.seed = 0};

	(void)state;
	assert_int_equal(order_state_format(&largest, &text, NULL), 0);
	assert_int_equal(order_state_parse(&s, text.data, text.len, NULL), 0);
	assert_states_equal(&s, &largest);
}

/* A script may add a member of its own, and order and format the text as it likes. */
static void test_other_members_are_ignored(void **state)
{
	struct order_state s = {.seed = 0};

	(void)state;
	assert_int_equal(parse("{ \"order\": \"0123456789ABCDEF\", \"samples\": 1281167,\n"
			       "\"delivered\": 640000, \"epoch\": 3, \"seed\": 42, \"version\": 1, "
			       "\"host\": [1]}",
				 &s, NULL),
		0);
	assert_states_equal(&s, &example);
}

/* The message names the member, and the caller's state does not change. */
static void test_an_invalid_state_is_corrupt(void **state)
{
	static const struct {
		const char *text, *names;
	} cases[] = {
		{"", "JSON"},
		{"[1]", "JSON"},
		{"{\"version\":1,\"seed\":42,\"epoch\":3,\"deliv", "JSON"},
		{"{\"seed\":1,\"seed\":1}", "JSON"},
		{"{}", "'version'"},
		{"{\"version\":0}", "'version'"},
		{"{\"version\":\"1\"}", "'version'"},
		{"{\"version\":1,\"seed\":-1}", "'seed'"},
		{"{\"version\":1,\"seed\":1.5}", "'seed'"},
		{"{\"version\":1,\"seed\":1}", "'epoch'"},
		{"{\"version\":1,\"seed\":1,\"epoch\":0}", "'samples'"},
		{"{\"version\":1,\"seed\":1,\"epoch\":0,\"samples\":9,\"delivered\":10}",
			"'delivered'"},
		{"{\"version\":1,\"seed\":1,\"epoch\":0,\"samples\":9,\"delivered\":9}", "'order'"},
		{"{\"version\":1,\"seed\":1,\"epoch\":0,\"samples\":9,\"delivered\":9,"
		 "\"order\":\"0123456789abcde\"}",
			"'order'"},
		{"{\"version\":1,\"seed\":1,\"epoch\":0,\"samples\":9,\"delivered\":9,"
		 "\"order\":5}",
			"'order'"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		struct order_state s = example;

		assert_int_equal(parse(cases[i].text, &s, &err), -PENSTOCK_E_CORRUPT);
		assert_non_null(strstr(err.message, cases[i].names));
		assert_states_equal(&s, &example);
	}
}

static void test_a_long_text_is_not_read(void **state)
{
	static char text[LIMIT_DATASET_STATE + 1];
	struct order_state s = example;

	(void)state;
	memset(text, ' ', sizeof(text));
	memcpy(text, example_text, strlen(example_text));

	assert_int_equal(order_state_parse(&s, text, LIMIT_DATASET_STATE, NULL), 0);
	assert_int_equal(
		order_state_parse(&s, text, LIMIT_DATASET_STATE + 1, NULL), -PENSTOCK_E_CORRUPT);
}

static void test_a_state_of_a_later_version_is_refused(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct order_state s = example;

	(void)state;
	assert_int_equal(parse("{\"version\":2}", &s, &err), -PENSTOCK_E_UNSUPPORTED);
	assert_non_null(strstr(err.message, "2"));
}

/* With other samples, the rest of the epoch would lack samples that were not delivered yet. */
static void test_other_samples_cannot_be_resumed(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	(void)state;
	assert_int_equal(order_state_check(&example, example.samples, example.order, &err), 0);
	assert_int_equal(
		order_state_check(&example, 1281168, example.order, &err), -PENSTOCK_E_INVALID);
	assert_non_null(strstr(err.message, "1281167"));
	assert_non_null(strstr(err.message, "1281168"));
	assert_int_equal(order_state_check(&example, example.samples, example.order + 1, &err),
		-PENSTOCK_E_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_text_stays_as_it_is),
		cmocka_unit_test(test_the_largest_numbers_can_be_saved),
		cmocka_unit_test(test_other_members_are_ignored),
		cmocka_unit_test(test_an_invalid_state_is_corrupt),
		cmocka_unit_test(test_a_long_text_is_not_read),
		cmocka_unit_test(test_a_state_of_a_later_version_is_refused),
		cmocka_unit_test(test_other_samples_cannot_be_resumed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
