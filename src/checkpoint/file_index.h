/* Finds a file of a checkpoint by its name among very many. */
#ifndef CHECKPOINT_FILE_INDEX_H
#define CHECKPOINT_FILE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct file_index_slot {
	const char *name; /* NULL: free */
	size_t number;
};

struct file_index {
	struct file_index_slot *slots; /* a power of two, at most half of them used */
	size_t n_slots, n;
	uint64_t compared; /* comparisons of names */
};

/* `name` is borrowed as long as the index is used, and must be new. Returns -1 if out of memory. */
int file_index_add(struct file_index *index, const char *name, size_t number);
bool file_index_find(struct file_index *index, const char *name, size_t *number);
void file_index_release(struct file_index *index);

#endif
