/* Implements the order of an epoch in <penstock/dataset.h> on top of src/dataset/order. */
#include <penstock/dataset.h>

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "dataset/order/deal.h"
#include "dataset/order/order.h"
#include "library/library.h"

struct penstock_plan {
	struct order order;
	struct deal deal;
	uint64_t id;
};

/* Sets `*out` to the index of `word` in `words`; NULL is the first. */
static int find_word(int *out, const char *word, const char *const *words, const char *what,
	struct penstock_error *err)
{
	*out = 0;
	if (!word)
		return 0;
	for (int i = 0; words[i]; i++) {
		*out = i;
		if (strcmp(word, words[i]) == 0)
			return 0;
	}
	return error_set(err, PENSTOCK_E_INVALID,
		"invalid %s '%s'; expected '%s' or another of "
		"<penstock/dataset.h>",
		what, word, words[0]);
}

int penstock_plan_new(struct penstock_plan **out, const struct penstock_plan_options *options,
	struct penstock_error *err)
{
	static const char *const shuffles[] = {"none", "full", "block", "window", NULL};
	static const char *const rests[] = {"keep", "drop", "pad", NULL};
	struct penstock_plan_options own = {0};
	struct penstock_plan *plan = calloc(1, sizeof(*plan));
	struct order_options order;
	int r, kind = 0, rest = 0;

	if (!plan)
		return error_memory(err);
	r = library_adopt(&own, sizeof(own), options, "struct penstock_plan_options", err);
	if (r == 0)
		r = find_word(&kind, own.shuffle, shuffles, "shuffle", err);
	if (r == 0)
		r = find_word(&rest, own.rest, rests, "rest", err);
	order = (struct order_options){.kind = (enum order_kind)kind,
		.n = own.samples,
		.block = own.block,
		.window = own.window,
		.seed = own.seed,
		.epoch = own.epoch};
	if (r == 0)
		r = order_init(&plan->order, &order, err);
	if (r == 0)
		r = deal_init(&plan->deal,
			&(struct deal_options){.n = own.samples,
				.start = own.start,
				.ranks = own.ranks ? own.ranks : 1,
				.rank = own.rank,
				.batch = own.batch,
				.workers = own.workers,
				.worker = own.worker,
				.rest = (enum deal_rest)rest},
			err);
	if (r < 0) {
		free(plan);
		return r;
	}
	plan->id = order_id(&order);
	*out = plan;
	return 0;
}

void penstock_plan_free(struct penstock_plan *plan)
{
	free(plan);
}

uint64_t penstock_plan_batches(const struct penstock_plan *plan)
{
	return deal_worker_batches(&plan->deal);
}

uint64_t penstock_plan_rank_batches(const struct penstock_plan *plan)
{
	return deal_batches(&plan->deal);
}

size_t penstock_plan_batch(
	const struct penstock_plan *plan, uint64_t i, uint64_t *ids, size_t *padded)
{
	struct deal_batch batch;

	deal_at(&plan->deal, deal_worker_step(&plan->deal, i), &batch);
	order_batch(&plan->order, batch.first, batch.n, ids);
	if (padded)
		*padded = batch.padded;
	return batch.n;
}

uint64_t penstock_plan_delivered(const struct penstock_plan *plan, uint64_t batches)
{
	return deal_delivered(&plan->deal, batches);
}

uint64_t penstock_plan_id(const struct penstock_plan *plan)
{
	return plan->id;
}
