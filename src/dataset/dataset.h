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
 * any number of threads may read; each thread has its own connections. A child after fork() may use
 * a data set of its parent: its first read makes new connections.
 *
 * Reads of neighbouring samples are joined, so that consecutive records are one request of up to
 * LIMIT_DATASET_JOIN bytes.
 *
 * An index (dataset/index/index.h) next to the shards replaces the listing and the scan, unless the
 * options name another format or other settings. The index is trusted: a read of a shard that was
 * replaced later fails with PENSTOCK_E_CHANGED, and shards that were added later are not found. An
 * index with the checksums of the samples (dataset/pack/pack.h) also fits a copy of the shards. The
 * result of a long scan is kept in the home, and is used as long as the list of shards is the same.
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
	 * "mds", "litdata"; NULL to detect the format from an index, or from the name and the first
	 * bytes of a large shard */
	const char *format;
	uint64_t header, record_size, trailer; /* for "records", in bytes */
	enum format_dtype dtype; /* for "tokens": DTYPE_U16 (the default) or DTYPE_U32 */
	/* for "tokens": number of tokens in a sample, and from the start of one sample to the start
	 * of the next */
	uint64_t window, stride;
	/* JPEG images are decoded to this size (dataset/jpeg/jpeg.h). A read then returns the
	 * pixels of a sample, followed by its stored bytes unless the format is "objects". Height
	 * and width are 0 if images are not decoded. */
	uint32_t decode_height, decode_width;
	/* the column with the image; if NULL, the first column with an image; copied */
	const char *decode_column;
	/* Adds a field "label" (int64) to samples of "objects": the number of the first folder in
	 * the name of the sample, as for dataset_class(). */
	bool labels;
	/* Lists and scans the shards again: neither uses nor keeps an index. */
	bool fresh;
};

/* Lists the shards and finds the samples. Fails with PENSTOCK_E_NOT_FOUND if there is no file, and
 * with PENSTOCK_E_INVALID if no file has a sample. */
int dataset_open(
	struct dataset **out, const struct dataset_options *options, struct penstock_error *err);
void dataset_free(struct dataset *set);

/* Returns the number of shards, not counting the other files of the place. */
size_t dataset_shards(const struct dataset *set);
uint64_t dataset_count(const struct dataset *set);
/* Returns the name of the format, "objects" if each object is a sample. */
const char *dataset_format(const struct dataset *set);
/* Returns the size of each sample in bytes, or 0 if the samples are not known to have the same
 * size. */
uint64_t dataset_sample_size(const struct dataset *set);
const struct source *dataset_source(const struct dataset *set);

enum dataset_origin {
	DATASET_SCANNED,
	DATASET_INDEXED, /* opened by an index next to the shards */
	DATASET_KEPT /* listed by dataset_open(), and scanned by an earlier call */
};
enum dataset_origin dataset_origin(const struct dataset *set);
/* Writes the index next to the shards. */
int dataset_write_index(
	const struct dataset *set, const atomic_int *cancel, struct penstock_error *err);
/* Results of dataset_compare(), which compares a data set that has an index with a fresh list of
 * the same place. */
enum dataset_state {
	DATASET_CURRENT,
	/* Shards have the same names and sizes but other versions, and the checksum of each sample
	 * is known: samples are read as long as their checksums match. */
	DATASET_COPIED,
	DATASET_OUTDATED
};
enum dataset_state dataset_compare(const struct dataset *set, const struct dataset *fresh);

/* dataset_classes() returns the number of folders with samples, or 0 if there are no labels.
 * dataset_class() returns the name of folder `i`; folders are sorted by name, byte by byte. */
size_t dataset_classes(const struct dataset *set);
const char *dataset_class(const struct dataset *set, size_t i);
/* Gets the field "label" of a sample. The field refers to memory of the set. Returns false if there
 * are no labels. */
bool dataset_label(const struct dataset *set, uint64_t id, struct format_field *out);

/* The place where a sample is stored. */
struct dataset_place {
	size_t shard;
	uint64_t offset;
	uint64_t size;
};
/* Returns the place of sample `id`, which must be less than dataset_count(). */
struct dataset_place dataset_find(const struct dataset *set, uint64_t id);
/* Sets `offsets` (n + 1) to the places of the samples in a batch, one after the other, and
 * offsets[n] to the size of the batch in bytes. Fails with PENSTOCK_E_INVALID if an id is too
 * large, and with PENSTOCK_E_LIMIT if the batch has more than LIMIT_DATASET_BYTES. */
int dataset_layout(const struct dataset *set, const uint64_t *ids, size_t n, uint64_t *offsets,
	struct penstock_error *err);

/*
 * Reads samples, in any order and with repetitions, into `data`, at the places of dataset_layout().
 * Returns the first failure, with the shard and the offset. Fails with PENSTOCK_E_CORRUPT if an
 * image cannot be decoded, and with PENSTOCK_E_LIMIT if an image has too many pixels or scans.
 */
int dataset_read(struct dataset *set, const uint64_t *ids, size_t n, void *data,
	const atomic_int *cancel, struct penstock_error *err);
/* Splits the bytes of a sample into fields. In the format "objects" the fields are "data", and
 * "label" if there are labels. */
int dataset_split(const struct dataset *set, uint64_t id, const void *data, size_t size,
	struct format_fields *out, struct penstock_error *err);

#endif
