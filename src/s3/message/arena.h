/* Memory for the strings of one parsed message: many small pieces that are freed together. */
#ifndef S3_MESSAGE_ARENA_H
#define S3_MESSAGE_ARENA_H

#include <stddef.h>

struct arena_block;
struct arena {
	struct arena_block *blocks;
};

/* Returns `len` bytes of memory, or NULL if out of memory. A zeroed arena is empty. */
void *arena_alloc(struct arena *a, size_t len);
/* Returns a NUL-terminated copy, or NULL if out of memory. */
char *arena_copy(struct arena *a, const char *s, size_t len);
void arena_release(struct arena *a);

#endif
