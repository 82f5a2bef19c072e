/*
 * The order of the samples of a data set in one epoch: a function of only seed, epoch and position,
 * with the same values on every machine.
 *
 *	struct order order;
 *	uint64_t indices[32];
 *
 *	if (order_init(&order, &(struct order_options){.n = 1281167, .kind = ORDER_WINDOW,
 *			.block = 1024, .window = 16, .seed = 42, .epoch = 3}, err) < 0)
 *		return -1;
 *	order_batch(&order, 64, 32, indices);	// the samples at positions 64 to 95
 *
 * Positions and indices are 0 to n - 1. Blocks are `block` consecutive samples, from index 0 on;
 * the last block may be shorter, and its place in the order is as random as that of other blocks.
 */
#ifndef DATASET_ORDER_ORDER_H
#define DATASET_ORDER_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "dataset/order/permute.h"

struct penstock_error;

enum order_kind {
	ORDER_SEQUENTIAL, /* by index */
	ORDER_FULL, /* all samples are permuted */
	ORDER_BLOCK, /* blocks are permuted, then the samples of each block */
	/* blocks are permuted, then the samples of each window, which has `window` blocks */
	ORDER_WINDOW
};

struct order_options {
	enum order_kind kind;
	uint64_t n; /* samples; at most LIMIT_DATASET_SAMPLES */
	uint64_t block; /* samples; for ORDER_BLOCK and ORDER_WINDOW */
	uint64_t window; /* blocks; for ORDER_WINDOW */
	/* `seed` and `epoch` are at most INT64_MAX: JSON in other languages has no larger
	 * integers */
	uint64_t seed;
	uint64_t epoch;
	uint64_t set; /* number of the set in a mix; each set has its own order */
};

/* Needs no release, and may be copied. */
struct order {
	enum order_kind kind;
	uint64_t n;
	uint64_t block; /* samples */
	uint64_t window; /* samples; a window has consecutive slots, the places of blocks */
	uint64_t missing; /* number of samples by which the last block is shorter */
	uint64_t short_slot; /* slot of the last block */
	uint64_t key; /* key of the windows */
	struct permute samples; /* for ORDER_FULL */
	struct permute blocks; /* slot to block */
};

/* Fails with PENSTOCK_E_INVALID if a number is out of its range. */
int order_init(struct order *o, const struct order_options *options, struct penstock_error *err);
/* Returns the index of the sample at position `p`, which is less than n. */
uint64_t order_at(const struct order *o, uint64_t p);
/* Gets the indices at `count` consecutive positions. Position 0 follows position n - 1, as the
 * padding of deal.h requires. `count` must be 0 if n is 0. */
void order_batch(const struct order *o, uint64_t first, size_t count, uint64_t *indices);

/* Returns an id of kind, block and window, for order_state (state.h). */
uint64_t order_id(const struct order_options *options);

#endif
