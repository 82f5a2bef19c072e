/* Selecting the keys of one output from all keys below its prefix. */
#include "transfer/output_keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void the_state_of_runs_is_known(void **state)
{
	(void)state;
	assert_true(output_key_is_state(".penstock/runs/1/state.json"));
	assert_true(output_key_is_state("x/.penstock/owner.json"));
	assert_false(output_key_is_state("x.penstock/a"));
	assert_false(output_key_is_state(".penstock"));
	assert_false(output_key_is_state("penstock/a"));
}

/* The keys are in the order of a listing. */
static void outputs_below_an_output_are_left_out(void **state)
{
	static const struct {
		const char *key;
		bool taken;
	} cases[] = {
		{".penstock/owner.json", false},
		{".penstock/runs/1/state.json", false},
		{".penstock/tags/v1/a", false},
		{"a", true},
		{"model/.penstock/deploy.json", false}, /* a deployed model is not an output */
		{"model/weights", true},
		{"sub/.penstock/owner.json", false},
		{"sub/.penstock/runs/2/state.json", false},
		{"sub/a", false},
		{"sub/deep/.penstock/runs/3/state.json", false},
		{"sub/deep/b", false},
		{"sub/z", false},
		{"sub2/a", true},
		{"t/u/.penstock/runs/4/state.json", false},
		{"t/u/a", false},
		{"t/v", true},
	};
	struct output_keys keys = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(cases[i].taken, output_keys_take(&keys, cases[i].key));
}

/* The prefix has the outputs of several runs below it, but is not an output itself. */
static void a_prefix_that_is_no_output_has_all_outputs(void **state)
{
	struct output_keys keys = {0};

	(void)state;
	assert_true(output_keys_take(&keys, "-"));
	assert_false(output_keys_take(&keys, "a/.penstock/runs/1/state.json"));
	assert_true(output_keys_take(&keys, "a/x"));
	assert_true(output_keys_take(&keys, "b/x"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_state_of_runs_is_known),
		cmocka_unit_test(outputs_below_an_output_are_left_out),
		cmocka_unit_test(a_prefix_that_is_no_output_has_all_outputs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
