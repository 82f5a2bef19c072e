/*
 * Finds split points among the unknown keys of a listing. A model learns which bytes occur at each
 * position of the keys, treats keys as numbers with one digit for each position, and extrapolates
 * from the extent of one page to that of several more. A wrong guess is harmless: any text is a
 * valid split, only perhaps between fewer or more keys than desired.
 */
#ifndef TRANSFER_LIST_SPLIT_H
#define TRANSFER_LIST_SPLIT_H

#include <stddef.h>
#include <stdint.h>

#define LIST_MODEL_KEY 1024 /* bytes of a key that are used */

struct list_model {
	uint64_t seen[LIST_MODEL_KEY][4]; /* a bit for each byte; NUL: keys end there */
	size_t len; /* of the longest key */
};

void list_model_add(struct list_model *model, const char *key);

/* The text as far after `at` as `times` the distance from `first` to `last`: free() it. NULL if it
 * would not begin with `prefix`, would not follow `at`, or if out of memory. */
char *list_model_ahead(const struct list_model *model, const char *prefix, const char *first,
	const char *last, const char *at, uint64_t times);

#endif
