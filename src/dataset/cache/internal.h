/* Shared by the files of src/dataset/cache. */
#ifndef DATASET_CACHE_INTERNAL_H
#define DATASET_CACHE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "dataset/cache/cache.h"

#define CACHE_NAME_BYTES 16 /* bytes of the digest that is the name of a file */

struct block_cache {
	char *dir; /* the directory of this user, below the directory of the options */
	uint64_t limit; /* bytes */
	size_t n;
	/* For each shard, a bit for each block that this process has verified; NULL until a block
	 * is verified. */
	_Atomic(_Atomic uint32_t *) *good;
	atomic_bool off; /* no more blocks are written */
	pthread_mutex_t lock;
	/* Under the lock. */
	/* bytes that this process has taken in the file "lock" (room.c) and not used yet */
	uint64_t room;
	/* monotonic; after the cache was full, files are not counted again before this time */
	int64_t full_until_ms;
};

/* Makes the cache write no more blocks. The first call logs "cannot WHAT in the cache" with the
 * reason `errnum`. */
void block_cache_turn_off(struct block_cache *c, int errnum, const char *what);

/* room.c: reserves space for `bytes` on disk, and removes other files if necessary. Returns false
 * if there is no space. */
bool block_cache_take_room(struct block_cache *c, uint64_t bytes);

#endif
