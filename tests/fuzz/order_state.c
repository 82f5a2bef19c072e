/* The place in a data set, from a checkpoint. */
#include "dataset/order/state.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_DATASET_STATE);
	_cleanup_free_ char *copy = fuzz_text(data, size);
	struct order_state state, again;
	int r = order_state_parse(&state, copy, size, &err);

	require_error(r, &err);
	if (r < 0)
		return 0;
	require(state.delivered <= state.samples && state.samples <= INT64_MAX);
	require(order_state_check(&state, state.samples, state.order, NULL) == 0);
	/* Every state that was read can be written, and is the same when it is read again. */
	require(order_state_format(&state, &text, &err) == 0);
	require(order_state_parse(&again, text.data, text.len, &err) == 0);
	require(again.seed == state.seed && again.epoch == state.epoch &&
		again.delivered == state.delivered && again.samples == state.samples &&
		again.order == state.order);
	return 0;
}
