/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the samples that training code needs, straight from object storage or from files.
 *
 *	struct penstock_error err = PENSTOCK_ERROR_INIT;
 *	struct penstock_dataset *set = NULL;
 *	uint64_t ids[256], offsets[257];
 *
 *	if (penstock_dataset_open(&set, "s3://cifar10/images/", NULL, &err) < 0)
 *		return -1;
 *	... ids[i] are numbers below penstock_dataset_count(set)
 *	if (penstock_dataset_layout(set, ids, 256, offsets, &err) == 0) {
 *		char *data = malloc(offsets[256]);
 *
 *		if (penstock_dataset_read(set, ids, 256, data, &err) == 0)
 *			... sample i is data + offsets[i]
 *		free(data);
 *	}
 *	penstock_dataset_free(set);
 *
 * Names. A data set is "s3://BUCKET/PREFIX", "gs://BUCKET/PREFIX", or a local path. A prefix that
 * ends in "/", a directory, or a key without an object means everything below it. HTTP cannot list
 * files: "http(s)://…" is one shard, several shards with {000..099} and {A,B} in its path, or, if
 * it ends in "/", a directory with a .penstock-index or an index.json.
 *
 * Threads. Any number of threads may read one data set at a time. A child after fork() may use a
 * data set of its parent, but must not wait for batches that the parent started.
 *
 * Results, errors, ownership, units and compatibility are as <penstock/transfer.h> says.
 */
#ifndef PENSTOCK_DATASET_H
#define PENSTOCK_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>
#include <penstock/transfer.h>

