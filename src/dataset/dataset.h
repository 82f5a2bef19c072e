/*
 * A data set: shards in a directory, in a store or on the web, a format that finds the samples in
 * the shards, and reads of any samples by number.
 *
 *	struct dataset *set = NULL;
 *	uint64_t ids[256], offsets[257];
 *
 *	r = dataset_open(&set, &(struct dataset_options){.place = {.url = "/data/train"}}, err);
 *	if (r == 0 && dataset_layout(set, ids, 256, offsets, err) == 0) {
 *		char *bytes = malloc(offsets[256]);
 *
 *		r = dataset_read(set, ids, 256, bytes, NULL, err);
 *		... sample i of the batch is bytes[offsets[i]] to bytes[offsets[i + 1]]
 *	}
 *	dataset_free(set);
 *
 * Samples are numbered from 0, shard by shard. After dataset_open() a data set does not change, and
 * any number of threads may read; each reads with connections of its own. A child after fork() may
 * use a data set of its parent: its first read makes new connections.
 *
 * Reads of neighbouring samples are joined, so that records in a row are one request.
 *
 * An index (dataset/index/index.h) next to the shards replaces the listing and the scan, unless the
 * options name another format or other settings. The index is trusted: a shard that was replaced
 * later is PENSTOCK_E_CHANGED when it is read, and shards that were added later are not seen. An
 * index with the checksums of the samples (dataset/pack/pack.h) also fits a copy of the shards. The
 * result of a scan that takes long is kept in the home, for the same list of shards only.
 */
#ifndef DATASET_DATASET_H
#define DATASET_DATASET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataset/format/format.h"
#include "dataset/source/source.h"

struct penstock_error;
struct dataset;

struct dataset_options {
	struct source_place place;
	/* "objects", "records", "cifar10", "cifar100", "npy", "idx", "tokens", "tar", "tfrecord",
	 * "mds", "litdata"; NULL to detect it by an index, or by the name and the first bytes of a
	 * large shard */
	const char *format;
	uint64_t header, record_size, trailer; /* for "records", in bytes */
	enum format_dtype dtype; /* for "tokens": DTYPE_U16 (the default) or DTYPE_U32 */
	/* for "tokens": tokens of a sample, and from the start of one sample to the next */
	uint64_t window, stride;
	/* JPEG images are decoded to this size (dataset/jpeg/jpeg.h). A sample is then its pixels
	 * and, except in "objects", the sample as it is stored. Both are 0 if images are not
	 * decoded. */
	uint32_t decode_height, decode_width;
	/* the column with the image; the first with an image if NULL; copied */
	const char *decode_column;
	/* Samples of "objects" have a field "label", an int64: the number of the first folder of
	 * their name among dataset_class(). */
	bool labels;
	/* Lists and scans the shards again: neither uses nor keeps an index. */
	bool fresh;
};

/* Lists the shards and finds the samples. An empty data set is PENSTOCK_E_INVALID. */
int dataset_open(
	struct dataset **out, const struct dataset_options *options, struct penstock_error *err);
void dataset_free(struct dataset *set);

/* Returns the number of files with samples. */
size_t dataset_shards(const struct dataset *set);
uint64_t dataset_count(const struct dataset *set);
/* Returns the name of the format, "objects" if each object is a sample. */
const char *dataset_format(const struct dataset *set);
/* Returns the bytes of a sample if all samples have the same size, else 0. */
uint64_t dataset_sample_size(const struct dataset *set);
const struct source *dataset_source(const struct dataset *set);

enum dataset_origin {
	DATASET_SCANNED,
	DATASET_INDEXED, /* by an index next to the shards */
	DATASET_KEPT /* listed, and scanned by an earlier call */
};
enum dataset_origin dataset_origin(const struct dataset *set);
/* Writes the index next to the shards. */
int dataset_write_index(
	const struct dataset *set, const atomic_int *cancel, struct penstock_error *err);
/* Compares a data set that has an index with a fresh list of the same place. */
enum dataset_state {
	DATASET_CURRENT,
	/* Shards have other versions and the same sizes, and the checksum of each sample is known:
	 * samples are read as long as their checksums match. */
	DATASET_COPIED,
	DATASET_OUTDATED
};
enum dataset_state dataset_compare(const struct dataset *set, const struct dataset *fresh);

/* Return the number and the names of the folders with samples, in byte order; 0 if there are no
 * labels. */
size_t dataset_classes(const struct dataset *set);
const char *dataset_class(const struct dataset *set, size_t i);
/* Gets the field "label" of a sample, which refers to the set. Returns false if there are no
 * labels. */
bool dataset_label(const struct dataset *set, uint64_t id, struct format_field *out);

/* The place where a sample is stored. */
struct dataset_place {
	size_t shard;
	uint64_t offset;
	uint64_t size;
};
/* `id` is less than the count. */
struct dataset_place dataset_find(const struct dataset *set, uint64_t id);
/* Sets `offsets` (n + 1) to the places of the samples in a batch, one after the other, and
 * offsets[n] to the size of the batch in bytes. PENSTOCK_E_INVALID if an id is too large. */
int dataset_layout(const struct dataset *set, const uint64_t *ids, size_t n, uint64_t *offsets,
	struct penstock_error *err);

/*
 * Reads samples, in any order and with repetitions, into `data`, at the places of dataset_layout().
 * Returns the first failure, with the shard and the offset. An image that cannot be decoded is
 * PENSTOCK_E_CORRUPT.
 */
int dataset_read(struct dataset *set, const uint64_t *ids, size_t n, void *data,
	const atomic_int *cancel, struct penstock_error *err);
/* Splits the bytes of a sample into fields; an object that is a sample has one field, "data". */
int dataset_split(const struct dataset *set, uint64_t id, const void *data, size_t size,
	struct format_fields *out, struct penstock_error *err);

#endif
