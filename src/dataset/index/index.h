/*
 * The index of a data set: one file with the shards, the format and the places of the samples, so
 * that a data set is opened without listing and scanning. Pure functions without I/O.
 *
 *	struct index index;
 *
 *	// Writing:
 *	index_write(&index, &out, err);
 *
 *	// Reading; `index` refers to the bytes, which must live as long as `index`:
 *	if (index_read(&index, bytes, len, "s3://b/d/.penstock-index", err) < 0)
 *		return -err->code;
 *	printf("%zu shards\n", index.list.n);
 *
 * The file is a header and tables, little endian, which are used in place: index_read() verifies
 * one checksum and every number, and copies no table, even if a million shards are listed. It
 * fails with PENSTOCK_E_CORRUPT if the file is damaged, and with PENSTOCK_E_UNSUPPORTED if the
 * file has another version of the format (INDEX_VERSION). After index_read() has succeeded, the
 * names are sorted, no name of a file leads out of the directory, and each sample lies within its
 * shard. The samples of formats with records are not checked, because only the format knows their
 * sizes.
 */
#ifndef DATASET_INDEX_INDEX_H
#define DATASET_INDEX_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "dataset/source/source.h"

struct buf;
struct penstock_error;

#define INDEX_NAME	".penstock-index"
#define INDEX_WORD_SIZE 16

/* The samples of a shard. */
struct index_part {
	/* number of the shard's first sample; in the entry after the last shard, the number of
	 * samples */
	uint64_t first;
	/* bytes before the shard's records; UINT64_MAX if the file is not a shard */
	uint64_t header;
};

struct index_range {
	uint64_t offset, size;
};

/* Settings of the format; members of other formats are 0. */
struct index_settings {
	uint64_t header, record_size, trailer; /* for "records", in bytes */
	uint64_t window, stride; /* for "tokens" */
	char dtype[INDEX_WORD_SIZE]; /* such as "uint16"; only for "tokens", "npy" and "idx" */
	/* For "npy" and "idx", the array of a row: */
	uint32_t big_endian;
	uint32_t ndim;
	uint64_t dims[LIMIT_FORMAT_DIMS];
};

struct index {
	char format[INDEX_WORD_SIZE];
	struct source_list list; /* list of the shards */
	struct index_settings settings;
	uint64_t samples;
	/* one more than there are shards; NULL if each shard is one sample */
	const struct index_part *parts;
	const struct index_range *ranges; /* range of each sample; NULL in formats with records */
	const uint32_t *sums; /* CRC32C of each sample; NULL if checksums are not known */
	const char *document; /* index.json of the format, not terminated; NULL if there is none */
	size_t document_len;
};

/* Writes the index to `out`, whose earlier content is replaced. */
int index_write(const struct index *index, struct buf *out, struct penstock_error *err);
/* Reads and verifies an index. `data` must be aligned for numbers of 64 bits; `name` is for
 * messages. */
int index_read(struct index *index, const void *data, size_t len, const char *name,
	struct penstock_error *err);
/* Returns true if no name of a shard leads out of the directory of the index. In an index of
 * objects, names are keys, which may contain "..". */
bool index_stays_below(const struct index *index);

#endif
