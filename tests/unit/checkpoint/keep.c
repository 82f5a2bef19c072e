/* The choice of the checkpoints to keep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "checkpoint/keep.h"

/* The ten checkpoints of two trials in the documentation of Determined's garbage collection;
 * smaller metrics are better. */
static const struct keep_item documented[] = {
	{.trial = 1, .step = 1},
	{.trial = 1, .step = 2},
	{.trial = 1, .step = 3, .has_metric = true, .metric = 0.6},
	{.trial = 1, .step = 4, .has_metric = true, .metric = 0.5},
	{.trial = 1, .step = 5, .has_metric = true, .metric = 0.4},
	{.trial = 2, .step = 6},
	{.trial = 2, .step = 7, .has_metric = true, .metric = 0.2},
	{.trial = 2, .step = 8, .has_metric = true, .metric = 0.3},
	{.trial = 2, .step = 9},
	{.trial = 2, .step = 10},
};

static void assert_keeps(const struct keep_policy *policy, const struct keep_item *items, size_t n,
	const char *expected)
{
	bool keep[16];
	char text[64] = "";
	size_t len = 0;

	keep_choose(policy, items, n, keep);

	for (size_t i = n; i-- > 0;) {
		if (keep[i])
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%d",
				len ? "," : "", (int)items[i].step);
	}
	assert_string_equal(text, expected);
}

/* Each line of the table in Determined's documentation, and finally the union of the rules. */
static void test_keeps_what_determined_documents(void **state)
{
	static const struct {
		uint64_t experiment_best, trial_best, trial_latest;
		const char *kept;
	} table[] = {
		{0, 0, 0, ""},
		{2, 0, 0, "8,7"},
		{5, 0, 0, "8,7,5,4,3"},
		{9, 0, 0, "8,7,5,4,3"},
		{0, 1, 0, "7,5"},
		{0, 3, 0, "8,7,5,4,3"},
		{0, 0, 1, "10,5"},
		{0, 0, 3, "10,9,8,5,4,3"},
		{2, 1, 0, "8,7,5"},
		{2, 0, 1, "10,8,7,5"},
		{0, 1, 1, "10,7,5"},
		{2, 1, 1, "10,8,7,5"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		assert_keeps(&(struct keep_policy){.best_all = table[i].experiment_best,
				     .best = table[i].trial_best,
				     .latest = table[i].trial_latest},
			documented, ARRAY_SIZE(documented), table[i].kept);
}

/* No policy deletes the newest checkpoint, from which a training run resumes. */
static void test_keeps_the_newest_of_all(void **state)
{
	(void)state;
	assert_keeps(
		&(struct keep_policy){.newest = true}, documented, ARRAY_SIZE(documented), "10");
	assert_keeps(&(struct keep_policy){.newest = true, .best = 1}, documented,
		ARRAY_SIZE(documented), "10,7,5");
}

static void test_keeps_every_nth_step(void **state)
{
	(void)state;
	assert_keeps(&(struct keep_policy){.every = 4, .newest = true}, documented,
		ARRAY_SIZE(documented), "10,8,4");
}

static void test_larger_may_be_better(void **state)
{
	(void)state;
	assert_keeps(&(struct keep_policy){.best_all = 2, .larger = true}, documented,
		ARRAY_SIZE(documented), "4,3");
}

/* If two checkpoints have equal metrics, the later step is kept. */
static void test_keeps_the_later_of_two_alike(void **state)
{
	static const struct keep_item alike[] = {
		{.step = 1, .has_metric = true, .metric = 0.5},
		{.step = 2, .has_metric = true, .metric = 0.5},
		{.step = 3, .has_metric = true, .metric = 0.7},
	};

	(void)state;
	assert_keeps(&(struct keep_policy){.best = 1}, alike, ARRAY_SIZE(alike), "2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keeps_what_determined_documents),
		cmocka_unit_test(test_keeps_the_newest_of_all),
		cmocka_unit_test(test_keeps_every_nth_step),
		cmocka_unit_test(test_larger_may_be_better),
		cmocka_unit_test(test_keeps_the_later_of_two_alike),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
