/* Dealing an epoch to ranks and workers: each sample once, even if their numbers change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "dataset/order/deal.h"
#include "dataset/order/key.h"
#include "dataset/order/order.h"
#include "dataset/order/state.h"

#define MOST  2000
#define BATCH 9 /* the largest batch */

static const uint32_t ranks[] = {1, 2, 3, 4, 7};
static const uint32_t workers[] = {1, 2, 4};

static struct deal deal_of(struct deal_options options)
{
	struct deal d;

	assert_int_equal(deal_init(&d, &options, NULL), 0);
	return d;
}

static struct deal_batch batch_at(const struct deal *d, uint64_t step)
{
	struct deal_batch batch;

	deal_at(d, step, &batch);
	return batch;
}

/* ---- exactly once ---- */

/* A training that is interrupted and continues with other ranks and workers. */
struct training {
	struct order_options options;
	struct order order;
	uint64_t delivered;
	unsigned char seen[MOST];
	uint64_t random;
};

static uint64_t draw(struct training *t, uint64_t below)
{
	return key_mix(t->random += KEY_STEP) % below;
}

static void take(struct training *t, const struct deal_batch *batch)
{
	uint64_t indices[BATCH];

	assert_in_range(batch->n, 1, BATCH);
	assert_int_equal(batch->padded, 0);
	order_batch(&t->order, batch->first, batch->n, indices);
	for (uint32_t i = 0; i < batch->n; i++) {
		assert_true(indices[i] < t->options.n);
		assert_int_equal(t->seen[indices[i]]++, 0);
	}
}

/* Takes the batches of a rank, up to a step, from the rank's workers in turn, as a loader does.
 * Returns the number of samples. */
static uint64_t train_rank(struct training *t, struct deal_options options, uint64_t steps)
{
	uint64_t next[4] = {0}, samples = 0;
	struct deal d;

	for (uint64_t step = 0;; step++) {
		struct deal_batch batch;
		uint32_t w = (uint32_t)(step % options.workers);

		options.worker = w;
		d = deal_of(options);
		if (next[w] == deal_worker_batches(&d))
			break;
		assert_true(deal_worker_step(&d, next[w]) == step);
		next[w]++;
		batch = batch_at(&d, step);
		if (step < steps) {
			take(t, &batch);
			samples += batch.n;
		}
	}
	for (options.worker = 0; options.worker < options.workers; options.worker++) {
		d = deal_of(options);
		assert_true(next[options.worker] == deal_worker_batches(&d));
	}
	return samples;
}

/* Runs some steps, or all steps up to the end of the epoch, and then saves a checkpoint. */
static void train(struct training *t, uint32_t n_ranks, uint32_t n_workers, bool to_end)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_DATASET_STATE);
	struct deal_options options = {.n = t->options.n,
		.start = t->delivered,
		.ranks = n_ranks,
		.batch = 1 + (uint32_t)draw(t, BATCH),
		.workers = n_workers};
	struct deal d = deal_of(options);
	uint64_t steps = to_end ? deal_steps(&d) : draw(t, deal_steps(&d) + 1);
	uint64_t most = 0, least = UINT64_MAX, sum = t->delivered;
	struct order_state saved = {.seed = t->options.seed,
		.epoch = t->options.epoch,
		.delivered = deal_delivered(&d, steps),
		.samples = t->options.n,
		.order = order_id(&t->options)};

	for (options.rank = 0; options.rank < n_ranks; options.rank++) {
		uint64_t samples = train_rank(t, options, steps);

		most = samples > most ? samples : most;
		least = samples < least ? samples : least;
		sum += samples;
	}
	assert_true(most - least <= 1);
	assert_true(sum == saved.delivered);

	assert_int_equal(order_state_format(&saved, &text, NULL), 0);
	memset(&saved, 0, sizeof(saved));
	assert_int_equal(order_state_parse(&saved, text.data, text.len, NULL), 0);
	assert_int_equal(order_state_check(&saved, t->options.n, order_id(&t->options), NULL), 0);
	t->options.seed = saved.seed;
	t->options.epoch = saved.epoch;
	t->delivered = saved.delivered;
	assert_int_equal(order_init(&t->order, &t->options, NULL), 0);
}

