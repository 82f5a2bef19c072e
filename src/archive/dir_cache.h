/*
 * Open descriptors of the directories of a tree that is being written, so that no path is resolved
 * twice, and none through a link that another process creates meanwhile. For one thread.
 *
 *	struct dir_cache dirs = {0};
 *
 *	fd = dir_cache_open(&dirs, top, "a/b", 3, open_or_make, cookie);	// borrowed
 *	dir_cache_release(&dirs);
 */
#ifndef ARCHIVE_DIR_CACHE_H
#define ARCHIVE_DIR_CACHE_H

#include <stddef.h>
#include <stdint.h>

#define DIR_CACHE_SIZE 64 /* descriptors; archives list a directory's members together */

struct dir_cache_entry {
	char *path; /* owned; NULL: free slot */
	size_t len;
	int fd;
	uint64_t used;
};

struct dir_cache {
	struct dir_cache_entry entries[DIR_CACHE_SIZE];
	uint64_t clock; /* counts uses */
};

/* Opens `name` in the directory `parent`; path[0, len) is its path from the top. Returns -1 with
 * errno on failure. */
typedef int dir_cache_open_fn(
	void *cookie, int parent, const char *name, const char *path, size_t len);

/*
 * The descriptor of the directory path[0, len) below `top` (length 0), whose components `open_one`
 * opens, each at most NAME_MAX bytes long. Valid until the next call, which may close it. Returns
 * -1 with errno on failure.
 */
int dir_cache_open(struct dir_cache *cache, int top, const char *path, size_t len,
	dir_cache_open_fn *open_one, void *cookie);

/* Closes all of them: call it when a path may lead elsewhere. */
void dir_cache_release(struct dir_cache *cache);

#endif
