/*
 * The directories of a tree that is being written, held open, so that no name is walked twice and none is walked
 * through a link that somebody put there meanwhile. One thread's.
 *
 *	struct dir_cache dirs = {0};
 *
 *	fd = dir_cache_open(&dirs, top, "a/b", 3, open_or_make, cookie);	// the cache's; see below
 *	dir_cache_release(&dirs);
 */
#ifndef BASE_DIR_CACHE_H
#define BASE_DIR_CACHE_H

#include <stddef.h>
#include <stdint.h>

#define DIR_CACHE_SIZE 64 /* descriptors; archives list a directory's members together */

struct dir_cache_entry {
	char *path; /* owned; NULL: a free slot */
	size_t len;
	int fd;
	uint64_t used;
};

struct dir_cache {
	struct dir_cache_entry entries[DIR_CACHE_SIZE];
	uint64_t clock; /* of the uses */
};

/* Opens `name` in the directory `parent`; path[0, len) is the whole way to it from the top. -1: errno. */
typedef int dir_cache_open_fn(
	void *cookie, int parent, const char *name, const char *path, size_t len);

/*
 * The descriptor of the directory path[0, len) below `top` (whose own path has the length 0), whose components are
 * opened by `open_one`, each at most NAME_MAX bytes long. It is good until the next call, which may need its place. -1:
 * errno.
 */
int dir_cache_open(struct dir_cache *cache, int top, const char *path, size_t len,
	dir_cache_open_fn *open_one, void *cookie);

/* Closes all of them: a name that led to one may lead elsewhere from now on. */
void dir_cache_release(struct dir_cache *cache);

#endif