#ifdef __cplusplus
extern "C" {
#endif

struct penstock_dataset;

struct penstock_dataset_options {
	size_t struct_size;
	/* "objects" (one object or file is one sample), "records" (fixed size), "cifar10",
	 * "cifar100", "npy", "idx" (MNIST), "tokens", "tar" (WebDataset), "tfrecord", "mds"
	 * (MosaicML), "litdata". NULL to detect the format by an index, or by the name and the
	 * first bytes of a large shard. */
	const char *format;
	uint64_t record_size; /* for "records": bytes of a record */
	uint64_t header, trailer; /* bytes of a shard before its first record, and after its last */
	const char *dtype; /* for "tokens": "uint16" (if NULL) or "uint32" */
	uint64_t window; /* for "tokens": tokens of a sample */
	/* for "tokens": tokens from the start of a sample to the next start; 0 for `window` */
	uint64_t stride;
	/* Options of the store, which are copied; NULL has the same effect as in
	 * penstock_transfer_new(). */
	const struct penstock_transfer_options *transfer;
	unsigned threads; /* number of threads that read ahead; 0 lets the library choose */
	/* A local directory, created if missing, that keeps the bytes read from a store; all
	 * processes of a user share it. NULL for no cache. If the directory cannot be used, a
	 * warning is logged and samples are read without a cache. */
	const char *cache;
	uint64_t cache_size; /* bytes on disk, at least 16 MiB; 0 for half of the file system */
	struct penstock_cancel *cancel; /* cancels penstock_dataset_open() alone; may be NULL */
	/* Pixels, at most 8192: JPEG images of "objects", "tar", "mds" and "litdata" are decoded to
	 * this size when they are read. A sample then begins with height * width * 3 bytes of RGB,
	 * row by row: the largest centred rectangle of this shape, scaled. The sample as it is
	 * stored follows, except in "objects". If both sizes are 0, images are returned as they are
	 * stored. */
	uint32_t decode_height, decode_width;
	const char *decode_column; /* the column to decode; NULL for the first with an image */
	/* "folder" if samples of "objects" have a field "label", an int64: the number of their
	 * class, the first folder of their name below the URL. NULL for no labels. */
	const char *labels;
};
/* clang-format off */
#define PENSTOCK_DATASET_OPTIONS_INIT { sizeof(struct penstock_dataset_options), \
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/* Lists the shards and finds the samples; `options` may be NULL. Fails with PENSTOCK_E_NOT_FOUND if
 * there is no shard; with PENSTOCK_E_CORRUPT if a shard is damaged, with shard and offset in the
 * message; with PENSTOCK_E_UNSUPPORTED if a web server lacks a feature that is needed, such as
 * ranges. */
PENSTOCK_API int penstock_dataset_open(struct penstock_dataset **out, const char *url,
	const struct penstock_dataset_options *options, struct penstock_error *err);
/* Cancels and frees all batches that were not waited for. NULL is allowed. */
PENSTOCK_API void penstock_dataset_free(struct penstock_dataset *set);

/* Returns the number of samples; at least 1. */
PENSTOCK_API uint64_t penstock_dataset_count(const struct penstock_dataset *set);
/* Returns the name of the format, as in `format` of the options. */
PENSTOCK_API const char *penstock_dataset_format(const struct penstock_dataset *set);
/* Returns the number of classes of `labels`; 0 without labels. */
PENSTOCK_API size_t penstock_dataset_classes(const struct penstock_dataset *set);
/* Returns the name of class `i`, which is less than the number of classes; names are in byte order.
 * The name is valid as long as the set. */
PENSTOCK_API const char *penstock_dataset_class(const struct penstock_dataset *set, size_t i);
/* Returns the bytes of each sample if the format gives all samples one size, else 0. */
PENSTOCK_API uint64_t penstock_dataset_sample_size(const struct penstock_dataset *set);
/* Finds the shard of a sample, named relative to the URL, and the sample's place in the shard.
 * `name` is valid as long as the set. Fails with PENSTOCK_E_INVALID if the sample number is too
 * large. */
PENSTOCK_API int penstock_dataset_place(const struct penstock_dataset *set, uint64_t id,
	const char **name, uint64_t *offset, uint64_t *size, struct penstock_error *err);

/* Sets offsets[i] to the offset in bytes of sample i in the data of a batch, and offsets[n] to the
 * size of the whole data; `offsets` has room for n + 1 values. Fails with PENSTOCK_E_INVALID if a
 * sample number is too large, and with PENSTOCK_E_LIMIT if the batch has more than 4 GiB. */
PENSTOCK_API int penstock_dataset_layout(const struct penstock_dataset *set, const uint64_t *ids,
	size_t n, uint64_t *offsets, struct penstock_error *err);
/* Reads samples, in any order and with repetitions, one after the other into `data`. Fails with
 * PENSTOCK_E_CHANGED if a shard was replaced after the set was opened; with PENSTOCK_E_CORRUPT if
 * an image cannot be decoded, with shard and offset in the message. */
PENSTOCK_API int penstock_dataset_read(struct penstock_dataset *set, const uint64_t *ids, size_t n,
	void *data, struct penstock_error *err);

/* ---- reading ahead ---- */

struct penstock_batch;

/* Starts to read a batch in the background, like penstock_dataset_read(), but `data` must stay
 * valid until the batch has ended. Batches are read in the order in which they were started.
 * penstock_batch_wait() returns all errors of the batch, including those of invalid sample
 * numbers. */
PENSTOCK_API int penstock_batch_start(struct penstock_batch **out, struct penstock_dataset *set,
	const uint64_t *ids, size_t n, void *data, struct penstock_error *err);
/* Waits for the batch and frees it. */
PENSTOCK_API int penstock_batch_wait(struct penstock_batch *batch, struct penstock_error *err);
/* Waits for the batch at most `ms` milliseconds and returns true if it has ended, for callers that
 * check something else between two calls. Frees nothing. */
PENSTOCK_API bool penstock_batch_ended(struct penstock_batch *batch, int ms);
/* Cancels the batch, waits until no thread writes to its `data`, and frees the batch. NULL is
 * allowed. */
PENSTOCK_API void penstock_batch_drop(struct penstock_batch *batch);

/* ---- the order of an epoch ---- */

struct penstock_plan;

struct penstock_plan_options {
	size_t struct_size;
	/* number of samples of the set; for a mix: number of samples of an epoch, or 0 to let
	 * `repeat` decide */
	uint64_t samples;
	/* "none" (if NULL); "full": any sample anywhere; "block": blocks in a random order, and the
	 * samples of each block shuffled; "window": blocks in a random order, and samples shuffled
	 * within `window` consecutive blocks of that order */
	const char *shuffle;
	uint64_t block; /* samples, at least 1; for "block" and "window" */
	uint64_t window; /* blocks, at least 1; for "window" */
	uint64_t seed, epoch; /* at most INT64_MAX */
	/* number of samples of the epoch that all ranks together have already received */
	uint64_t start;
	uint32_t ranks, rank; /* at most 2^20 ranks; 0 ranks mean 1 */
	uint32_t batch; /* samples of a batch of one rank, 1 to 2^24 */
	/* processes that load for one rank, at most 4,096; 0 workers mean 1 */
	uint32_t workers, worker;
	/* Treatment of the last step if it has too few samples for all ranks: "keep" (ranks differ
	 * by at most one sample), "drop", "pad" (with the first samples of the epoch). NULL for
	 * "keep" */
	const char *rest;
	/*
	 * A mix of several sets. Let W be the sum of the weights: of any W consecutive samples, set
	 * k has `set_weights[k]`, spread evenly. Each set is shuffled by itself; the sample numbers
	 * of a set follow those of the previous set. The arrays are copied. 0 sets mean one set
	 * without a mix.
	 */
	size_t sets;
	const uint64_t *set_samples; /* at least 1 */
	const uint64_t *set_weights; /* at least 1, with a sum of at most 2^32 */
	/* If true, an epoch ends when all samples of every set were taken; shorter sets are
	 * repeated, and the next epoch continues each set. If false, an epoch ends before a set
	 * would be repeated. */
	bool repeat;
};
/* clang-format off */
#define PENSTOCK_PLAN_OPTIONS_INIT { sizeof(struct penstock_plan_options), \
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, false }
/* clang-format on */

