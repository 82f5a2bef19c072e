/* Several data sets as one: proportions at every position, ends, repetitions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "alloc_fail.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "dataset/order/key.h"
#include "dataset/order/mix.h"

static struct mix *mix_of(const struct mix_options *options)
{
	struct mix *m = NULL;

	assert_int_equal(mix_new(&m, options, NULL), 0);
	return m;
}

static struct mix_pick pick_at(const struct mix *m, uint64_t p)
{
	struct mix_pick pick;

	mix_batch(m, p, 1, &pick);
	return pick;
}

/* The expected values come from a second implementation, in Python, which counts the picks one by
 * one. */
static void test_mixes_are_the_same_on_every_machine(void **state)
{
	static const struct mix_set sets[] = {{100, 7}, {100, 2}, {100, 3}, {100, 1}};
	static const unsigned golden[] = {0, 2, 0, 1, 0, 2, 0, 3, 0, 2, 0, 1, 0, 0, 2, 0, 1, 0, 2,
		0, 3, 0, 2, 0, 1, 0, 0, 2, 0, 1};
	_cleanup_(mix_freep) struct mix *m = mix_of(
		&(struct mix_options){.sets = sets, .n_sets = 4, .end = MIX_REPEATS});
	struct mix_pick picks[30];
	uint64_t next[4] = {0};

	(void)state;
	mix_batch(m, 0, 30, picks);

	for (size_t i = 0; i < 30; i++) {
		assert_int_equal(picks[i].set, golden[i]);
		assert_int_equal(picks[i].pass, 0);
		assert_int_equal(picks[i].position, next[golden[i]]++);
	}
}

/* ---- proportions ---- */

/* Asserts for each of the first `n` positions: the share of each set is wrong by at most
 * `hundredths` / 100 samples, mix_count() equals the number of picks from the set, and the set's
 * samples are picked in their order. */
static void assert_proportions(
	const struct mix_set *sets, size_t n_sets, uint64_t n, uint64_t hundredths)
{
	_cleanup_(mix_freep) struct mix *m = mix_of(&(struct mix_options){
		.sets = sets, .n_sets = n_sets, .end = MIX_REPEATS, .length = UINT64_C(1) << 40});
	uint64_t sum = 0, counts[64] = {0};

	for (size_t k = 0; k < n_sets; k++)
		sum += sets[k].weight;
	for (uint64_t p = 0; p < n; p++) {
		struct mix_pick pick = pick_at(m, p);

		for (uint32_t k = 0; k < n_sets; k++) {
			uint64_t is = counts[k] * sum, ideal = p * sets[k].weight;
			uint64_t error = is > ideal ? is - ideal : ideal - is;

			assert_true(mix_count(m, k, p) == counts[k]);
			assert_true(error * 100 <= hundredths * sum);
		}
		assert_true(pick.position == counts[pick.set]++);
	}
	for (uint32_t k = 0; k < n_sets; k++)
		assert_true(mix_count(m, k, sum * 1000) == sets[k].weight * 1000);
}

/* Weights that are equal, uneven, of many magnitudes, or like Fibonacci numbers. */
static void make_weights(struct mix_set *sets, size_t n, uint64_t seed)
{
	uint64_t before = 1, last = 1;

	for (size_t k = 0; k < n; k++) {
		uint64_t random = key_of(seed, k, 0, KEY_MIX), next = before + last;

		sets[k].n = UINT64_C(1) << 40;
		if (seed % 4 == 0)
			sets[k].weight = 1;
		else if (seed % 4 == 1)
			sets[k].weight = 1 + random % 1000;
		else if (seed % 4 == 2)
			sets[k].weight = 1 + (random >> 32) % (UINT64_C(1) << random % 20);
		else
			sets[k].weight = last < 1000000 ? last : 1;
		before = last;
		last = next;
	}
}

static void test_each_set_has_its_share_at_every_position(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 400; seed++) {
		size_t n = 1 + key_mix(seed) % 30;
		struct mix_set sets[64];

		make_weights(sets, n, seed);
		assert_proportions(sets, n, 700, n == 1 ? 0 : n == 2 ? 50 : n == 3 ? 99 : 168);
	}
}

static void test_two_sets_have_their_share_within_half_a_sample(void **state)
{
	struct mix_set sets[2] = {{1000, 1}, {1000, 1}};

	(void)state;
	for (uint64_t a = 1; a < 40; a++) {
		for (uint64_t b = 1; b < 40; b++) {
			sets[0].weight = a;
			sets[1].weight = b;
			assert_proportions(sets, 2, 2 * (a + b), 50);
		}
	}
}

