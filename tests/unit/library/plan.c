/* The plan of a mix: numbers of samples, proportions, ranks, workers and resuming. */
#include <penstock/dataset.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "alloc_fail.h"

static const uint64_t samples[] = {100, 30, 7};
static const uint64_t weights[] = {7, 2, 1};

static struct penstock_plan_options mix(bool repeat)
{
	struct penstock_plan_options o = PENSTOCK_PLAN_OPTIONS_INIT;

	o.sets = 3;
	o.set_samples = samples;
	o.set_weights = weights;
	o.repeat = repeat;
	o.shuffle = "window";
	o.block = 4;
	o.window = 3;
	o.seed = 5;
	o.batch = 8;
	return o;
}

/* Counts each sample in the worker's first `limit` batches. Returns the number of samples that all
 * ranks have received by then. */
static uint64_t count(
	const struct penstock_plan_options *o, uint64_t limit, unsigned counts[static 137])
{
	struct penstock_plan *plan = NULL;
	uint64_t ids[8], n, delivered;

	assert_int_equal(penstock_plan_new(&plan, o, NULL), 0);
	n = penstock_plan_batches(plan);
	for (uint64_t i = 0; i < (n < limit ? n : limit); i++) {
		size_t got = penstock_plan_batch(plan, i, ids, NULL);

		for (size_t k = 0; k < got; k++) {
			assert_true(ids[k] < 137);
			counts[ids[k]]++;
		}
	}
	delivered = penstock_plan_delivered(plan, limit);
	penstock_plan_free(plan);
	return delivered;
}

static unsigned sum(const unsigned *counts, size_t n)
{
	unsigned all = 0;

	for (size_t i = 0; i < n; i++)
		all += counts[i];
	return all;
}

/* The sets make up 700, 200 and 100 of 1,000 samples. */
static void test_a_mix_that_repeats_takes_all_samples_before_any_again(void **state)
{
	struct penstock_plan_options o = mix(true);
	unsigned counts[137] = {0};

	(void)state;
	o.samples = 1000;
	count(&o, UINT64_MAX, counts);

	assert_int_equal(sum(counts, 100), 700);
	assert_int_equal(sum(counts + 100, 30), 200);
	assert_int_equal(sum(counts + 130, 7), 100);
	for (size_t i = 0; i < 100; i++)
		assert_int_equal(counts[i], 7);
	for (size_t i = 100; i < 130; i++)
		assert_in_range(counts[i], 6, 7);
	for (size_t i = 130; i < 137; i++)
		assert_in_range(counts[i], 14, 15);
}

/* The smallest set limits the mix to about ten times its size. */
static void test_a_mix_ends_with_its_smallest_set_and_takes_no_sample_twice(void **state)
{
	struct penstock_plan_options o = mix(false);
	struct penstock_plan *plan = NULL;
	unsigned counts[137] = {0};
	uint64_t length;

	(void)state;
	assert_int_equal(penstock_plan_new(&plan, &o, NULL), 0);
	length = penstock_plan_samples(plan);
	penstock_plan_free(plan);
	count(&o, UINT64_MAX, counts);

	assert_in_range(length, 70, 79);
	assert_int_equal(sum(counts, 137), length);
	assert_int_equal(sum(counts + 130, 7), 7);
	for (size_t i = 0; i < 137; i++)
		assert_in_range(counts[i], 0, 1);
}

static void test_ranks_and_workers_get_the_same_samples_together(void **state)
{
	struct penstock_plan_options o = mix(true);
	struct penstock_plan_options first;
	unsigned expected[137] = {0};

	(void)state;
	o.samples = 333;
	first = o;
	first.ranks = 2;
	count(&o, UINT64_MAX, expected);
	for (o.ranks = 1; o.ranks <= 4; o.ranks++) {
		for (o.workers = 1; o.workers <= 3; o.workers++) {
			unsigned counts[137] = {0};

			/* The training of two ranks stops after one step. */
			first.rank = 0;
			count(&first, 1, counts);
			first.rank = 1;
			o.start = count(&first, 1, counts);
			for (o.rank = 0; o.rank < o.ranks; o.rank++)
				for (o.worker = 0; o.worker < o.workers; o.worker++)
					count(&o, UINT64_MAX, counts);
			assert_memory_equal(counts, expected, sizeof(counts));
		}
	}
}

