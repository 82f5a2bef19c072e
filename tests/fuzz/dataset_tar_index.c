/* The index of a tar, as DALI's wds2idx writes it, for an archive of 1 MiB. */
#include "dataset.h"
#include "dataset/format/tar.h"

#define ARCHIVE (1 * MIB)

static int check(void *cookie, const struct format_sample *s, struct penstock_error *err)
{
	uint64_t *last = cookie;

	(void)err;
	require(s->key && *s->key && s->offset >= *last && s->size >= 512);
	require(s->offset % 512 == 0 && s->size % 512 == 0);
	require(s->offset + s->size <= ARCHIVE);
	*last = s->offset + s->size;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct shard_reader shard = {.name = "a.tar", .size = ARCHIVE};
	_cleanup_free_ char *copy = fuzz_text(data, size);
	uint64_t last = 0;

	require_error(tar_index_scan(copy, size, &shard, check, &last, &err), &err);
	return 0;
}
