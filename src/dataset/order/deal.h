/*
 * Deals the positions of an epoch to the ranks of a training run, and the batches of a rank to the
 * processes that load its data.
 *
 *	#include "dataset/order/order.h"
 *
 *	struct deal deal;
 *	struct deal_batch batch;
 *
 *	if (deal_init(&deal, &(struct deal_options){.n = order.n, .start = state.delivered,
 *			.ranks = 8, .rank = 3, .batch = 32, .workers = 4, .worker = 1}, err) < 0)
 *		return -1;
 *	for (uint64_t i = 0; i < deal_worker_batches(&deal); i++) {
 *		deal_at(&deal, deal_worker_step(&deal, i), &batch);
 *		order_batch(&order, batch.first, batch.n, indices);
 *	}
 *
 * Step t of the training run covers the `ranks * batch` positions from `start + t * ranks * batch`
 * on. Rank r gets the r-th group of `batch` of these positions. The remaining positions, too few
 * for a whole step, are the last step: the ranks get equal shares, but the first ranks may get one
 * sample more. A rank that gets no sample has one batch less than the other ranks, unless the last
 * step is padded or dropped.
 *
 * Worker w of W loads the steps t with t % W == w. A loader that takes batches from its workers in
 * turn gets the same batches for every W.
 */
#ifndef DATASET_ORDER_DEAL_H
#define DATASET_ORDER_DEAL_H

#include <stdint.h>

struct penstock_error;

enum deal_rest {
	DEAL_KEEP, /* the last step may be short, as described above */
	DEAL_DROP, /* the positions after the last whole step are dropped */
	/* in the last step all ranks get as many samples as the first rank; the missing samples are
	 * those at the first positions of the epoch */
	DEAL_PAD
};

struct deal_options {
	uint64_t n; /* positions of the epoch; at most LIMIT_DATASET_SAMPLES */
	uint64_t start; /* positions that were delivered before, at most n */
	uint32_t ranks, rank; /* at most LIMIT_DATASET_RANKS */
	uint32_t batch; /* samples of one rank in a step; at most LIMIT_DATASET_BATCH */
	uint32_t workers, worker; /* at most LIMIT_DATASET_WORKERS; 0 means one worker */
	enum deal_rest rest;
};

/* Needs no release, and may be copied. */
struct deal {
	struct deal_options o;
	uint64_t whole; /* number of whole steps */
	uint64_t rest; /* positions of the last step without padding; 0 if there is no such step */
	/* the share of this rank in the last step: its start, and its size with padding */
	uint64_t rest_first;
	uint64_t rest_own;
};

struct deal_batch {
	/* first position; at least the `n` of the epoch if the whole batch is padding */
	uint64_t first;
	/* number of consecutive positions; position 0 follows the last position of the epoch */
	uint32_t n;
	uint32_t padded; /* number of samples at the end of the batch that are repeated */
};

/* Fails with PENSTOCK_E_INVALID if a number is out of its range. */
int deal_init(struct deal *d, const struct deal_options *options, struct penstock_error *err);

/* Returns the number of steps of the training run from `start` to the end of the epoch. */
uint64_t deal_steps(const struct deal *d);
/* Returns the number of batches of the rank: deal_steps(), or one less. */
uint64_t deal_batches(const struct deal *d);
/* Returns the number of batches that the worker loads. */
uint64_t deal_worker_batches(const struct deal *d);
/* Returns the step of the i-th batch that the worker loads. */
uint64_t deal_worker_step(const struct deal *d, uint64_t i);
/* Gets the batch of the rank at a step less than deal_batches(). */
void deal_at(const struct deal *d, uint64_t step, struct deal_batch *batch);
/* Returns the number of positions that all ranks together have received after `steps` steps,
 * including the positions before `start`. The number is the next `start`. Returns n after the last
 * step, even if samples are dropped. */
uint64_t deal_delivered(const struct deal *d, uint64_t steps);

#endif