/*
 * Decides which samples a worker of a rank gets in an epoch, and in which order. The result depends
 * on the options alone, and is the same on every machine. All ranks together get each sample once,
 * for any number of ranks and workers, even if the epoch is resumed at `start` with other numbers
 * of ranks and workers. Samples of a mix appear as often as its weights and its length require.
 * Fails with PENSTOCK_E_INVALID if an option is out of its range.
 */
PENSTOCK_API int penstock_plan_new(struct penstock_plan **out,
	const struct penstock_plan_options *options, struct penstock_error *err);
PENSTOCK_API void penstock_plan_free(struct penstock_plan *plan);
/* Returns the number of samples of the whole epoch, for all ranks together. */
PENSTOCK_API uint64_t penstock_plan_samples(const struct penstock_plan *plan);
/* Return the number of batches of the worker, and of its rank. */
PENSTOCK_API uint64_t penstock_plan_batches(const struct penstock_plan *plan);
PENSTOCK_API uint64_t penstock_plan_rank_batches(const struct penstock_plan *plan);
/* Sets `ids` (room for `batch`) to the samples of the worker's batch `i`, which is less than
 * penstock_plan_batches(). Returns their number; the last `*padded` of them repeat other samples of
 * the epoch. `padded` may be NULL. */
PENSTOCK_API size_t penstock_plan_batch(
	const struct penstock_plan *plan, uint64_t i, uint64_t *ids, size_t *padded);
/* Returns the number of samples of the epoch that all ranks together have received when this rank
 * has received `batches` batches. A plan that continues the epoch has this number as its
 * `start`. */
PENSTOCK_API uint64_t penstock_plan_delivered(const struct penstock_plan *plan, uint64_t batches);
/* Returns an id of the samples and their order, without seed and epoch. An epoch can be continued
 * only with a plan that has the same id. */
PENSTOCK_API uint64_t penstock_plan_id(const struct penstock_plan *plan);

/* ---- fields ---- */

struct penstock_fields;

/* A column of a sample. */
struct penstock_field {
	size_t struct_size;
	const char *name; /* `name_len` bytes, not terminated */
	size_t name_len;
	const void *data; /* in the sample, or in the fields; not aligned */
	size_t size; /* bytes */
	const char *type; /* "bytes", "text", "json", "number", "array" */
	const char *dtype; /* for a number or an array: "uint8", "float32", …; NULL otherwise */
	bool big_endian;
	unsigned ndim; /* number of dimensions of an array */
	const uint64_t *dims;
	/* position in a list of values with the same name, and number of these values; both are 0
	 * if the field is not in a list */
	uint32_t index, count;
	const char *mode; /* mode of an image, such as "RGB", `mode_len` bytes; else NULL */
	size_t mode_len;
};
/* clang-format off */
#define PENSTOCK_FIELD_INIT { sizeof(struct penstock_field), \
	0, 0, 0, 0, 0, 0, false, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/* Splits the bytes of a sample into its fields, which refer to `data`: free the fields before
 * `data`. "objects" and "records" have one field, "data", and a "label" if the option `labels` is
 * set. */
PENSTOCK_API int penstock_fields_split(struct penstock_fields **out,
	const struct penstock_dataset *set, uint64_t id, const void *data, size_t size,
	struct penstock_error *err);
PENSTOCK_API size_t penstock_fields_count(const struct penstock_fields *fields);
/* `i` is less than the count, else PENSTOCK_E_INVALID. */
PENSTOCK_API int penstock_fields_at(const struct penstock_fields *fields, size_t i,
	struct penstock_field *out, struct penstock_error *err);
PENSTOCK_API void penstock_fields_free(struct penstock_fields *fields);

#ifdef __cplusplus
}
#endif

#endif
