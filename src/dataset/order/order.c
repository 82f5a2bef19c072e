#include "dataset/order/order.h"

#include <inttypes.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/must.h"
#include "dataset/order/key.h"

static int check(const struct order_options *o, struct penstock_error *err)
{
	if (o->n > LIMIT_DATASET_SAMPLES)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot order %" PRIu64 " samples: the limit is %" PRIu64, o->n,
			LIMIT_DATASET_SAMPLES);
	if (o->seed > INT64_MAX || o->epoch > INT64_MAX)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot order samples by seed %" PRIu64 " in epoch %" PRIu64
			": the limit of both is %" PRId64,
			o->seed, o->epoch, INT64_MAX);
	if ((o->kind == ORDER_BLOCK || o->kind == ORDER_WINDOW) && o->block == 0)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot shuffle samples in blocks of 0; use at least 1");
	if (o->kind == ORDER_WINDOW && o->window == 0)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot shuffle samples in windows of 0 blocks; use at least 1");
	return 0;
}

static void init_blocks(struct order *o, const struct order_options *options)
{
	uint64_t window = options->kind == ORDER_WINDOW ? options->window : 1;
	uint64_t count;

	o->block = options->block < o->n ? options->block : o->n;
	count = o->n / o->block + (o->n % o->block > 0);
	o->missing = count * o->block - o->n;
	o->window = (window < count ? window : count) * o->block;
	permute_init(
		&o->blocks, count, key_of(options->seed, options->epoch, options->set, KEY_BLOCKS));
	o->short_slot = permute_inverse(&o->blocks, count - 1);
	o->key = key_of(options->seed, options->epoch, options->set, KEY_WINDOWS);
}

int order_init(struct order *o, const struct order_options *options, struct penstock_error *err)
{
	int r = check(options, err);

	if (r < 0)
		return r;
	*o = (struct order){.kind = options->kind, .n = options->n};
	if (o->kind == ORDER_FULL)
		permute_init(&o->samples, o->n,
			key_of(options->seed, options->epoch, options->set, KEY_FULL));
	else if (o->kind != ORDER_SEQUENTIAL && o->n > 0)
		init_blocks(o, options);
	return 0;
}

/* ---- windows ---- */

/*
 * A slot is the place of a block in the order. The grid is the order as if each slot had a whole
 * block. In the grid, positions after the short block are larger by `missing`. Slots and windows
 * begin at multiples of their size.
 */
struct window {
	uint64_t at; /* start of the window in the grid */
	uint64_t hole; /* place in the window of the samples that the short block lacks */
	uint64_t missing; /* samples in the hole; 0 in windows without the short block */
	struct permute samples;
};

/* Finds the window of position `p`. Returns the place of `p` in the window. */
static uint64_t find_window(const struct order *o, uint64_t p, struct window *w)
{
	uint64_t short_block = o->short_slot * o->block;
	uint64_t short_window = short_block - short_block % o->window;
	uint64_t grid = o->n + o->missing, end;

	/* Adds `missing` to the positions after the window with the short block. In that window,
	 * window_at() leaves out the hole. */
	end = grid - short_window > o->window ? short_window + o->window : grid;
	if (p >= end - o->missing)
		p += o->missing;
	w->at = p - p % o->window;
	w->missing = w->at == short_window ? o->missing : 0;
	w->hole = short_block - short_window + o->block - o->missing;
	permute_init(&w->samples,
		(grid - w->at < o->window ? grid - w->at : o->window) - w->missing,
		key_more(o->key, w->at / o->window));
	return p - w->at;
}

static uint64_t window_at(const struct order *o, const struct window *w, uint64_t place)
{
	uint64_t in = permute_at(&w->samples, place);

	if (w->missing && in >= w->hole)
		in += w->missing;
	in += w->at;
	return permute_at(&o->blocks, in / o->block) * o->block + in % o->block;
}

/* ---- positions ---- */

uint64_t order_at(const struct order *o, uint64_t p)
{
	struct window w;
	uint64_t place;

	MUST(p < o->n);
	if (o->kind == ORDER_SEQUENTIAL)
		return p;
	if (o->kind == ORDER_FULL)
		return permute_at(&o->samples, p);
	place = find_window(o, p, &w);
	return window_at(o, &w, place);
}

/* Sets the indices of the positions from `p` to the end of a window, at most `count`. Returns the
 * number of indices. */
static size_t batch_of_window(const struct order *o, uint64_t p, size_t count, uint64_t *indices)
{
	struct window w;
	uint64_t place = find_window(o, p, &w);
	size_t n = w.samples.n - place < count ? (size_t)(w.samples.n - place) : count;

	for (size_t i = 0; i < n; i++)
		indices[i] = window_at(o, &w, place + i);
	return n;
}

/* Sets the indices of the positions from `p` to the last position, at most `count`. Returns the
 * number of indices. */
static size_t batch_of_row(const struct order *o, uint64_t p, size_t count, uint64_t *indices)
{
	size_t n = o->n - p < count ? (size_t)(o->n - p) : count;

	for (size_t i = 0; i < n; i++)
		indices[i] = o->kind == ORDER_FULL ? permute_at(&o->samples, p + i) : p + i;
	return n;
}

void order_batch(const struct order *o, uint64_t first, size_t count, uint64_t *indices)
{
	MUST(o->n > 0 || count == 0);
	for (size_t done = 0, n; done < count; done += n) {
		uint64_t p = (first + done) % o->n;

		if (o->kind == ORDER_SEQUENTIAL || o->kind == ORDER_FULL)
			n = batch_of_row(o, p, count - done, indices + done);
		else
			n = batch_of_window(o, p, count - done, indices + done);
	}
}

uint64_t order_id(const struct order_options *options)
{
	bool blocks = options->kind == ORDER_BLOCK || options->kind == ORDER_WINDOW;
	uint64_t window = options->kind == ORDER_WINDOW ? options->window : 1;

	/* ORDER_BLOCK is ORDER_WINDOW with a window of one block. */
	if (!blocks)
		return key_of(options->kind, 0, 0, KEY_ORDER);
	return key_of(ORDER_WINDOW, options->block, window, KEY_ORDER);
}
