/*
 * Finds split points among the unknown keys of a listing. A model learns which bytes occur at each
 * position of the keys, treats keys as numbers with one digit for each position, and extrapolates
 * from the distance that one page covers to the distance of several pages. A wrong guess is
 * harmless: any text is a valid split, but may have fewer or more keys before it than desired.
 */
#ifndef TRANSFER_LIST_SPLIT_H
#define TRANSFER_LIST_SPLIT_H

#include <stddef.h>
#include <stdint.h>

#define LIST_MODEL_KEY 1024 /* bytes of a key that are used */

struct list_model {
	/* for each position, a bit per byte value of the keys; the bit of NUL if keys end there */
	uint64_t seen[LIST_MODEL_KEY][4];
	size_t len; /* length of the longest key */
};

void list_model_add(struct list_model *model, const char *key);

/* Returns a text that is after `at` by `times` the distance from `first` to `last`; free() it.
 * Returns NULL if the text would not begin with `prefix` or not be after `at`, or if out of
 * memory. */
char *list_model_ahead(const struct list_model *model, const char *prefix, const char *first,
	const char *last, const char *at, uint64_t times);

#endif
