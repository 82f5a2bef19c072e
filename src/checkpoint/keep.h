/* Decides which checkpoints to keep: the union of several rules, as in Determined. */
#ifndef CHECKPOINT_KEEP_H
#define CHECKPOINT_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct keep_item {
	unsigned trial; /* of several trainings in one directory; else 0 */
	uint64_t step;
	bool has_metric; /* the policy's metric */
	double metric;
};

struct keep_policy {
	uint64_t latest; /* newest of each trial */
	uint64_t best; /* best of each trial, among those with the metric */
	uint64_t best_all; /* best of all */
	bool larger; /* larger is better */
	uint64_t every; /* those whose step is a multiple; 0: unused */
	bool newest; /* always keep the newest of all */
};

/* `items` are ordered from the oldest to the newest; `keep` gets one result for each. */
void keep_choose(
	const struct keep_policy *policy, const struct keep_item *items, size_t n, bool *keep);

#endif
