/*
 * Writes the samples of a data set as shards of another format, with their index.
 *
 *	struct pack_result done;
 *	struct pack_options options = {.format = "tar", .shard_bytes = 64 * MIB, .jobs = 4};
 *
 *	r = dataset_pack(set, &(struct pack_target){.url = "s3://b/packed/", .open = open_client,
 *		.cookie = library}, &options, &done, err);
 *
 * Each shard appears as a whole, and the index last: without an index the shards may be incomplete.
 * A call that fails removes the files that it wrote. Objects whose names differ only after the
 * first dot of the last component ("1.jpg", "1.cls") become one sample of a format with fields.
 */
#ifndef DATASET_PACK_PACK_H
#define DATASET_PACK_PACK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dataset;
struct object_client;
struct penstock_error;

struct pack_target {
	const char *url; /* s3://…, gs://… or a directory, which is created; borrowed */
	/* Like open() of struct source_place. */
	int (*open)(
		void *cookie, bool google, struct object_client **out, struct penstock_error *err);
	void *cookie;
};

struct pack_options {
	const char *format; /* "tar", "mds", "tfrecord", "records", "npy" */
	uint64_t shard_bytes; /* a shard ends with the sample with which it reaches this size */
	int zstd; /* level of compression for shards of MDS; 0 if shards are not compressed */
	size_t jobs; /* shards written at a time; each is in memory as a whole */
	/* writes the samples in a random order given by `seed`, not in the order of their
	 * numbers */
	bool shuffle;
	uint64_t seed;
	/* Removes earlier shards and indexes from the target. If false, the call fails with
	 * PENSTOCK_E_EXISTS if the target is not empty. */
	bool force;
	const atomic_int *cancel;
	/* Called from any thread with the samples and bytes so far; may be NULL. */
	void (*progress)(void *cookie, uint64_t samples, uint64_t bytes);
	void *cookie;
};

struct pack_result {
	uint64_t samples, bytes;
	size_t shards;
	bool left; /* some shards of a failed call could not be removed */
};

int dataset_pack(struct dataset *set, const struct pack_target *target,
	const struct pack_options *options, struct pack_result *out, struct penstock_error *err);

#endif
