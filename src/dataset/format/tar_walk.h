/*
 * The members of a tar archive, one after the other: ustar, with GNU's long names and sizes and
 * the paths and sizes of pax. Internal to the tar format.
 *
 *	struct tar_walk walk = {.w = {.shard = shard}};
 *
 *	while ((r = tar_walk_next(&walk, err)) > 0)
 *		printf("%s %zu\n", walk.name, (size_t)walk.size);
 *	tar_walk_release(&walk);
 */
#ifndef DATASET_FORMAT_TAR_WALK_H
#define DATASET_FORMAT_TAR_WALK_H

#include "dataset/format/internal.h"

#define TAR_BLOCK 512

/* Returns the size of a member's content with the zeros that fill its last block. */
static inline uint64_t tar_padded(uint64_t size)
{
	return (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
}

struct tar_walk {
	struct window w;
	uint64_t at; /* offset of the next header */
	uint64_t start; /* offset of the member's first header */
	uint64_t data, size; /* offset and size of the content, whose padded end is `at` */
	/* the bytes from `start` to `at` are extended headers of the next member */
	bool extended;
	/* size in the extended headers of the member; UINT64_MAX if they have no size */
	uint64_t pax_size;
	bool long_name; /* `name` comes from an extended header */
	char name[LIMIT_TAR_NAME + 1];
};

/* Goes to the next file. Returns 1, or 0 at the end of the archive. */
int tar_walk_next(struct tar_walk *walk, struct penstock_error *err);
void tar_walk_release(struct tar_walk *walk);

/* Divides a name into key and extension. Returns false if the member is not part of a sample. */
bool tar_split_name(const char *name, size_t *key_len, const char **ext);

#endif
