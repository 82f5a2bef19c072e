/*
 * The place of a training run in the order of its samples, in the form that checkpoints store:
 *
 *	{"version":1,"seed":42,"epoch":3,"delivered":640000,"samples":1281167,
 *	"order":"0123456789abcdef"}
 *
 * The state does not depend on ranks and workers, so that a training run may resume with other
 * numbers of ranks and workers:
 *
 *	struct order_state state;
 *
 *	if (order_state_parse(&state, text, len, err) < 0 ||
 *		order_state_check(&state, n, order_id(&options), err) < 0)
 *		return -1;
 *	options.seed = state.seed;
 *	options.epoch = state.epoch;
 *	...	// and deal.h starts at state.delivered
 */
#ifndef DATASET_ORDER_STATE_H
#define DATASET_ORDER_STATE_H

#include <stddef.h>
#include <stdint.h>

struct buf;
struct penstock_error;

#define ORDER_STATE_VERSION 1

struct order_state {
	uint64_t seed;
	uint64_t epoch;
	uint64_t delivered; /* positions of the epoch that all ranks together have received */
	uint64_t samples; /* positions of the epoch */
	uint64_t order; /* order_id() or mix_id() */
};

/* Appends the text, one line without a newline. Numbers are at most INT64_MAX, except `order`. */
int order_state_format(
	const struct order_state *state, struct buf *out, struct penstock_error *err);
/* Fails with PENSTOCK_E_CORRUPT if the text is not a state, and with PENSTOCK_E_UNSUPPORTED if a
 * later version wrote the text. Unknown members are ignored. */
int order_state_parse(
	struct order_state *state, const char *text, size_t len, struct penstock_error *err);
/* Fails with PENSTOCK_E_INVALID if the samples or their order have changed, because the remaining
 * epoch would then repeat some samples and skip others. */
int order_state_check(const struct order_state *state, uint64_t samples, uint64_t order,
	struct penstock_error *err);

#endif
