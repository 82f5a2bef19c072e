#include "checkpoint/file_index.h"

#include <stdlib.h>
#include <string.h>

#include "base/banned.h"

enum { FIRST_SLOTS = 64 };

static size_t hash(const char *name)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
	return (size_t)(h ^ h >> 32);
}

static size_t free_slot(const struct file_index *index, const char *name)
{
	size_t mask = index->n_slots - 1, i = hash(name) & mask;

	while (index->slots[i].name)
		i = (i + 1) & mask;
	return i;
}

static int grow(struct file_index *index)
{
	struct file_index larger = {.n_slots = index->n_slots ? 2 * index->n_slots : FIRST_SLOTS,
		.n = index->n,
		.compared = index->compared};

	larger.slots = calloc(larger.n_slots, sizeof(*larger.slots));
	if (!larger.slots)
		return -1;
	for (size_t i = 0; i < index->n_slots; i++) {
		if (index->slots[i].name)
			larger.slots[free_slot(&larger, index->slots[i].name)] = index->slots[i];
	}
	free(index->slots);
	*index = larger;
	return 0;
}

int file_index_add(struct file_index *index, const char *name, size_t number)
{
	if (2 * (index->n + 1) > index->n_slots && grow(index) < 0)
		return -1;
	index->slots[free_slot(index, name)] = (struct file_index_slot){name, number};
	index->n++;
	return 0;
}

bool file_index_find(struct file_index *index, const char *name, size_t *number)
{
	size_t mask = index->n_slots - 1;

	if (!index->n_slots)
		return false;
	for (size_t i = hash(name) & mask; index->slots[i].name; i = (i + 1) & mask) {
		index->compared++;
		if (strcmp(index->slots[i].name, name) == 0) {
			*number = index->slots[i].number;
			return true;
		}
	}
	return false;
}

void file_index_release(struct file_index *index)
{
	free(index->slots);
	*index = (struct file_index){0};
}
