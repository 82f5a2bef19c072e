/*
 * Memory for the strings of one parsed message: many small pieces, freed together.
 */
#ifndef S3_ARENA_H
#define S3_ARENA_H

#include <stddef.h>

struct arena_block;
struct arena {
	struct arena_block *blocks;
};

/* Zero-initialized is empty. NULL: out of memory. */
void *arena_alloc(struct arena *a, size_t len);
/* A copy with a NUL behind it. */
char *arena_copy(struct arena *a, const char *s, size_t len);
void arena_release(struct arena *a);

#endif