/* The product of two such weights still fits into 64 bits. */
static void test_weights_may_be_parts_of_two_to_the_32(void **state)
{
	static const struct mix_set sets[] = {
		{1, 1}, {INT64_MAX, (UINT64_C(1) << 31) - 1}, {INT64_MAX, UINT64_C(1) << 31}};
	_cleanup_(mix_freep) struct mix *m = mix_of(&(struct mix_options){
		.sets = sets, .n_sets = 3, .end = MIX_REPEATS, .length = INT64_MAX});
	uint64_t period = UINT64_C(1) << 32, last = INT64_MAX - period + 1;

	(void)state;
	for (uint64_t p = period - 50; p <= period; p++)
		assert_true(mix_count(m, 0, p) + mix_count(m, 1, p) + mix_count(m, 2, p) == p);
	for (uint32_t k = 0; k < 3; k++) {
		assert_true(mix_count(m, k, period) == sets[k].weight);
		assert_true(mix_count(m, k, last) == last / period * sets[k].weight);
	}
}

/* ---- ends ---- */

/* If the weights are proportional to the sizes, each sample is taken exactly once. */
static void test_sets_that_end_are_taken_once(void **state)
{
	static const struct mix_set sets[] = {{13, 13}, {7, 7}, {101, 101}, {1, 1}};
	unsigned char seen[4][101] = {0};
	_cleanup_(mix_freep) struct mix *m = mix_of(
		&(struct mix_options){.sets = sets, .n_sets = 4, .end = MIX_ENDS, .epoch = 6});

	(void)state;
	assert_int_equal(mix_length(m), 13 + 7 + 101 + 1);
	for (uint64_t p = 0; p < mix_length(m); p++) {
		struct mix_pick pick = pick_at(m, p);

		assert_int_equal(pick.pass, 6);
		assert_in_range(pick.position, 0, sets[pick.set].n - 1);
		assert_int_equal(seen[pick.set][pick.position]++, 0);
	}
}

/* The epoch has the largest possible length: its next position would need a sample that a set does
 * not have. */
static void test_a_mix_ends_with_its_first_set(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 200; seed++) {
		size_t n = 1 + key_mix(seed) % 10;
		struct mix_set sets[64];
		struct mix *m;
		bool full = false;

		make_weights(sets, n, seed);
		for (size_t k = 0; k < n; k++)
			sets[k].n = 1 + key_of(seed, k, 1, KEY_MIX) % 1000;
		m = mix_of(&(struct mix_options){.sets = sets, .n_sets = n, .end = MIX_ENDS});

		for (uint32_t k = 0; k < n; k++) {
			assert_true(mix_count(m, k, mix_length(m)) <= sets[k].n);
			full |= mix_count(m, k, mix_length(m) + 1) > sets[k].n;
		}
		assert_true(full);
		mix_free(m);
	}
}

/* The epoch has exactly as many positions as it takes to deliver each set completely. */
static void test_sets_that_repeat_are_all_taken_whole(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 200; seed++) {
		size_t n = 1 + key_mix(seed) % 10;
		struct mix_set sets[64];
		struct mix *m;
		bool missing = false;

		make_weights(sets, n, seed);
		for (size_t k = 0; k < n; k++)
			sets[k].n = 1 + key_of(seed, k, 1, KEY_MIX) % 1000;
		m = mix_of(&(struct mix_options){.sets = sets, .n_sets = n, .end = MIX_REPEATS});

		for (uint32_t k = 0; k < n; k++) {
			assert_true(mix_count(m, k, mix_length(m)) >= sets[k].n);
			missing |= mix_count(m, k, mix_length(m) - 1) < sets[k].n;
		}
		assert_true(missing);
		mix_free(m);
	}
}

/* Over three epochs, a sample of a set is taken a second time only after all have been taken
 * once. */
static void test_a_set_that_repeats_continues_in_the_next_epoch(void **state)
{
	static const struct mix_set sets[] = {{10, 3}, {1000, 4}, {77, 5}};
	uint64_t next[3] = {0};

	(void)state;
	for (uint64_t epoch = 0; epoch < 3; epoch++) {
		_cleanup_(mix_freep) struct mix *m = mix_of(&(struct mix_options){.sets = sets,
			.n_sets = 3,
			.end = MIX_REPEATS,
			.length = 500,
			.epoch = epoch});

		assert_int_equal(mix_length(m), 500);
		for (uint64_t p = 0; p < 500; p++) {
			struct mix_pick pick = pick_at(m, p);
			uint64_t n = sets[pick.set].n;

			assert_true(pick.pass * n + pick.position == next[pick.set]++);
			assert_true(pick.position < n);
		}
	}
}

/* A batch may wrap around the end of the epoch, because the last batch may be padded. */
static void test_a_batch_has_the_samples_of_its_positions(void **state)
{
	static const struct mix_set sets[] = {{10, 3}, {8, 2}};
	_cleanup_(mix_freep) struct mix *m = mix_of(
		&(struct mix_options){.sets = sets, .n_sets = 2, .end = MIX_REPEATS, .length = 9});
	struct mix_pick picks[20];

	(void)state;
	mix_batch(m, 7, 20, picks);
	for (uint64_t i = 0; i < 20; i++) {
		struct mix_pick pick = pick_at(m, (7 + i) % 9);

		assert_true(picks[i].set == pick.set && picks[i].pass == pick.pass &&
			    picks[i].position == pick.position);
	}
}

/* ---- identity and failures ---- */

