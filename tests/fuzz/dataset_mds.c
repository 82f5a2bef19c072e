/* Data sets of MosaicML Streaming: an index.json, a NUL, and the shard that the first entry of the
 * index describes. The target first corrects size and number of samples in the index. */
#include "dataset.h"
#include "dataset/format/mds/mds.h"

/* Splits a sample and writes it again; the bytes must be the same. */
static int write_again(void *cookie, const struct format_sample *s, struct penstock_error *err)
{
	const struct fuzz_scan *scan = cookie;
	const struct mds_shard *shard = (const struct mds_shard *)scan->format;
	const unsigned char *bytes = (const unsigned char *)scan->m->data + s->offset;
	struct format_piece piece = {.shard = "s", .data = bytes, .size = (size_t)s->size};
	_cleanup_(buf_release) struct buf out = BUF_INIT(1 * MIB);
	_cleanup_free_ struct format_fields *f = calloc(1, sizeof(*f));

	(void)err;
	require(f);
	if (shard->format.split(&shard->format, &piece, f, NULL) < 0 || f->n != shard->columns->n)
		return 0;
	for (size_t i = 0; i < f->n; i++) {
		/* Skip arrays, whose dimensions may be stored wider than needed, and the kinds that
		 * cannot be written. */
		if (shard->columns->items[i].kind > MDS_NUMBER)
			return 0;
	}
	if (mds_sample_add(shard->columns, f->items, &out, NULL) == 0)
		require(out.len == s->size && memcmp(buf_str(&out), bytes, out.len) == 0);
	return 0;
}

static void shard(struct mds_shard *s, const uint8_t *data, size_t size)
{
	struct memory_shard m = {.data = data, .size = size};
	struct shard_reader reader = memory_shard_reader(&m, "shard");
	struct fuzz_scan scan;
	uint32_t samples = 0;

	if (size >= 4)
		memcpy(&samples, data, 4);
	s->raw.bytes = size;
	s->samples = samples;
	if (fuzz_format(&s->format, data, size, &scan) != 0)
		return;
	require(scan.n == samples);
	scan.m = &m;
	require(s->format.scan(&s->format, &reader, write_again, &scan, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(mds_index_freep) struct mds_index *index = NULL;
	const uint8_t *end = size ? memchr(data, '\0', size) : NULL;
	size_t len = end ? (size_t)(end - data) : size;
	_cleanup_free_ char *text = fuzz_text(data, len);
	int r = mds_index_parse(&index, text, len, "index.json", &err);

	require_error(r, &err);
	if (r < 0)
		return 0;
	for (size_t i = 0; i < index->n; i++) {
		const struct mds_shard *s = &index->shards[i];

		require(s->columns && s->columns->n && s->raw.basename);
		require(s->raw.basename[0] != '/' && !strstr(s->raw.basename, "/../"));
	}
	if (index->n && end)
		shard(&index->shards[0], end + 1, size - len - 1);
	return 0;
}
