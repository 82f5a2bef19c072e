/* Decides which checkpoints to keep: the union of several rules, as in Determined. */
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
	uint64_t latest; /* number of the newest of each trial to keep */
	uint64_t best; /* number of the best of each trial to keep, among those with the metric */
	uint64_t best_all; /* number of the best of all trials to keep */
	bool larger; /* larger is better */
	uint64_t every; /* keep each step that is a multiple of this; 0 if unused */
	bool newest; /* always keep the newest of all */
};

/* `items` are ordered from the oldest to the newest; `keep` gets one result for each. */
void keep_choose(
	const struct keep_policy *policy, const struct keep_item *items, size_t n, bool *keep);

#endif
