/*
 * The memory of one workflow: nodes, strings and the model, freed together. Failures are sticky:
 * `no_memory` is checked once, at the end of reading. Pieces are zeroed and aligned for any type.
 */
#ifndef WORKFLOW_DOCUMENT_ARENA_H
#define WORKFLOW_DOCUMENT_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct buf;
struct workflow_arena_block;
struct workflow_arena {
	struct workflow_arena_block *blocks;
	bool no_memory;
};

void workflow_arena_release(struct workflow_arena *arena);
/* Return NULL if out of memory. */
void *workflow_arena_alloc(struct workflow_arena *arena, size_t len);
void *workflow_arena_array(struct workflow_arena *arena, size_t n, size_t size);
/* Returns a copy with a terminating NUL; NULL if out of memory. */
char *workflow_arena_copy(struct workflow_arena *arena, const char *s, size_t len);
/* Returns a copy of the buffer; NULL if the buffer failed, or if out of memory. */
char *workflow_arena_take(struct workflow_arena *arena, const struct buf *b);
char *workflow_arena_printf(struct workflow_arena *arena, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#define workflow_arena_new(arena, type) ((type *)workflow_arena_alloc(arena, sizeof(type)))

#endif
