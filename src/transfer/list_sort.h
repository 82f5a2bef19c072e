/*
 * Sorts any number of short records by their text, in byte order and bounded memory: what does not fit goes, sorted,
 * to an unlinked file in TMPDIR and is merged from there.
 *
 *	list_sorter_new(&sorter, 8 * MIB, err);
 *	list_sorter_add(sorter, &(struct list_record){ .text = name, .text_len = strlen(name) }, err);	as often as needed
 *	list_sorter_seal(sorter, err);
 *	while ((r = list_sorter_next(sorter, &record, err)) > 0)
 */
#ifndef TRANSFER_LIST_SORT_H
#define TRANSFER_LIST_SORT_H

#include <stdbool.h>
#include <stddef.h>

struct penstock_error;
struct list_sorter;

struct list_record {
	const char *text; /* NUL-terminated where it comes from a sorter */
	size_t text_len;
	const void *extra; /* whatever goes with it; unaligned */
	size_t extra_len;
};

/* `memory` bounds what is held before it goes to the file. */
int list_sorter_new(struct list_sorter **out, size_t memory, struct penstock_error *err);
void list_sorter_free(struct list_sorter *s);
int list_sorter_add(
	struct list_sorter *s, const struct list_record *record, struct penstock_error *err);
/* Nothing is added any more. */
int list_sorter_seal(struct list_sorter *s, struct penstock_error *err);
/* 1: a record, which lives until the next call; 0: there are no more. Equal texts come in any order. */
int list_sorter_next(struct list_sorter *s, struct list_record *record, struct penstock_error *err);

/* Bytes of memory it holds. */
size_t list_sorter_memory(const struct list_sorter *s);
/* Of a sealed one: moves what is left to the file. The record that next() gave last is gone. */
int list_sorter_spill(struct list_sorter *s, struct penstock_error *err);

#endif
