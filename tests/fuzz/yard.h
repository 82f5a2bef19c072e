/*
 * A directory in memory, for parsers that read files; removed when the process ends.
 */
#ifndef FUZZ_YARD_H
#define FUZZ_YARD_H

#include <unistd.h>

#include "base/fs.h"
#include "fuzz.h"

static char yard[] = "/dev/shm/penstock-fuzz-XXXXXX";

static inline void yard_remove(void)
{
	fs_remove_tree(yard, NULL);
}

/* Creates the directory at the first call. */
static inline void yard_open(void)
{
	static bool made;

	if (made)
		return;
	require(mkdtemp(yard));
	atexit(yard_remove);
	made = true;
}

/* Returns the path of `name` in the directory; the next call overwrites the path. */
static inline const char *yard_path(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", yard, name);
	return path;
}

static inline void yard_write(const char *name, const void *data, size_t size)
{
	FILE *f = fopen(yard_path(name), "we");

	require(f);
	require(!size || fwrite(data, 1, size, f) == size);
	require(fclose(f) == 0);
}

#endif
