/*
 * Chunks of litData: an index.json with the fields and the chunks, and chunks of items.
 *
 *	struct litdata_index *index = NULL;
 *
 *	if (litdata_index_parse(&index, text, len, "s3://b/d/index.json", err) < 0)
 *		return -err->code;
 *	struct litdata_chunk *chunk = &index->chunks[0];
 *	// With a reader of the object chunk->filename:
 *	chunk->format.scan(&chunk->format, &reader, add, cookie, err);
 *	litdata_index_free(index);
 *
 * The name of a field is its key in the dictionary that was written ("a.b" in nested dictionaries),
 * or its position in a list. Encrypted data sets, compression other than zstd of whole chunks,
 * compressed tokens, loaders other than PyTreeLoader and TokensLoader, and pickled fields are
 * refused with PENSTOCK_E_UNSUPPORTED: loading pickled fields can run arbitrary code. A compressed
 * chunk must be unpacked before it is scanned.
 *
 * The items of a chunk for TokensLoader are one stream of tokens.
 */
#ifndef DATASET_FORMAT_LITDATA_LITDATA_H
#define DATASET_FORMAT_LITDATA_LITDATA_H

#include "dataset/format/format.h"

struct litdata_fields;

struct litdata_chunk {
	struct format format;
	const struct litdata_fields *fields;
	char *filename; /* below the directory of the index */
	uint64_t samples;
};

struct litdata_index {
	struct litdata_chunk *chunks;
	size_t n;
	struct litdata_fields *fields; /* shared by all chunks */
	enum format_dtype tokens; /* type of tokens in chunks for TokensLoader; else DTYPE_NONE */
	bool zstd; /* each chunk is compressed */
};

/* Parses an index.json. `name` is the name of the file in messages. */
int litdata_index_parse(struct litdata_index **out, const char *data, size_t len, const char *name,
	struct penstock_error *err);
/* Sets the offset at which the tokens of a chunk begin; the tokens end with the chunk. */
int litdata_find_tokens(
	const struct shard_reader *shard, uint64_t *offset, struct penstock_error *err);
void litdata_index_free(struct litdata_index *index);
static inline void litdata_index_freep(struct litdata_index **index)
{
	litdata_index_free(*index);
}

#endif
