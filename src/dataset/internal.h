/* Shared by the files of src/dataset. */
#ifndef DATASET_INTERNAL_H
#define DATASET_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "dataset/dataset.h"
#include "dataset/format/records.h"
#include "dataset/index/index.h"
#include "dataset/jpeg/jpeg.h"

struct labels;
struct litdata_index;
struct mds_file;
struct mds_index;
struct mds_shard;
struct strlist;

/* The samples of a shard. */
struct dataset_shard {
	/* number of the shard's first sample; in the entry after the last shard, the number of
	 * samples */
	uint64_t first;
	const struct format *format; /* NULL if the file is not a shard */
	struct records records; /* for a format with records */
};

struct dataset {
	struct source *source;
	const char *name; /* name of the format; static */
	/* format of all shards; NULL for objects, or if each shard has its own */
	const struct format *format;
	bool has_records;
	struct index_settings settings; /* settings of the format */
	struct buf document; /* index.json of the data set */
	/* The index in use, which may contain the list of the source; empty if there is none. */
	struct buf index;
	enum dataset_origin origin;
	/* CRC32C of each sample, in `index`; NULL if checksums are not known */
	const uint32_t *sums;
	/* The parsed index.json of MosaicML or litData; NULL for other formats. The format "tokens"
	 * has `litdata` if its tokens are in chunks of litData. */
	struct mds_index *mds;
	struct litdata_index *litdata;
	uint64_t count;
	uint64_t sample_size; /* bytes of each record; 0 in formats without records */
	/* images are decoded to this size; 0 x 0 if images are not decoded */
	struct jpeg_size image;
	char *column; /* the column with the image; if NULL, the first column with an image */
	struct labels *labels; /* labels of "objects"; NULL if there are none */
	atomic_uint decoding; /* threads that decode images */
	struct dataset_shard
		*shards; /* one more than there are shards; NULL if each shard is one sample */
	/* One for each sample of a format without records; part of `index` if there is an index. */
	struct dataset_range {
		uint64_t offset, size;
	} * ranges;

	/* Idle readers of the process `pid`. */
	pthread_mutex_t lock;
	struct source_reader *idle[LIMIT_DATASET_READERS];
	size_t n_idle;
	atomic_int pid;
};

/* find.c: sets the format, and finds the samples. */
int dataset_find_samples(
	struct dataset *set, const struct dataset_options *options, struct penstock_error *err);

/* Sets the format, and allocates `shards` unless each shard is a sample. */
int dataset_set_format(struct dataset *set, const char *name, struct penstock_error *err);
/* Initializes the records of "records", "tokens" or CIFAR from the settings. */
int dataset_init_records(
	const struct dataset *set, struct records *records, struct penstock_error *err);
/* Parses `document`, and sets the formats of the shards that it lists. */
int dataset_parse_document(struct dataset *set, struct penstock_error *err);

/* Returns the settings of a format that are in the options. */
struct index_settings dataset_settings(const char *format, const struct dataset_options *options);

/* aside.c: returns true for files that usually lie next to shards: descriptions, Megatron's "x.idx"
 * of "x.bin", and "x.gz" if "x" exists. */
bool dataset_is_aside(const struct source *source, const char *name);

/* labels.c: dataset_find_labels() takes labels from the folders. dataset_free_labels() may be
 * called even if dataset_find_labels() has failed or was not called. */
int dataset_find_labels(struct dataset *set, struct penstock_error *err);
void dataset_free_labels(struct dataset *set);

/* unpack.c: finds the compressed shards, and declares each by source_unpack(). */
int dataset_unpack(struct dataset *set, const atomic_int *cancel, struct penstock_error *err);
/* Returns the file to read for a shard: the uncompressed file, or the compressed file if the source
 * lacks the uncompressed file. */
const struct mds_file *dataset_mds_file(const struct dataset *set, const struct mds_shard *shard);

/* indexed.c: reads the index next to the shards, for source_open(). */
struct dataset_indexed {
	const struct dataset_options *options;
	struct index index;
	struct buf bytes; /* empty if there is no index */
};
int dataset_listed(void *cookie, const struct source *source, struct source_list *out,
	struct penstock_error *err);
/* For a directory on the web: adds the files that its index.json lists, and the index.json. */
int dataset_named(
	void *cookie, const struct source *source, struct strlist *out, struct penstock_error *err);
/* Returns the operand of 'penstock dataset index' that rebuilds the index. */
const char *dataset_index_operand(const struct source *source);
/* Sets format and samples. Moves `bytes`, which contain the index, into the set, even on failure,
 * unless dataset_set_format() fails. */
int dataset_use_index(struct dataset *set, const struct index *index, struct buf *bytes,
	struct penstock_error *err);
/* Frees format, samples and index, so that the samples can be searched again. */
void dataset_forget_samples(struct dataset *set);
int dataset_make_index(const struct dataset *set, struct buf *out, struct penstock_error *err);

/* Returns the size of a decoded image in bytes, or 0 if images are not decoded. */
static inline size_t dataset_pixels(const struct dataset *set)
{
	return set->image.height ? jpeg_bytes(&set->image) : 0;
}
/* Splits a sample as it is stored. */
int dataset_split_stored(const struct dataset *set, uint64_t id, const void *data, size_t size,
	struct format_fields *out, struct penstock_error *err);
/* Raises "cannot VERB sample …" for a number that no sample has. */
int dataset_no_sample(
	const struct dataset *set, const char *verb, uint64_t id, struct penstock_error *err);
/* read.c: reads samples as they are stored, one after the other in `data`. Before each sample,
 * `gap` bytes of `data` are left unchanged. */
int dataset_read_stored(struct dataset *set, const uint64_t *ids, size_t n, size_t gap, char *data,
	const atomic_int *cancel, struct penstock_error *err);

/* kept.c: uses the result of an earlier scan. Returns false if there is no result for these
 * shards. */
bool dataset_use_kept(struct dataset *set, const struct dataset_options *options);
/* Claims the scan of a large data set for this process, or waits up to LIMIT_DATASET_CLAIM_MS for
 * the process that has the claim. `*claim` is -1 unless this process has the claim. Returns true if
 * another process may have kept a result. */
bool dataset_claim_scan(
	const struct dataset *set, const struct dataset_options *options, int *claim);
/* Releases the claim of dataset_claim_scan(); `claim` may be -1. */
void dataset_release_scan(
	const struct dataset *set, const struct dataset_options *options, int claim);
/* Keeps the result of a scan, if possible. */
void dataset_keep(const struct dataset *set, const struct dataset_options *options);

/* readers.c: gets a reader for one call; dataset_give_reader() takes the reader back. */
int dataset_take_reader(
	struct dataset *set, struct source_reader **out, struct penstock_error *err);
void dataset_give_reader(struct dataset *set, struct source_reader *reader);

#endif