static void assert_trains_each_once(
	const struct order_options *options, uint32_t n_ranks, uint32_t n_workers)
{
	struct training t = {.options = *options, .random = options->seed};

	assert_int_equal(order_init(&t.order, options, NULL), 0);
	train(&t, n_ranks, n_workers, false);
	for (unsigned resumed = 0; resumed < 3; resumed++)
		train(&t, ranks[draw(&t, ARRAY_SIZE(ranks))],
			workers[draw(&t, ARRAY_SIZE(workers))], false);
	train(&t, n_ranks, n_workers, true);

	assert_true(t.delivered == options->n);
	for (uint64_t i = 0; i < options->n; i++)
		assert_int_equal(t.seen[i], 1);
}

/* Tests all kinds of orders, with sizes near the size of a block and with prime sizes. */
static void test_each_sample_is_delivered_once(void **state)
{
	static const uint64_t sizes[] = {0, 1, 15, 16, 17, 31, 97, 499, 1999};
	static const enum order_kind kinds[] = {
		ORDER_SEQUENTIAL, ORDER_FULL, ORDER_BLOCK, ORDER_WINDOW};
	struct order_options options = {.block = 16, .window = 3, .epoch = 5};

	(void)state;
	for (size_t s = 0; s < ARRAY_SIZE(sizes); s++) {
		for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
			for (size_t r = 0; r < ARRAY_SIZE(ranks); r++) {
				for (size_t w = 0; w < ARRAY_SIZE(workers); w++) {
					options.n = sizes[s];
					options.kind = kinds[k];
					options.seed++;
					assert_trains_each_once(&options, ranks[r], workers[w]);
				}
			}
		}
	}
}

/* ---- steps ---- */

static void test_a_step_is_dealt_in_the_order_of_ranks(void **state)
{
	(void)state;
	for (uint32_t r = 0; r < 3; r++) {
		struct deal d = deal_of((struct deal_options){
			.n = 100, .start = 10, .ranks = 3, .rank = r, .batch = 4});

		assert_int_equal(deal_steps(&d), 8); /* 7 steps of 12 samples, the last one of 6 */
		assert_int_equal(batch_at(&d, 2).first, 10 + 2 * 12 + r * 4);
		assert_int_equal(batch_at(&d, 2).n, 4);
		assert_int_equal(batch_at(&d, 7).first, 94 + r * 2);
		assert_int_equal(batch_at(&d, 7).n, 2);
		assert_int_equal(deal_delivered(&d, 0), 10);
		assert_int_equal(deal_delivered(&d, 3), 46);
		assert_int_equal(deal_delivered(&d, 8), 100);
	}
}

/* The last step has two samples for four ranks. */
static void test_a_rank_may_get_none_of_the_last_step(void **state)
{
	(void)state;
	for (uint32_t r = 0; r < 4; r++) {
		struct deal d = deal_of(
			(struct deal_options){.n = 10, .ranks = 4, .rank = r, .batch = 2});

		assert_int_equal(deal_steps(&d), 2);
		assert_int_equal(deal_batches(&d), r < 2 ? 2 : 1);
		if (r < 2) {
			assert_int_equal(batch_at(&d, 1).first, 8 + r);
			assert_int_equal(batch_at(&d, 1).n, 1);
		}
	}
}

static void test_the_rest_may_be_dropped(void **state)
{
	struct deal d = deal_of((struct deal_options){
		.n = 27, .start = 1, .ranks = 4, .rank = 3, .batch = 2, .rest = DEAL_DROP});

	(void)state;
	assert_int_equal(deal_steps(&d), 3);
	assert_int_equal(deal_batches(&d), 3);
	assert_int_equal(deal_delivered(&d, 2), 17);
	assert_int_equal(deal_delivered(&d, 3), 27); /* the epoch has ended */
	d = deal_of((struct deal_options){.n = 7, .ranks = 4, .batch = 2, .rest = DEAL_DROP});
	assert_int_equal(deal_batches(&d), 0);
	assert_int_equal(deal_delivered(&d, 0), 7);
}

/* Every rank gets the same number of samples: the last ranks get the first samples of the epoch
 * again. A batch has the number of its repeated samples. */
