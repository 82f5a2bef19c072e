/* Which checkpoints stay: the union of several rules, as Determined keeps them. */
#ifndef CHECKPOINT_KEEP_H
#define CHECKPOINT_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct keep_item {
	unsigned trial; /* of several trainings that share a directory; else 0 */
	uint64_t step;
	bool has_metric; /* of the policy's name */
	double metric;
};

struct keep_policy {
	uint64_t latest;   /* the newest of each trial */
	uint64_t best;	   /* the best of each trial, of those that have the metric */
	uint64_t best_all; /* the best of all */
	bool larger;	   /* is better */
	uint64_t every;	   /* those whose step it divides; 0: none */
	bool newest;	   /* the newest of all stays in any case */
};

/* `items` are in their order of age, oldest first; `keep` gets an answer for each. */
void keep_choose(
	const struct keep_policy *policy, const struct keep_item *items, size_t n, bool *keep);

#endif
