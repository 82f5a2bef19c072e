/* The index of a data set, an object next to the shards. */
#include "dataset/format/format.h"
#include "dataset/index/index.h"
#include "dataset/index/internal.h"
#include "fuzz.h"
#include "s3/sum/checksum.h"

/* Checks all properties of an index on which its readers rely. */
static void require_index(const struct index *index)
{
	const struct source_list *list = &index->list;
	uint64_t samples = 0;

	require(list->n > 0 && memchr(index->format, '\0', INDEX_WORD_SIZE));
	for (size_t i = 0; i < list->n; i++) {
		const struct source_entry *e = &list->entries[i];

		require(e->name < list->text_len);
		require(i == 0 || strcmp(list->text + e[-1].name, list->text + e->name) < 0);
		require(!list->objects || strlen(list->text + e->etag) < LIMIT_STRING);
		require(list->objects || (list->text[e->name] != '/' &&
						 strncmp(list->text + e->name, "../", 3) != 0 &&
						 !strstr(list->text + e->name, "/../")));
		if (!index->parts)
			continue;
		require(index->parts[i].first == samples && index->parts[i + 1].first >= samples);
		samples = index->parts[i + 1].first;
		for (uint64_t k = index->parts[i].first; index->ranges && k < samples; k++)
			require(index->ranges[k].offset <= e->size &&
				index->ranges[k].size <= e->size - index->ranges[k].offset);
	}
	require(index->samples == (index->parts ? samples : list->n));
}

static void fuzz_read(const void *data, size_t size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf out = BUF_INIT(MIB);
	struct index index, again;
	int r = index_read(&index, data, size, "index", &err);

	require_error(r, &err);
	if (r < 0)
		return;
	require_index(&index);
	/* Every index that was read can be written, and is the same when it is read again. */
	require(index_write(&index, &out, &err) == 0 && out.len == size);
	require(index_read(&again, out.data, out.len, "index", &err) == 0);
	require(again.samples == index.samples && again.list.n == index.list.n &&
		memcmp(again.list.text, index.list.text, index.list.text_len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *copy = fuzz_bytes(data, size);
	struct index_header h;

	fuzz_read(copy, size);
	if (size < sizeof(h))
		return 0;
	/* Replace the checksum by the correct one, and read again. */
	memcpy(&h, copy, sizeof(h));
	h.sum = crc32c_update(0, copy + INDEX_SUMMED, size - INDEX_SUMMED);
	memcpy(copy, &h, sizeof(h));
	fuzz_read(copy, size);
	return 0;
}
