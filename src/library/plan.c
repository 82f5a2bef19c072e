/* Implements the order of an epoch in <penstock/dataset.h> on top of src/dataset/order. */
#include <penstock/dataset.h>

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "dataset/order/deal.h"
#include "dataset/order/mix.h"
#include "dataset/order/order.h"
#include "library/library.h"

struct penstock_plan {
	/* options of every set; in a mix, mixed_at() replaces `n`, `epoch` and `set` */
	struct order_options options;
	struct order order; /* used only if `mix` is NULL */
	struct deal deal;
	uint64_t id;

	struct mix *mix; /* NULL if the plan has one data set */
	struct mix_set *sets;
	uint64_t *firsts; /* the number of the first sample of each set */
};

static void freep(struct penstock_plan **plan)
{
	penstock_plan_free(*plan);
}

/* Sets `*out` to the index of `word` in `words`, or to 0 if `word` is NULL. */
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
		"invalid %s '%s'; expected '%s' or another word of "
		"<penstock/dataset.h>",
		what, word, words[0]);
}

/* Creates the mix, and sets `options.n` to the number of positions in an epoch. */
static int init_mix(struct penstock_plan *plan, const struct penstock_plan_options *own,
	struct penstock_error *err)
{
	struct mix_options mix = {.n_sets = own->sets,
		.end = own->repeat ? MIX_REPEATS : MIX_ENDS,
		.length = own->samples,
		.epoch = own->epoch};
	uint64_t sum = 0;
	int r;

	if (own->sets > LIMIT_DATASET_SETS || !own->set_samples || !own->set_weights)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot mix %zu data sets; give at most %d sets, with the samples and weight of each",
			own->sets, LIMIT_DATASET_SETS);
	plan->sets = calloc(own->sets, sizeof(*plan->sets));
	plan->firsts = calloc(own->sets, sizeof(*plan->firsts));
	if (!plan->sets || !plan->firsts)
		return error_memory(err);
	for (size_t k = 0; k < own->sets; k++) {
		plan->sets[k] = (struct mix_set){own->set_samples[k], own->set_weights[k]};
		plan->firsts[k] = sum;
		if (__builtin_add_overflow(sum, own->set_samples[k], &sum) ||
			sum > LIMIT_DATASET_SAMPLES)
			return error_set(err, PENSTOCK_E_LIMIT,
				"cannot mix %zu data sets: they have too many samples together",
				own->sets);
	}
	mix.sets = plan->sets;
	r = mix_new(&plan->mix, &mix, err);
	if (r < 0)
		return r;
	plan->options.n = mix_length(plan->mix);
	plan->id = mix_id(plan->mix, plan->id);
	return 0;
}

static int init(struct penstock_plan *plan, const struct penstock_plan_options *own,
	struct penstock_error *err)
{
	static const char *const shuffles[] = {"none", "full", "block", "window", NULL};
	static const char *const rests[] = {"keep", "drop", "pad", NULL};
	int kind = 0, rest = 0;
	int r = find_word(&kind, own->shuffle, shuffles, "shuffle", err);

	if (r == 0)
		r = find_word(&rest, own->rest, rests, "rest", err);
	plan->options = (struct order_options){.kind = (enum order_kind)kind,
		.n = own->samples,
		.block = own->block,
		.window = own->window,
		.seed = own->seed,
		.epoch = own->epoch};
	if (r == 0)
		r = order_init(&plan->order, &plan->options, err);
	plan->id = order_id(&plan->options);
	if (r == 0 && own->sets > 0)
		r = init_mix(plan, own, err);
	if (r < 0)
		return r;
	return deal_init(&plan->deal,
		&(struct deal_options){.n = plan->options.n,
			.start = own->start,
			.ranks = own->ranks ? own->ranks : 1,
			.rank = own->rank,
			.batch = own->batch,
			.workers = own->workers,
			.worker = own->worker,
			.rest = (enum deal_rest)rest},
		err);
}

int penstock_plan_new(struct penstock_plan **out, const struct penstock_plan_options *options,
	struct penstock_error *err)
{
	struct penstock_plan_options own = {0};
	_cleanup_(freep) struct penstock_plan *plan = calloc(1, sizeof(*plan));
	int r;

	if (!plan)
		return error_memory(err);
	r = library_adopt(&own, sizeof(own), options, "struct penstock_plan_options", err);
	if (r == 0)
		r = init(plan, &own, err);
	if (r == 0)
		*out = take_pointer(plan);
	return r;
}

void penstock_plan_free(struct penstock_plan *plan)
{
	if (!plan)
		return;
	mix_free(plan->mix);
	free(plan->sets);
	free(plan->firsts);
	free(plan);
}

uint64_t penstock_plan_samples(const struct penstock_plan *plan)
{
	return plan->options.n;
}

uint64_t penstock_plan_batches(const struct penstock_plan *plan)
{
	return deal_worker_batches(&plan->deal);
}

uint64_t penstock_plan_rank_batches(const struct penstock_plan *plan)
{
	return deal_batches(&plan->deal);
}

/* Returns the number of the sample at a position of the mix. Computes the order of the set for each
 * call, in less than 100 ns, because a pick may be of any pass of its set. */
static uint64_t mixed_at(const struct penstock_plan *plan, uint64_t p)
{
	struct order_options options = plan->options;
	struct order order;
	struct mix_pick pick;

	mix_batch(plan->mix, p, 1, &pick);
	options.n = plan->sets[pick.set].n;
	options.epoch = pick.pass;
	options.set = pick.set;
	order_init(&order, &options, NULL); /* the options were checked with the first order */
	return plan->firsts[pick.set] + order_at(&order, pick.position);
}

size_t penstock_plan_batch(
	const struct penstock_plan *plan, uint64_t i, uint64_t *ids, size_t *padded)
{
	struct deal_batch batch;

	deal_at(&plan->deal, deal_worker_step(&plan->deal, i), &batch);
	if (!plan->mix)
		order_batch(&plan->order, batch.first, batch.n, ids);
	for (uint32_t k = 0; plan->mix && k < batch.n; k++)
		ids[k] = mixed_at(plan, batch.first + k);
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
