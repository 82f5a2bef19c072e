#include "archive/dir_cache.h"

#include <dirent.h> /* NAME_MAX */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/banned.h"

static const struct dir_cache_entry *find(struct dir_cache *cache, const char *path, size_t len)
{
	for (size_t i = 0; i < DIR_CACHE_SIZE; i++) {
		struct dir_cache_entry *e = &cache->entries[i];

		if (e->path && e->len == len && memcmp(e->path, path, len) == 0) {
			e->used = ++cache->clock;
			return e;
		}
	}
	return NULL;
}

/* Keeps `fd` in place of the least recently used directory. */
static int keep(struct dir_cache *cache, const char *path, size_t len, int fd)
{
	struct dir_cache_entry *e = &cache->entries[0];
	char *copy = strndup(path, len);

	if (!copy)
		return -1;
	for (size_t i = 0; i < DIR_CACHE_SIZE && e->path; i++) {
		if (!cache->entries[i].path || cache->entries[i].used < e->used)
			e = &cache->entries[i];
	}
	if (e->path)
		close(e->fd);
	free(e->path);
	*e = (struct dir_cache_entry){.path = copy, .len = len, .fd = fd, .used = ++cache->clock};
	return 0;
}

int dir_cache_open(struct dir_cache *cache, int top, const char *path, size_t len,
	dir_cache_open_fn *open_one, void *cookie)
{
	const struct dir_cache_entry *known;
	size_t parent_len = len;
	char name[NAME_MAX + 1];
	int parent, fd;

	if (len == 0)
		return top;
	known = find(cache, path, len);
	if (known)
		return known->fd;
	while (parent_len > 0 && path[parent_len - 1] != '/')
		parent_len--;
	memcpy(name, path + parent_len, len - parent_len);
	name[len - parent_len] = '\0';
	parent = dir_cache_open(
		cache, top, path, parent_len ? parent_len - 1 : 0, open_one, cookie);
	if (parent < 0)
		return -1;
	fd = open_one(cookie, parent, name, path, len);
	if (fd >= 0 && keep(cache, path, len, fd) < 0) {
		close(fd);
		errno = ENOMEM;
		return -1;
	}
	return fd;
}

void dir_cache_release(struct dir_cache *cache)
{
	for (size_t i = 0; i < DIR_CACHE_SIZE; i++) {
		struct dir_cache_entry *e = &cache->entries[i];

		if (e->path)
			close(e->fd);
		free(e->path);
		*e = (struct dir_cache_entry){0};
	}
}
