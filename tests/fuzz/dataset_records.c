/* Headers of arrays: .npy and IDX. */
#include "dataset.h"
#include "dataset/format/records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct memory_shard m = {.data = data, .size = size};
	struct shard_reader shard = memory_shard_reader(&m, "shard");
	int (*const opens[])(struct records *, const struct shard_reader *,
		struct penstock_error *) = {npy_open, idx_open};
	struct fuzz_scan scan;

	for (size_t i = 0; i < 2; i++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		struct records r;
		int result = opens[i](&r, &shard, &err);

		require_error(result, &err);
		if (result < 0)
			continue;
		require(r.size > 0 && r.stride == r.size && r.n_columns == 1);
		if (fuzz_format(&r.format, data, size, &scan) == 0)
			require(scan.n == r.count && r.header + r.count * r.size == size);
	}
	return 0;
}
