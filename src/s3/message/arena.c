#include "s3/message/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct arena_block {
	struct arena_block *next;
	size_t used, size;
	alignas(max_align_t) char data[];
};

#define FIRST_BLOCK ((size_t)1024)
#define LAST_BLOCK  ((size_t)256 * 1024)

void *arena_alloc(struct arena *a, size_t len)
{
	const size_t align = alignof(max_align_t);
	struct arena_block *b = a->blocks;

	if (len > SIZE_MAX / 2)
		return NULL;
	len = (len + align - 1) / align * align;
	if (!b || b->size - b->used < len) {
		size_t size = b ? b->size * 2 : FIRST_BLOCK;

		if (size > LAST_BLOCK)
			size = LAST_BLOCK;
		if (size < len)
			size = len;
		b = malloc(sizeof(*b) + size);
		if (!b)
			return NULL;
		b->next = a->blocks;
		b->used = 0;
		b->size = size;
		a->blocks = b;
	}
	void *p = b->data + b->used;

	b->used += len;
	return p;
}

char *arena_copy(struct arena *a, const char *s, size_t len)
{
	char *copy = arena_alloc(a, len + 1);

	if (!copy)
		return NULL;
	if (len > 0)
		memcpy(copy, s, len);
	copy[len] = '\0';
	return copy;
}

void arena_release(struct arena *a)
{
	while (a->blocks) {
		struct arena_block *next = a->blocks->next;

		free(a->blocks);
		a->blocks = next;
	}
}