static void test_the_id_is_that_of_sets_and_weights(void **state)
{
	static const struct mix_set sets[][2] = {
		{{10, 3}, {8, 2}}, {{8, 2}, {10, 3}}, {{10, 2}, {8, 3}}, {{11, 3}, {8, 2}}};
	uint64_t ids[8];
	size_t n = 0;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		for (enum mix_end end = MIX_ENDS; end <= MIX_REPEATS; end++) {
			_cleanup_(mix_freep) struct mix *m = mix_of(&(struct mix_options){
				.sets = sets[i], .n_sets = 2, .end = end, .length = 5});

			assert_true(mix_id(m, 1) != mix_id(m, 2));
			ids[n++] = mix_id(m, 1);
		}
	}
	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < i; j++)
			assert_true(ids[i] != ids[j]);
	}
}

static void test_numbers_out_of_range_are_refused(void **state)
{
	static const struct mix_set good[] = {{10, 3}, {8, 2}};
	static const struct mix_set empty[] = {{10, 3}, {0, 2}};
	static const struct mix_set light[] = {{10, 3}, {8, 0}};
	static const struct mix_set heavy[] = {{10, 1}, {8, LIMIT_DATASET_WEIGHTS}};
	static const struct mix_set huge[] = {{INT64_MAX, 1}, {INT64_MAX, 1}};
	static const struct {
		struct mix_options options;
		int code;
	} cases[] = {
		{{.sets = good}, PENSTOCK_E_INVALID},
		{{.sets = good, .n_sets = LIMIT_DATASET_SETS + 1}, PENSTOCK_E_INVALID},
		{{.sets = good, .n_sets = 2, .epoch = UINT64_C(1) << 63}, PENSTOCK_E_INVALID},
		{{.sets = good, .n_sets = 2, .length = UINT64_C(1) << 63}, PENSTOCK_E_INVALID},
		{{.sets = good, .n_sets = 2, .length = 100}, PENSTOCK_E_INVALID},
		{{.sets = empty, .n_sets = 2}, PENSTOCK_E_INVALID},
		{{.sets = light, .n_sets = 2}, PENSTOCK_E_INVALID},
		{{.sets = heavy, .n_sets = 2}, PENSTOCK_E_INVALID},
		{{.sets = huge, .n_sets = 2}, PENSTOCK_E_LIMIT},
		{{.sets = huge, .n_sets = 2, .end = MIX_REPEATS}, PENSTOCK_E_LIMIT},
		{{.sets = good, .n_sets = 2, .end = MIX_REPEATS, .epoch = INT64_MAX},
			PENSTOCK_E_LIMIT},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		struct mix *m = NULL;

		assert_int_equal(mix_new(&m, &cases[i].options, &err), -cases[i].code);
		assert_non_null(strstr(err.message, "cannot"));
		assert_null(m);
	}
}

/* The message names the largest possible length. */
static void test_a_length_beyond_the_end_of_a_set_is_refused(void **state)
{
	static const struct mix_set sets[] = {{10, 1}, {4, 1}};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(mix_freep) struct mix *longest = mix_of(
		&(struct mix_options){.sets = sets, .n_sets = 2});
	struct mix_options options = {.sets = sets, .n_sets = 2, .length = mix_length(longest) + 1};
	struct mix *m = NULL;

	(void)state;
	assert_int_equal(mix_length(longest), 9); /* five samples of the first set */
	assert_int_equal(mix_new(&m, &options, &err), -PENSTOCK_E_INVALID);
	assert_non_null(strstr(err.message, "after 9"));
	options.length--;
	assert_int_equal(mix_new(&m, &options, NULL), 0);
	mix_free(m);
}

static void test_a_lack_of_memory_is_reported(void **state)
{
	static const struct mix_set sets[] = {{10, 3}, {8, 2}};

	(void)state;
	for (size_t n = 1;; n++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		struct mix *m = NULL;
		int r;

		alloc_fail_arm(n);
		r = mix_new(&m, &(struct mix_options){.sets = sets, .n_sets = 2}, &err);
		if (!alloc_fail_disarm()) {
			mix_free(m);
			break;
		}
		assert_int_equal(r, -PENSTOCK_E_MEMORY);
		assert_null(m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mixes_are_the_same_on_every_machine),
		cmocka_unit_test(test_each_set_has_its_share_at_every_position),
		cmocka_unit_test(test_two_sets_have_their_share_within_half_a_sample),
		cmocka_unit_test(test_weights_may_be_parts_of_two_to_the_32),
		cmocka_unit_test(test_sets_that_end_are_taken_once),
		cmocka_unit_test(test_a_mix_ends_with_its_first_set),
		cmocka_unit_test(test_sets_that_repeat_are_all_taken_whole),
		cmocka_unit_test(test_a_set_that_repeats_continues_in_the_next_epoch),
		cmocka_unit_test(test_a_batch_has_the_samples_of_its_positions),
		cmocka_unit_test(test_the_id_is_that_of_sets_and_weights),
		cmocka_unit_test(test_numbers_out_of_range_are_refused),
		cmocka_unit_test(test_a_length_beyond_the_end_of_a_set_is_refused),
		cmocka_unit_test(test_a_lack_of_memory_is_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
