/*
 * Sorts any number of short records by their text, in byte order and bounded memory: records that
 * do not fit are written, sorted, to an unlinked file in TMPDIR and merged from there.
 *
 *	list_sorter_new(&sorter, 8 * MIB, err);
 *	list_sorter_add(sorter,	// for each record
 *		&(struct list_record){ .text = name, .text_len = strlen(name) }, err);
 *	list_sorter_seal(sorter, err);
 *	while ((r = list_sorter_next(sorter, &record, err)) > 0)
 *		...
 */
#ifndef TRANSFER_LIST_SORT_H
#define TRANSFER_LIST_SORT_H

#include <stddef.h>

struct entry;
struct penstock_error;
struct list_sorter;

struct list_record {
	const char *text; /* NUL-terminated if it comes from a sorter */
	size_t text_len;
	const void *extra; /* opaque bytes of the caller; unaligned */
	size_t extra_len;
};

/* `memory` bounds the bytes held before they are written to the file. */
int list_sorter_new(struct list_sorter **out, size_t memory, struct penstock_error *err);
void list_sorter_free(struct list_sorter *s);
int list_sorter_add(
	struct list_sorter *s, const struct list_record *record, struct penstock_error *err);
/* Ends the input. */
int list_sorter_seal(struct list_sorter *s, struct penstock_error *err);
/* Returns 1 with a record that is valid until the next call, 0 at the end. Equal texts come in any
 * order. */
int list_sorter_next(struct list_sorter *s, struct list_record *record, struct penstock_error *err);

/* Add and return entries of a store; the text of such a record is the key. */
int list_sorter_add_entry(
	struct list_sorter *s, const struct entry *entry, struct penstock_error *err);
int list_sorter_next_entry(struct list_sorter *s, struct entry *entry, struct penstock_error *err);

/* Returns the bytes of memory that the sorter holds. */
size_t list_sorter_memory(const struct list_sorter *s);
/* Moves the remaining records of a sealed sorter to the file. The record that list_sorter_next()
 * returned last becomes invalid. */
int list_sorter_spill(struct list_sorter *s, struct penstock_error *err);

#endif
