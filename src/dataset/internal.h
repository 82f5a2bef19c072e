/* Shared by the files of this folder. */
#ifndef DATASET_INTERNAL_H
#define DATASET_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "dataset/dataset.h"
#include "dataset/format/records.h"

struct litdata_index;
struct mds_index;

/* The samples of a shard. */
struct dataset_shard {
	uint64_t first; /* number of its first sample; the entry after the last has the count */
	const struct format *format; /* NULL if it has no samples */
	struct records records; /* of a format with records */
};

struct dataset {
	struct source *source;
	const char *name; /* of the format; static */
	bool has_records;
	/* Formats of its shards; NULL in other formats. */
	struct mds_index *mds;
	struct litdata_index *litdata;
	uint64_t count;
	uint64_t sample_size; /* bytes of each; 0 if they differ */
	struct dataset_shard *shards; /* one more than there are; NULL: each shard is one sample */
	/* One for each sample of a format without records. */
	struct dataset_range {
		uint64_t offset, size;
	} * ranges;

	/* Readers that no call uses, of the process with this id. */
	pthread_mutex_t lock;
	struct source_reader *idle[LIMIT_DATASET_READERS];
	size_t n_idle;
	atomic_int pid;
};

/* find.c: sets the format, and finds the samples. */
int dataset_find_samples(
	struct dataset *set, const struct dataset_options *options, struct penstock_error *err);

/* readers.c: a reader for one call; dataset_give_reader() takes it back. */
int dataset_take_reader(
	struct dataset *set, struct source_reader **out, struct penstock_error *err);
void dataset_give_reader(struct dataset *set, struct source_reader *reader);

#endif