static uint64_t id_of(const struct penstock_plan_options *o)
{
	struct penstock_plan *plan = NULL;
	uint64_t id;

	assert_int_equal(penstock_plan_new(&plan, o, NULL), 0);
	id = penstock_plan_id(plan);
	penstock_plan_free(plan);
	return id;
}

static void test_another_mix_is_another_order(void **state)
{
	static const uint64_t other[] = {7, 1, 2};
	struct penstock_plan_options o = mix(true), changed = o;
	uint64_t id = id_of(&o);

	(void)state;
	changed.set_weights = other;
	assert_true(id_of(&changed) != id);
	changed = o;
	changed.window = 4;
	assert_true(id_of(&changed) != id);
	changed = o;
	changed.sets = 2;
	assert_true(id_of(&changed) != id);
	changed = o;
	changed.epoch = 9;
	assert_true(id_of(&changed) == id);
}

static void refused(const struct penstock_plan_options *o, enum penstock_code code)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct penstock_plan *plan = NULL;

	assert_true(penstock_plan_new(&plan, o, &err) < 0);
	assert_null(plan);
	assert_int_equal(err.code, code);
	penstock_error_release(&err);
}

static void test_invalid_mixes_are_refused(void **state)
{
	static const uint64_t none[] = {7, 0, 1}, huge[] = {INT64_MAX, 1, 1};
	struct penstock_plan_options o = mix(false);

	(void)state;
	o.set_weights = NULL;
	refused(&o, PENSTOCK_E_INVALID);
	o.set_weights = none;
	refused(&o, PENSTOCK_E_INVALID);
	o = mix(false);
	o.set_samples = none;
	refused(&o, PENSTOCK_E_INVALID);
	o.set_samples = huge;
	refused(&o, PENSTOCK_E_LIMIT);
	o = mix(false);
	o.samples = 1000;
	refused(&o, PENSTOCK_E_INVALID);
	o = mix(false);
	o.sets = SIZE_MAX;
	refused(&o, PENSTOCK_E_INVALID);
}

/* A program that was built with a header without mixes has shorter options. */
static void test_an_older_program_has_no_mix(void **state)
{
	struct penstock_plan_options o = mix(true);
	struct penstock_plan *plan = NULL;

	(void)state;
	o.struct_size = offsetof(struct penstock_plan_options, sets);
	o.samples = 12;
	assert_int_equal(penstock_plan_new(&plan, &o, NULL), 0);
	assert_int_equal(penstock_plan_samples(plan), 12);
	penstock_plan_free(plan);
}

static void test_failed_allocations_are_reported(void **state)
{
	struct penstock_plan_options o = mix(true);
	bool failed = true;

	(void)state;
	for (size_t n = 1; failed; n++) {
		struct penstock_plan *plan = NULL;
		int r;

		alloc_fail_arm(n);
		r = penstock_plan_new(&plan, &o, NULL);
		failed = alloc_fail_disarm();
		assert_int_equal(r < 0, failed);
		penstock_plan_free(plan);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_mix_that_repeats_takes_all_samples_before_any_again),
		cmocka_unit_test(test_a_mix_ends_with_its_smallest_set_and_takes_no_sample_twice),
		cmocka_unit_test(test_ranks_and_workers_get_the_same_samples_together),
		cmocka_unit_test(test_another_mix_is_another_order),
		cmocka_unit_test(test_invalid_mixes_are_refused),
		cmocka_unit_test(test_an_older_program_has_no_mix),
		cmocka_unit_test(test_failed_allocations_are_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
