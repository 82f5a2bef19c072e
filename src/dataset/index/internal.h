/* The layout of the file: a header, then tables, each at a multiple of 8 bytes. */
#ifndef DATASET_INDEX_INTERNAL_H
#define DATASET_INDEX_INTERNAL_H

#include <stdbool.h>

#include "dataset/index/index.h"

/* "PSINDEX1" as a little-endian machine reads it. */
#define INDEX_MAGIC   0x315845444e495350
#define INDEX_VERSION 1

enum index_flag { INDEX_OBJECTS = 1, INDEX_PARTS = 2, INDEX_RANGES = 4, INDEX_SUMS = 8 };

struct index_header {
	uint64_t magic;
	uint32_t version;
	uint32_t sum; /* CRC32C of all bytes after this member */
	uint64_t size; /* bytes of the file */
	uint64_t shards, samples; /* number of shards and of samples */
	uint64_t text, document; /* bytes */
	char format[INDEX_WORD_SIZE];
	struct index_settings settings;
	uint64_t flags;
};

/* Bytes at the start that the checksum does not cover. */
#define INDEX_SUMMED 16

#define INDEX_PADDED(size) (((size) + 7) & ~(uint64_t)7)

/* Offsets of the tables. */
struct index_tables {
	uint64_t shards, parts, ranges, sums, text, document, end;
};

/* Computes the offsets of the tables from the numbers in the header. Returns false if a number is
 * out of its range. */
bool index_tables_of(const struct index_header *h, struct index_tables *t);

#endif
