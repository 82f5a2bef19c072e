#include "dataset/format/internal.h"

#include <inttypes.h>

#include <penstock/error.h>

#include "base/cleanup.h"

int scan_offsets(const struct shard_reader *shard, uint64_t samples, format_sample_fn sample,
	void *cookie, struct penstock_error *err)
{
	_cleanup_(window_release) struct window w = {.shard = shard};
	const unsigned char *p;
	uint64_t start, count;
	int r = window_get(&w, 0, 8, &p, err);

	if (r < 0)
		return r;
	count = get_le32(p);
	start = get_le32(p + 4);
	if (count != samples)
		return shard_error(err, PENSTOCK_E_CORRUPT, shard->name, 0,
			"it has %" PRIu64 " samples, but %" PRIu64 " in the index", count, samples);
	if (start < 4 * (count + 2))
		return shard_error(err, PENSTOCK_E_CORRUPT, shard->name, 4,
			"the first sample is at byte %" PRIu64 " in the table of offsets", start);
	for (uint64_t i = 0; r == 0 && i < count; i++) {
		uint64_t end, at = 4 * (i + 2);

		r = window_get(&w, at, 4, &p, err);
		if (r < 0)
			return r;
		end = get_le32(p);
		if (end < start || end > shard->size)
			return shard_error(err, PENSTOCK_E_CORRUPT, shard->name, at,
				"sample %" PRIu64 " from byte %" PRIu64 " to %" PRIu64
				" is outside of the shard",
				i, start, end);
		r = sample(
			cookie, &(struct format_sample){.offset = start, .size = end - start}, err);
		start = end;
	}
	if (r == 0 && start != shard->size)
		return shard_error(err, PENSTOCK_E_CORRUPT, shard->name, start,
			"%" PRIu64 " bytes follow the last sample", shard->size - start);
	return r;
}
