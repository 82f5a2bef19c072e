/* Decides which checkpoints to keep: those that at least one of several rules keeps, as in
 * Determined (docs/dialects.md). */
#ifndef CHECKPOINT_KEEP_H
#define CHECKPOINT_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct keep_item {
	unsigned trial; /* number of the training run if a directory has several; else 0 */
	uint64_t step;
	bool has_metric; /* the item has the policy's metric */
	double metric;
};

struct keep_policy {
	uint64_t latest; /* keep this number of the newest items of each trial */
	uint64_t best; /* keep this number of the best items of each trial */
	uint64_t best_all; /* keep this number of the best items of all trials */
	bool larger; /* an item is better if its metric is larger */
	uint64_t every; /* keep the items whose step is a multiple of this number; 0 if unused */
	bool newest; /* always keep the newest item */
};

/* `items` are ordered from the oldest to the newest; `keep` gets one result for each. */
void keep_choose(
	const struct keep_policy *policy, const struct keep_item *items, size_t n, bool *keep);

#endif
