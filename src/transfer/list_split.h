/*
 * Where to cut the keys of a listing that are not known yet. A model learns at each position of the keys which
 * bytes occur, takes keys as numbers with one digit for each position, and reckons from how far one page got how
 * far some more will. It is a guess: any text is a good cut, only not always between as many keys as wanted.
 */
#ifndef TRANSFER_LIST_SPLIT_H
#define TRANSFER_LIST_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIST_MODEL_KEY 1024 /* bytes of a key that are looked at */

struct list_model {
	uint64_t seen[LIST_MODEL_KEY][4]; /* a bit for each byte; that of NUL: keys end there */
	size_t len;			  /* of the longest key */
};

void list_model_add(struct list_model *model, const char *key);

/*
 * The text that is `times` as far behind `at` as `last` is behind `first`: free() it. NULL: it would not begin with
 * `prefix`, or be behind `at`, or there is no memory.
 */
char *list_model_ahead(const struct list_model *model, const char *prefix, const char *first,
	const char *last, const char *at, uint64_t times);

#endif
