#include <endian.h>
#include <string.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/error.h"
#include "dataset/index/internal.h"
#include "s3/sum/checksum.h"

static void add_table(struct buf *out, const void *table, uint64_t size)
{
	static const char zeros[8];

	buf_add(out, table, (size_t)size);
	buf_add(out, zeros, (size_t)(INDEX_PADDED(size) - size));
}

int index_write(const struct index *index, struct buf *out, struct penstock_error *err)
{
	struct index_header h = {.magic = INDEX_MAGIC,
		.version = INDEX_VERSION,
		.shards = index->list.n,
		.samples = index->samples,
		.text = index->list.text_len,
		.document = index->document_len,
		.settings = index->settings,
		.flags = (index->list.objects ? INDEX_OBJECTS : 0) |
			 (index->parts ? INDEX_PARTS : 0) | (index->ranges ? INDEX_RANGES : 0) |
			 (index->sums ? INDEX_SUMS : 0)};
	struct index_tables t;

	memcpy(h.format, index->format, sizeof(h.format));
	buf_clear(out);
	if (!index_tables_of(&h, &t) || !buf_reserve(out, (size_t)t.end))
		return error_set(err, PENSTOCK_E_LIMIT,
			"cannot write the index: it would have more than %zu GiB, or out of memory",
			LIMIT_DATASET_INDEX / GIB);
	h.size = t.end;
	buf_add(out, &h, sizeof(h));
	add_table(out, index->list.entries, t.parts - t.shards);
	add_table(out, index->parts, t.ranges - t.parts);
	add_table(out, index->ranges, t.sums - t.ranges);
	add_table(out, index->sums, index->sums ? 4 * index->samples : 0);
	add_table(out, index->list.text, index->list.text_len);
	buf_add(out, index->document, index->document_len);
	if (buf_failed(out))
		return buf_error(out, "the index of a data set", err);
	h.sum = crc32c_update(0, out->data + INDEX_SUMMED, out->len - INDEX_SUMMED);
	memcpy(out->data, &h, sizeof(h));
	return 0;
}
