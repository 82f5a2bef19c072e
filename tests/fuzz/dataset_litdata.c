/* Data sets of litData: an index.json, a NUL, and a chunk. The target first corrects the number of
 * items in the index. */
#include "dataset.h"
#include "dataset/format/litdata/litdata.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(litdata_index_freep) struct litdata_index *index = NULL;
	const uint8_t *end = size ? memchr(data, '\0', size) : NULL;
	size_t len = end ? (size_t)(end - data) : size;
	_cleanup_free_ char *text = fuzz_text(data, len);
	int r = litdata_index_parse(&index, text, len, "index.json", &err);
	struct fuzz_scan scan;
	uint32_t samples;

	require_error(r, &err);
	if (r < 0)
		return 0;
	for (size_t i = 0; i < index->n; i++) {
		const char *name = index->chunks[i].filename;

		require(name && name[0] != '/' && strncmp(name, "../", 3) != 0 &&
			!strstr(name, "/../"));
	}
	if (index->n == 0 || !end || size - len < 5)
		return 0;
	memcpy(&samples, end + 1, 4);
	index->chunks[0].samples = samples;
	if (fuzz_format(&index->chunks[0].format, end + 1, size - len - 1, &scan) == 0)
		require(scan.n == samples);
	return 0;
}
