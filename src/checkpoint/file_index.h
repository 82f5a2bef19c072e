/* Which file of a checkpoint has a name: found without a look at all others, of which there may be very many. */
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
	struct file_index_slot *slots; /* a power of two, at most half of them taken */
	size_t n_slots, n;
	uint64_t compared; /* names with one that was looked for */
};

/* `name` stays where it is as long as the index is used, and is not there yet. -1: out of memory. */
int file_index_add(struct file_index *index, const char *name, size_t number);
bool file_index_find(struct file_index *index, const char *name, size_t *number);
void file_index_release(struct file_index *index);

#endif
