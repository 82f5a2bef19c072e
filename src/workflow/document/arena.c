#include "workflow/document/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"

struct workflow_arena_block {
	struct workflow_arena_block *next;
	size_t used;
	size_t size;
	_Alignas(max_align_t) char data[];
};

#define BLOCK_SIZE (16 * KIB)

void workflow_arena_release(struct workflow_arena *arena)
{
	struct workflow_arena_block *block = arena->blocks;

	while (block) {
		struct workflow_arena_block *next = block->next;

		free(block);
		block = next;
	}
	*arena = (struct workflow_arena){0};
}

void *workflow_arena_alloc(struct workflow_arena *arena, size_t len)
{
	struct workflow_arena_block *block = arena->blocks;
	size_t align = _Alignof(max_align_t);
	void *piece;

	if (len > SIZE_MAX - 2 * align - sizeof(*block)) {
		arena->no_memory = true;
		return NULL;
	}
	len = (len + align - 1) / align * align;
	if (!block || block->size - block->used < len) {
		size_t size = len > BLOCK_SIZE / 4 ? len : BLOCK_SIZE;
		/* The block of a large piece goes after the current block, which still has room. */
		struct workflow_arena_block **place = block && size != BLOCK_SIZE ? &block->next
										  : &arena->blocks;

		block = calloc(1, sizeof(*block) + size);
		if (!block) {
			arena->no_memory = true;
			return NULL;
		}
		block->size = size;
		block->next = *place;
		*place = block;
	}
	piece = block->data + block->used;
	block->used += len;
	return piece;
}

void *workflow_arena_array(struct workflow_arena *arena, size_t n, size_t size)
{
	size_t len;

	if (__builtin_mul_overflow(n, size, &len)) {
		arena->no_memory = true;
		return NULL;
	}
	return workflow_arena_alloc(arena, len);
}

char *workflow_arena_copy(struct workflow_arena *arena, const char *s, size_t len)
{
	char *copy = workflow_arena_alloc(arena, len + 1);

	if (copy && len)
		memcpy(copy, s, len);
	return copy;
}

char *workflow_arena_take(struct workflow_arena *arena, const struct buf *b)
{
	if (!buf_failed(b))
		return workflow_arena_copy(arena, buf_str(b), b->len);
	arena->no_memory = true;
	return NULL;
}

char *workflow_arena_printf(struct workflow_arena *arena, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_WORKFLOW_FILE);
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	return workflow_arena_take(arena, &text);
}
