#include "dataset/order/state.h"

#include <inttypes.h>
#include <stdbool.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/must.h"
#include "base/str.h"

int order_state_format(const struct order_state *s, struct buf *out, struct penstock_error *err)
{
	MUST(s->seed <= INT64_MAX && s->epoch <= INT64_MAX && s->samples <= INT64_MAX &&
		s->delivered <= s->samples);
	buf_printf(out,
		"{\"version\":%d,\"seed\":%" PRIu64 ",\"epoch\":%" PRIu64 ",\"delivered\":%" PRIu64
		",\"samples\":%" PRIu64 ",\"order\":\"%016" PRIx64 "\"}",
		ORDER_STATE_VERSION, s->seed, s->epoch, s->delivered, s->samples, s->order);
	return buf_failed(out) ? buf_error(out, "the place in a data set", err) : 0;
}

static int corrupt(const char *what, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_CORRUPT,
		"cannot resume the data set: its saved state has %s; start the epoch again, "
		"without the state",
		what);
}

static bool to_number(const json_t *root, const char *key, uint64_t *out)
{
	const json_t *value = json_object_get(root, key);

	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return false;
	*out = (uint64_t)json_integer_value(value);
	return true;
}

static bool to_id(const json_t *root, const char *key, uint64_t *out)
{
	const char *text = json_string_value(json_object_get(root, key));
	uint8_t bytes[8];

	if (!text || str_unhex(text, bytes, sizeof(bytes)) < 0)
		return false;
	*out = 0;
	for (size_t i = 0; i < sizeof(bytes); i++)
		*out = *out << 8 | bytes[i];
	return true;
}

int order_state_parse(
	struct order_state *state, const char *text, size_t len, struct penstock_error *err)
{
	struct order_state s = {.seed = 0};
	json_auto_t *root = NULL;
	uint64_t version;

	if (len > LIMIT_DATASET_STATE)
		return corrupt("too many bytes", err);
	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	if (!json_is_object(root))
		return corrupt("no JSON object", err);
	if (!to_number(root, "version", &version) || version == 0)
		return corrupt("no valid 'version'", err);
	if (version > ORDER_STATE_VERSION)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot resume the data set: its saved state has version %" PRIu64
			", of a later penstock; use that version",
			version);
	if (!to_number(root, "seed", &s.seed))
		return corrupt("no valid 'seed'", err);
	if (!to_number(root, "epoch", &s.epoch))
		return corrupt("no valid 'epoch'", err);
	if (!to_number(root, "samples", &s.samples))
		return corrupt("no valid 'samples'", err);
	if (!to_number(root, "delivered", &s.delivered) || s.delivered > s.samples)
		return corrupt("no valid 'delivered'", err);
	if (!to_id(root, "order", &s.order))
		return corrupt("no valid 'order'", err);
	*state = s;
	return 0;
}

int order_state_check(
	const struct order_state *s, uint64_t samples, uint64_t order, struct penstock_error *err)
{
	if (s->samples != samples)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot resume epoch %" PRIu64 " of the data set: it has %" PRIu64
			" samples, and had %" PRIu64 "; use the same data, or start the next epoch",
			s->epoch, samples, s->samples);
	if (s->order != order)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot resume epoch %" PRIu64
			" of the data set: the shuffle, its block or window, or the mix differs from "
			"the saved state; use the same order, or start the next epoch",
			s->epoch);
	return 0;
}