static void test_the_rest_may_be_padded(void **state)
{
	static const struct {
		uint64_t n;
		uint32_t ranks, batch, padded, steps;
	} cases[] = {
		{0, 7, 2, 0, 0},
		{1, 7, 2, 6, 1}, /* six ranks get the only sample as padding */
		{13, 7, 2, 1, 1},
		{14, 7, 2, 0, 1},
		{15, 7, 2, 6, 2},
		{101, 4, 10, 3, 3},
		{102, 4, 10, 2, 3},
		{103, 1, 10, 0, 11},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t next = cases[i].n / (cases[i].ranks * cases[i].batch) * cases[i].ranks *
				cases[i].batch;
		uint32_t padded = 0, first = 0;

		for (uint32_t r = 0; r < cases[i].ranks; r++) {
			struct deal d = deal_of((struct deal_options){.n = cases[i].n,
				.ranks = cases[i].ranks,
				.rank = r,
				.batch = cases[i].batch,
				.rest = DEAL_PAD});
			struct deal_batch batch;

			assert_int_equal(deal_steps(&d), cases[i].steps);
			assert_int_equal(deal_batches(&d), cases[i].steps);
			if (d.rest == 0)
				continue;
			batch = batch_at(&d, cases[i].steps - 1);
			first = r == 0 ? batch.n : first;
			assert_int_equal(batch.n, first);
			assert_int_equal(batch.first, next);
			assert_true(batch.padded == (next >= cases[i].n ? batch.n
							    : next + batch.n > cases[i].n
								    ? next + batch.n - cases[i].n
								    : 0));
			next += batch.n;
			padded += batch.padded;
		}
		assert_int_equal(padded, cases[i].padded);
	}
}

/* Positions after the last one continue at the beginning of the epoch. */
static void test_padding_repeats_the_beginning_of_the_epoch(void **state)
{
	const struct order_options options = {.kind = ORDER_FULL, .n = 17, .seed = 1};
	struct deal d = deal_of((struct deal_options){
		.n = 17, .ranks = 2, .rank = 1, .batch = 16, .rest = DEAL_PAD});
	struct deal_batch batch = batch_at(&d, 0);
	uint64_t indices[16];
	struct order o;

	(void)state;
	assert_int_equal(order_init(&o, &options, NULL), 0);
	order_batch(&o, batch.first, batch.n, indices);

	assert_int_equal(batch.n, 9);
	assert_int_equal(batch.padded, 1);
	assert_true(indices[7] == order_at(&o, 16) && indices[8] == order_at(&o, 0));
}

/* Sums and products do not overflow. */
static void test_the_largest_training_can_be_dealt(void **state)
{
	struct deal d = deal_of((struct deal_options){.n = INT64_MAX,
		.ranks = LIMIT_DATASET_RANKS,
		.rank = LIMIT_DATASET_RANKS - 1,
		.batch = LIMIT_DATASET_BATCH,
		.rest = DEAL_PAD});
	uint64_t step = (uint64_t)LIMIT_DATASET_RANKS * LIMIT_DATASET_BATCH;
	struct deal_batch last = batch_at(&d, deal_batches(&d) - 1);

	(void)state;
	assert_true(deal_steps(&d) == INT64_MAX / step + 1);
	assert_true(last.first + last.n == UINT64_C(1) << 63);
	assert_int_equal(last.n, LIMIT_DATASET_BATCH);
	assert_int_equal(last.padded, 1);
}

static void test_numbers_out_of_range_are_refused(void **state)
{
	static const struct deal_options invalid[] = {
		{.n = UINT64_C(1) << 63, .ranks = 1, .batch = 1},
		{.n = 10, .start = 11, .ranks = 1, .batch = 1},
		{.n = 10, .ranks = 0, .batch = 1},
		{.n = 10, .ranks = 2, .rank = 2, .batch = 1},
		{.n = 10, .ranks = LIMIT_DATASET_RANKS + 1, .batch = 1},
		{.n = 10, .ranks = 1, .batch = 0},
		{.n = 10, .ranks = 1, .batch = LIMIT_DATASET_BATCH + 1},
		{.n = 10, .ranks = 1, .batch = 1, .workers = 4, .worker = 4},
		{.n = 10, .ranks = 1, .batch = 1, .workers = 0, .worker = 1},
		{.n = 10, .ranks = 1, .batch = 1, .workers = LIMIT_DATASET_WORKERS + 1},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(invalid); i++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		struct deal d;

		assert_int_equal(deal_init(&d, &invalid[i], &err), -PENSTOCK_E_INVALID);
		assert_non_null(strstr(err.message, "cannot"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_sample_is_delivered_once),
		cmocka_unit_test(test_a_step_is_dealt_in_the_order_of_ranks),
		cmocka_unit_test(test_a_rank_may_get_none_of_the_last_step),
		cmocka_unit_test(test_the_rest_may_be_dropped),
		cmocka_unit_test(test_the_rest_may_be_padded),
		cmocka_unit_test(test_padding_repeats_the_beginning_of_the_epoch),
		cmocka_unit_test(test_the_largest_training_can_be_dealt),
		cmocka_unit_test(test_numbers_out_of_range_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
