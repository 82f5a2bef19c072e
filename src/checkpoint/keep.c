#include "checkpoint/keep.h"

static bool is_better(
	const struct keep_policy *p, const struct keep_item *items, size_t a, size_t b)
{
	if (items[a].metric != items[b].metric)
		return p->larger ? items[a].metric > items[b].metric
				 : items[a].metric < items[b].metric;
	return a > b; /* the later of two items with equal metrics is better */
}

/* Returns the number of items that have a better metric than item `i`, among the items of the same
 * trial or, if `all`, of all trials. */
static uint64_t rank_by_metric(
	const struct keep_policy *p, const struct keep_item *items, size_t n, size_t i, bool all)
{
	uint64_t rank = 0;

	for (size_t k = 0; k < n; k++)
		rank += k != i && items[k].has_metric &&
			(all || items[k].trial == items[i].trial) && is_better(p, items, k, i);
	return rank;
}

static uint64_t rank_by_age(const struct keep_item *items, size_t n, size_t i)
{
	uint64_t rank = 0;

	for (size_t k = i + 1; k < n; k++)
		rank += items[k].trial == items[i].trial;
	return rank;
}

void keep_choose(const struct keep_policy *p, const struct keep_item *items, size_t n, bool *keep)
{
	for (size_t i = 0; i < n; i++) {
		const struct keep_item *item = &items[i];

		keep[i] = (p->newest && i + 1 == n) || (p->every && item->step % p->every == 0) ||
			  (p->latest && rank_by_age(items, n, i) < p->latest) ||
			  (item->has_metric &&
				  ((p->best && rank_by_metric(p, items, n, i, false) < p->best) ||
					  (p->best_all && rank_by_metric(p, items, n, i, true) <
								  p->best_all)));
	}
}
