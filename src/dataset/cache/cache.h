/*
 * A cache on disk of the shards of data sets, shared by all processes of a user on a machine. Each
 * block of a shard is fetched by one process, while other processes wait.
 *
 *	struct block_cache *cache = NULL;
 *	struct block_file file = BLOCK_FILE_INIT;	// one for each thread
 *
 *	options = (struct block_cache_options){.dir = "/local", .shards = n};
 *	r = block_cache_new(&cache, &options, err);
 *	if (r == 0 && cache)
 *		block_file_open(cache, &file, "https://… b/key \"etag\" 1000", true);
 *	...
 *	bytes = block_cache_get(cache, &file, offset, len, scratch);
 *	block = offset / CACHE_BLOCK;
 *	if (!bytes && block_cache_claim(cache, &file, block, scratch) == CACHE_CLAIMED) {
 *		... fetch the block
 *		block_cache_put(cache, &file, block, data);
 *	}
 *	block_file_close(&file);
 *	block_cache_free(cache);
 *
 * A failure of the cache does not fail a read: a block that is not in the cache is fetched. If the
 * disk is full or fails, the cache logs that once and writes no more blocks. A damaged block counts
 * as missing. docs/decisions/datasets.md describes the files.
 */
#ifndef DATASET_CACHE_CACHE_H
#define DATASET_CACHE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

struct penstock_error;
struct block_cache;

#define CACHE_BLOCK (256 * KIB) /* bytes; the last block of a shard is shorter */

struct block_cache_options {
	const char *dir; /* created if it is missing; borrowed */
	uint64_t size; /* bytes on disk, at least CACHE_MIN; half of the file system if 0 */
	size_t shards; /* number of shards of the data set */
};

#define CACHE_MIN (16 * MIB)

/* Sets `*out` to NULL, and logs the reason, if the directory cannot be used. Fails with
 * PENSTOCK_E_INVALID if the size is too small. Any number of threads may use a cache. */
int block_cache_new(struct block_cache **out, const struct block_cache_options *options,
	struct penstock_error *err);
void block_cache_free(struct block_cache *cache);
/* Call this function once in a child after fork(). Files that were opened before the fork belong to
 * the parent. */
void block_cache_after_fork(struct block_cache *cache);

/* The open cache file of a shard. An open file is not evicted. */
struct block_file {
	int fd; /* -1 if no file is open */
	size_t shard; /* number of the shard in the data set */
	uint64_t size;
	int64_t used_ms; /* time at which the modification time of the file was last set */
};
#define BLOCK_FILE_INIT                                                                            \
	{                                                                                          \
		.fd = -1                                                                           \
	}

/* Opens the cache file of a shard. `identity` is the place and the version of the shard. The caller
 * has set `shard` and `size` of `file`. Creates a missing file if `make` is set. Returns false if
 * the file is missing or cannot be used. */
bool block_file_open(
	struct block_cache *cache, struct block_file *file, const char *identity, bool make);
void block_file_close(struct block_file *file);

/* Reads `len` bytes at `offset`, which must be in one block. Returns their place in `scratch`
 * (CACHE_BLOCK bytes), or NULL if the block is missing or damaged. */
const char *block_cache_get(struct block_cache *cache, struct block_file *file, uint64_t offset,
	size_t len, char *scratch);

enum block_claim {
	CACHE_CLAIMED, /* the caller must fetch the block; no other reader does */
	CACHE_PRESENT, /* another reader has fetched the block */
	CACHE_BUSY, /* another reader is fetching the block */
	CACHE_FULL /* there is no room for the block, or the cache writes no more blocks */
};
/* Claims a block that is missing, until block_cache_put(), block_cache_give_up() or
 * block_file_close(). */
enum block_claim block_cache_claim(
	struct block_cache *cache, struct block_file *file, uint64_t block, char *scratch);
/* Writes a claimed block to the cache, and ends the claim. */
void block_cache_put(
	struct block_cache *cache, struct block_file *file, uint64_t block, const void *data);
void block_cache_give_up(struct block_file *file, uint64_t block);

/* Returns the size in bytes of a block of a shard of `size` bytes. */
static inline size_t block_size(uint64_t size, uint64_t block)
{
	uint64_t left = size - block * CACHE_BLOCK;

	return left < CACHE_BLOCK ? (size_t)left : CACHE_BLOCK;
}

#endif
