/*
 * Several data sets as one, by weights. Set k has weight[k] of every sum(weights) consecutive
 * positions, evenly distributed.
 *
 *	#include "dataset/order/order.h"
 *
 *	static const struct mix_set sets[] = {{.n = 90000, .weight = 7}, {.n = 5000, .weight = 3}};
 *	_cleanup_(mix_freep) struct mix *mix = NULL;
 *	struct mix_pick pick;
 *
 *	if (mix_new(&mix, &(struct mix_options){.sets = sets, .n_sets = 2, .end = MIX_REPEATS,
 *			.epoch = 3}, err) < 0)
 *		return -1;
 *	mix_batch(mix, 64, 1, &pick);	// position 64 of mix_length(mix)
 *	order_init(&order, &(struct order_options){.n = sets[pick.set].n, .kind = ORDER_FULL,
 *		.seed = 42, .epoch = pick.pass, .set = pick.set}, err);
 *	sample = order_at(&order, pick.position);
 *
 * Set k has p * weight[k] / sum(weights) of the first p positions, with an error of less than 1.68
 * for any number of sets, less than 1 for three and at most 1/2 for two. mix.c has the reason. With
 * MIX_ENDS and weights in proportion to the sizes of the sets, each sample is taken once.
 */
#ifndef DATASET_ORDER_MIX_H
#define DATASET_ORDER_MIX_H

#include <stddef.h>
#include <stdint.h>

struct mix;
struct penstock_error;

enum mix_end {
	/* An epoch ends when the next sample would come from a set that is exhausted. The next
	 * epoch starts every set again, in another order. */
	MIX_ENDS,
	/* A set that is exhausted is repeated, in another order. All samples of a set are taken
	 * before any sample is repeated, even across epochs: the next epoch continues each set. */
	MIX_REPEATS
};

struct mix_set {
	uint64_t n; /* samples; at least 1 */
	uint64_t weight; /* at least 1; the sum is at most LIMIT_DATASET_WEIGHTS */
};

struct mix_options {
	const struct mix_set *sets; /* copied */
	size_t n_sets; /* 1 to LIMIT_DATASET_SETS */
	enum mix_end end;
	/* Number of positions of an epoch. If 0, the epoch is as long as MIX_ENDS allows or, for
	 * MIX_REPEATS, ends when each sample was taken at least once. */
	uint64_t length;
	uint64_t epoch; /* at most INT64_MAX */
};

struct mix_pick {
	uint32_t set;
	uint64_t pass; /* number of the pass through the set: the epoch of its order */
	uint64_t position; /* in the order of that pass */
};

/* Fails with PENSTOCK_E_INVALID if a number is out of its range, or if a set has too few samples
 * for the length with MIX_ENDS. Fails with PENSTOCK_E_LIMIT if an epoch would be longer than
 * LIMIT_DATASET_SAMPLES, or if more than INT64_MAX samples of a set would have been taken. */
int mix_new(struct mix **out, const struct mix_options *options, struct penstock_error *err);
void mix_free(struct mix *m);
static inline void mix_freep(struct mix **m)
{
	mix_free(*m);
}

/* Returns the number of positions of the epoch. */
uint64_t mix_length(const struct mix *m);
/* Returns the number of samples of the set among the first `p` positions of the epoch. */
uint64_t mix_count(const struct mix *m, uint32_t set, uint64_t p);
/* Gets the samples at `count` consecutive positions. Position 0 follows the last position of the
 * epoch. */
void mix_batch(const struct mix *m, uint64_t first, size_t count, struct mix_pick *picks);

/* Returns an id of the sets, their weights and the end of an epoch (MIX_ENDS or MIX_REPEATS), for
 * order_state (state.h). `order` is the order_id() of the order within the sets. */
uint64_t mix_id(const struct mix *m, uint64_t order);

#endif
