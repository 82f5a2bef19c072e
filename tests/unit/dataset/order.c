/* The order of an epoch: each kind takes each sample once, with the shuffle that its documentation
 * describes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "dataset/order/order.h"

#define MOST 4000

static const enum order_kind kinds[] = {ORDER_SEQUENTIAL, ORDER_FULL, ORDER_BLOCK, ORDER_WINDOW};

static void make(struct order *o, enum order_kind kind, uint64_t n, uint64_t block, uint64_t window,
	uint64_t seed)
{
	const struct order_options options = {
		.kind = kind, .n = n, .block = block, .window = window, .seed = seed, .epoch = 3};

	assert_int_equal(order_init(o, &options, NULL), 0);
}

/* The expected values come from a second implementation, in Python, which uses lists of blocks and
 * windows. */
static void test_orders_are_the_same_on_every_machine(void **state)
{
	static const uint64_t golden[][22] = {
		{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21},
		{17, 21, 9, 6, 4, 10, 12, 20, 13, 5, 11, 0, 15, 3, 14, 16, 7, 18, 1, 19, 8, 2},
		{9, 11, 10, 8, 21, 20, 0, 1, 3, 2, 15, 12, 13, 14, 4, 5, 7, 6, 18, 17, 19, 16},
		{20, 8, 3, 11, 9, 10, 2, 0, 1, 21, 15, 17, 18, 19, 6, 7, 13, 5, 16, 14, 4, 12},
	};
	uint64_t indices[22];
	struct order o;

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
		make(&o, kinds[k], 22, 4, 3, 42);

		order_batch(&o, 0, 22, indices);

		assert_memory_equal(indices, golden[k], sizeof(indices));
	}
}

static void assert_each_once(const struct order *o)
{
	static uint64_t batch[MOST];
	unsigned char seen[MOST] = {0};

	order_batch(o, 0, o->n, batch);
	for (uint64_t p = 0; p < o->n; p++) {
		uint64_t i = order_at(o, p);

		assert_true(i < o->n && !seen[i] && i == batch[p]);
		seen[i] = 1;
	}
}

/* Tests sizes near those of blocks and windows, and prime sizes. */
static void test_each_sample_appears_once(void **state)
{
	static const uint64_t sizes[] = {
		0, 1, 2, 6, 7, 8, 13, 14, 15, 20, 21, 22, 97, 101, 1009, 3989};
	static const uint64_t windows[] = {1, 2, 3, 5, 1000};
	struct order o;

	(void)state;
	for (size_t s = 0; s < ARRAY_SIZE(sizes); s++) {
		for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
			for (size_t w = 0; w < ARRAY_SIZE(windows); w++) {
				for (uint64_t seed = 0; seed < 20; seed++) {
					make(&o, kinds[k], sizes[s], seed < 10 ? 7 : 1, windows[w],
						seed);
					assert_each_once(&o);
				}
			}
		}
	}
}

/* A range of positions may begin and end in the middle of windows, and may wrap around the end of
 * the epoch. */
static void test_a_batch_has_the_samples_of_its_positions(void **state)
{
	uint64_t indices[300];
	struct order o;

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
		make(&o, kinds[k], 101, 7, 3, 1);
		for (uint64_t first = 0; first < 220; first++) {
			for (size_t count = 0; count < 300; count += 43) {
				order_batch(&o, first, count, indices);
				for (size_t i = 0; i < count; i++)
					assert_true(indices[i] == order_at(&o, (first + i) % 101));
			}
		}
	}
}

/* A window has four blocks. All samples of these blocks come before those of the next four
 * blocks. */
static void test_a_window_has_the_samples_of_whole_blocks(void **state)
{
	struct order o;

	(void)state;
	for (uint64_t seed = 0; seed < 50; seed++) {
		unsigned counts[21] = {0}, begun = 0, complete = 0, windows = 0;

		make(&o, ORDER_WINDOW, 1009, 50, 4, seed); /* 20 blocks, and one of 9 samples */
		for (uint64_t p = 0; p < 1009; p++) {
			uint64_t b = order_at(&o, p) / 50;

			begun += counts[b]++ == 0;
			complete += counts[b] == (b == 20 ? 9 : 50);
			assert_in_range(begun, 1, 4);
			if (complete == 4) {
				begun = complete = 0;
				windows++;
			}
		}
		assert_int_equal(windows, 5);
		assert_int_equal(complete, 1);
	}
}

