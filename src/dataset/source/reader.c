/* The reader of one thread, and the files that the reader keeps open. */
#include <stdlib.h>

#include "base/error.h"
#include "base/limits.h"
#include "dataset/source/internal.h"
#include "transfer/reads.h"

int source_reader_new(struct source_reader **out, struct source *source, struct penstock_error *err)
{
	struct source_reader *reader = calloc(1, sizeof(*reader));
	int r = 0;

	if (!reader)
		return error_memory(err);
	reader->source = source;
	for (size_t i = 0; i < LIMIT_DATASET_FILES; i++)
		reader->files[i].file.fd = -1;
	if (source->client)
		r = reads_new(&reader->reads, source->client, source->bucket, err);
	else if (source->engine)
		r = reads_new_web(&reader->reads, source->engine, err);
	if (r < 0) {
		source_reader_free(reader);
		return r;
	}
	*out = reader;
	return 0;
}

void source_reader_free(struct source_reader *reader)
{
	if (!reader)
		return;
	for (size_t i = 0; i < LIMIT_DATASET_FILES; i++)
		block_file_close(&reader->files[i].file);
	reads_free(reader->reads);
	free(reader->chunk);
	free(reader);
}

void source_reader_close(struct source_reader *reader, size_t shard)
{
	for (size_t i = 0; i < LIMIT_DATASET_FILES; i++) {
		if (reader->files[i].file.shard == shard)
			block_file_close(&reader->files[i].file);
	}
}

struct block_file *source_file(struct source_reader *reader, size_t shard)
{
	struct open_file *oldest = &reader->files[0];

	for (size_t i = 0; i < LIMIT_DATASET_FILES; i++) {
		struct open_file *open = &reader->files[i];

		if (open->file.fd >= 0 && open->file.shard == shard) {
			open->used = ++reader->clock;
			return &open->file;
		}
		if (open->file.fd < 0 || (oldest->file.fd >= 0 && open->used < oldest->used))
			oldest = open;
	}
	block_file_close(&oldest->file);
	oldest->file.shard = shard;
	oldest->used = ++reader->clock;
	return &oldest->file;
}
