#include "dataset/order/deal.h"

#include <inttypes.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/must.h"

static int check(const struct deal_options *o, struct penstock_error *err)
{
	if (o->n > LIMIT_DATASET_SAMPLES)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot distribute %" PRIu64 " samples: the limit is %" PRIu64, o->n,
			LIMIT_DATASET_SAMPLES);
	if (o->start > o->n)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot start at sample %" PRIu64 ": the epoch has %" PRIu64, o->start,
			o->n);
	if (o->ranks == 0 || o->ranks > LIMIT_DATASET_RANKS || o->rank >= o->ranks)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot distribute samples to rank %" PRIu32 " of %" PRIu32
			"; use a rank below the number of ranks, which is at most %d",
			o->rank, o->ranks, LIMIT_DATASET_RANKS);
	if (o->batch == 0 || o->batch > LIMIT_DATASET_BATCH)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot distribute batches of %" PRIu32 " samples; use 1 to %d", o->batch,
			LIMIT_DATASET_BATCH);
	if (o->workers > LIMIT_DATASET_WORKERS || o->worker >= (o->workers ? o->workers : 1))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot distribute batches to worker %" PRIu32 " of %" PRIu32
			"; use a worker below the number of workers, which is at most %d",
			o->worker, o->workers, LIMIT_DATASET_WORKERS);
	return 0;
}

static uint64_t step_size(const struct deal *d)
{
	return (uint64_t)d->o.ranks * d->o.batch;
}

int deal_init(struct deal *d, const struct deal_options *options, struct penstock_error *err)
{
	int r = check(options, err);
	uint64_t left, share, more;

	if (r < 0)
		return r;
	*d = (struct deal){.o = *options};
	d->o.workers = options->workers ? options->workers : 1;
	left = d->o.n - d->o.start;
	d->whole = left / step_size(d);
	if (d->o.rest == DEAL_DROP)
		return 0;
	d->rest = left % step_size(d);
	share = d->rest / d->o.ranks;
	more = d->rest % d->o.ranks; /* ranks below this number get one sample more */
	if (d->o.rest == DEAL_PAD) {
		share += more > 0;
		more = 0;
	}
	d->rest_own = share + (d->o.rank < more);
	d->rest_first = d->o.rank * share + (d->o.rank < more ? d->o.rank : more);
	return 0;
}

uint64_t deal_steps(const struct deal *d)
{
	return d->whole + (d->rest > 0);
}

uint64_t deal_batches(const struct deal *d)
{
	return d->whole + (d->rest_own > 0);
}

uint64_t deal_worker_batches(const struct deal *d)
{
	uint64_t batches = deal_batches(d);

	return batches / d->o.workers + (batches % d->o.workers > d->o.worker);
}

uint64_t deal_worker_step(const struct deal *d, uint64_t i)
{
	return i * d->o.workers + d->o.worker;
}

void deal_at(const struct deal *d, uint64_t step, struct deal_batch *batch)
{
	uint64_t end, past;

	MUST(step < deal_batches(d));
	batch->first = d->o.start + step * step_size(d);
	batch->n = d->o.batch;
	batch->padded = 0;
	if (step < d->whole) {
		batch->first += (uint64_t)d->o.rank * d->o.batch;
		return;
	}
	batch->first += d->rest_first;
	batch->n = (uint32_t)d->rest_own;
	end = batch->first + batch->n;
	past = end > d->o.n ? end - d->o.n : 0;
	batch->padded = past < batch->n ? (uint32_t)past : batch->n;
}

uint64_t deal_delivered(const struct deal *d, uint64_t steps)
{
	return steps < deal_steps(d) ? d->o.start + steps * step_size(d) : d->o.n;
}