/* If the short block always stayed the last one, its samples would end each epoch. */
static void test_the_short_block_may_be_anywhere(void **state)
{
	unsigned slots[11] = {0};
	struct order o;

	(void)state;
	for (uint64_t seed = 0; seed < 1100; seed++) {
		uint64_t p = 0;

		make(&o, ORDER_BLOCK, 101, 10, 0, seed);
		while (order_at(&o, p) != 100)
			p++;
		assert_int_equal(p % 10, 0);
		slots[p / 10]++;
	}
	/* The expected number is 100, with a standard deviation of 10. */
	for (size_t i = 0; i < ARRAY_SIZE(slots); i++)
		assert_in_range(slots[i], 60, 140);
}

/* The samples of a block have a different order in each block and in each epoch. */
static void test_blocks_are_shuffled_differently(void **state)
{
	uint64_t first[100], second[100], other[100];
	unsigned same = 0;
	struct order o;

	(void)state;
	make(&o, ORDER_BLOCK, 1000, 100, 0, 1);
	order_batch(&o, 0, 100, first);
	order_batch(&o, 100, 100, second);
	make(&o, ORDER_BLOCK, 1000, 100, 0, 2);
	order_batch(&o, 0, 100, other);

	for (size_t i = 0; i < 100; i++) {
		same += first[i] % 100 == second[i] % 100;
		same += first[i] % 100 == other[i] % 100;
		same += first[i] % 100 == i;
	}
	assert_in_range(same, 0, 12); /* 3 are expected */
}

/* Sums of positions and sizes do not overflow. */
static void test_the_largest_data_set_has_an_order(void **state)
{
	static const uint64_t blocks[] = {1, 1000, INT64_MAX - 1, INT64_MAX, UINT64_MAX};
	struct order o;

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
		for (size_t b = 0; b < ARRAY_SIZE(blocks); b++) {
			uint64_t indices[3];

			make(&o, kinds[k], INT64_MAX, blocks[b], UINT64_MAX, 1);
			order_batch(&o, INT64_MAX - 2, 3, indices);
			assert_true(indices[0] < INT64_MAX && indices[1] < INT64_MAX);
			assert_true(indices[0] != indices[1] && indices[2] == order_at(&o, 0));
		}
	}
}

static void test_numbers_out_of_range_are_refused(void **state)
{
	static const struct order_options invalid[] = {
		{.kind = ORDER_FULL, .n = UINT64_C(1) << 63},
		{.kind = ORDER_FULL, .seed = UINT64_C(1) << 63},
		{.kind = ORDER_FULL, .epoch = UINT64_C(1) << 63},
		{.kind = ORDER_BLOCK, .n = 10},
		{.kind = ORDER_WINDOW, .n = 10, .block = 1},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(invalid); i++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		struct order o;

		assert_int_equal(order_init(&o, &invalid[i], &err), -PENSTOCK_E_INVALID);
		assert_non_null(strstr(err.message, "cannot"));
	}
}

/* The id depends on the shape of the order, but not on numbers that have no effect. */
static void test_the_id_is_that_of_the_shape(void **state)
{
	const struct order_options block = {.kind = ORDER_BLOCK, .block = 8};
	const struct order_options window = {.kind = ORDER_WINDOW, .block = 8, .window = 2};
	const struct order_options full = {.kind = ORDER_FULL};
	struct order_options other = full;

	(void)state;
	other.n = other.seed = other.epoch = other.block = other.window = other.set = 5;
	assert_true(order_id(&full) == order_id(&other));
	other.kind = ORDER_SEQUENTIAL;
	assert_true(order_id(&full) != order_id(&other));
	other = block;
	other.window = 7;
	assert_true(order_id(&block) == order_id(&other));
	other.block = 9;
	assert_true(order_id(&block) != order_id(&other));
	other = window;
	other.window = 1;
	assert_true(order_id(&window) != order_id(&other));
	assert_true(order_id(&block) == order_id(&other));
	assert_true(order_id(&window) == UINT64_C(0x14b398809427737d));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_orders_are_the_same_on_every_machine),
		cmocka_unit_test(test_each_sample_appears_once),
		cmocka_unit_test(test_a_batch_has_the_samples_of_its_positions),
		cmocka_unit_test(test_a_window_has_the_samples_of_whole_blocks),
		cmocka_unit_test(test_the_short_block_may_be_anywhere),
		cmocka_unit_test(test_blocks_are_shuffled_differently),
		cmocka_unit_test(test_the_largest_data_set_has_an_order),
		cmocka_unit_test(test_numbers_out_of_range_are_refused),
		cmocka_unit_test(test_the_id_is_that_of_the_shape),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
