/* Archives of WebDataset. If the last byte is even, the target first corrects the checksum of each
 * header, because few inputs have valid ones. */
#include <inttypes.h>

#include "dataset.h"
#include "dataset/format/tar.h"

static void put_checksums(uint8_t *data, size_t size)
{
	for (size_t at = 0; at + 512 <= size; at += 512) {
		uint8_t *h = data + at;
		char text[8];
		unsigned sum = 8 * ' ';

		/* A block that looks like content is not changed. */
		if (h[0] == 0 || h[155] != ' ')
			continue;
		for (size_t i = 0; i < 512; i++)
			sum += i >= 148 && i < 156 ? 0 : h[i];
		snprintf(text, sizeof(text), "%06o", sum);
		memcpy(h + 148, text, 7);
	}
}

struct both {
	struct fuzz_scan *scan;
	size_t n;
	uint64_t ends[64];
};

static int keep(void *cookie, const struct format_sample *s, struct penstock_error *err)
{
	struct both *b = cookie;

	require(s->key && *s->key);
	if (b->n < 64)
		b->ends[b->n] = s->offset + s->size;
	b->n++;
	(void)err;
	return 0;
}

/* An index that is written for the shard lists the same samples as a scan of the shard. */
static void index_again(const uint8_t *data, size_t size)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_TAR_INDEX);
	struct memory_shard m = {.data = data, .size = size};
	struct shard_reader shard = memory_shard_reader(&m, "shard");
	struct both scanned = {0}, indexed = {0};

	if (tar_index_format(&shard, &text, NULL) < 0)
		return;
	require(format_tar.scan(&format_tar, &shard, keep, &scanned, NULL) == 0);
	require(tar_index_scan(text.data, text.len, &shard, keep, &indexed, NULL) == 0);
	require(scanned.n == indexed.n);
	require(memcmp(scanned.ends, indexed.ends, sizeof(scanned.ends)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *copy = fuzz_bytes(data, size);
	struct fuzz_scan scan;

	if (size && data[size - 1] % 2 == 0)
		put_checksums((uint8_t *)copy, size);
	fuzz_format(&format_tar, (uint8_t *)copy, size, &scan);
	/* A sample that a scan found can be split. */
	require(scan.split == (scan.n < 64 ? scan.n : 64));
	index_again((uint8_t *)copy, size);
	return 0;
}
