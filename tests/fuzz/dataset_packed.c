/* Compressed shards: a chunk of litData in zstd or, if the first byte is 'g', a gzipped IDX
 * file. */
#include "yard.h"

#include "dataset/dataset.h"
#include "dataset/source/source.h"

#define SAMPLES 4

static const char chunks[] =
	"{\"chunks\":[{\"chunk_size\":2,\"filename\":\"chunk.bin\"}],\"config\":{\"compression\":"
	"\"zstd\",\"data_format\":[\"bytes\"],\"item_loader\":\"PyTreeLoader\",\"data_spec\":"
	"\"[1,{\\\"type\\\":null,\\\"children_spec\\\":[]}]\"}}";

/* Reads each sample into a buffer of exactly the size in the layout, so that ASan detects a write
 * beyond its end. */
static void read_all(struct dataset *set)
{
	uint64_t n = dataset_count(set);

	for (uint64_t id = 0; id < n && id < SAMPLES; id++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		_cleanup_free_ char *data = NULL;
		uint64_t offsets[2];

		if (dataset_layout(set, &id, 1, offsets, NULL) < 0)
			continue;
		data = malloc((size_t)offsets[1] + 1);
		require(data);
		require_error(dataset_read(set, &id, 1, data, NULL, &err), &err);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	bool gzip = size && *data == 'g';
	struct dataset_options options = {.format = gzip ? "idx" : "litdata", .fresh = true};
	struct dataset *set = NULL;
	int r;

	yard_open();
	if (gzip) {
		yard_write("x.gz", data + 1, size - 1);
	} else {
		yard_write("index.json", chunks, sizeof(chunks) - 1);
		yard_write("chunk.bin", data, size);
	}
	options.place.url = yard;
	r = dataset_open(&set, &options, &err);
	require_error(r, &err);
	if (r == 0) {
		require(source_is_packed(dataset_source(set)));
		read_all(set);
		dataset_free(set);
	}
	require(unlink(yard_path(gzip ? "x.gz" : "chunk.bin")) == 0);
	if (!gzip)
		require(unlink(yard_path("index.json")) == 0);
	return 0;
}
