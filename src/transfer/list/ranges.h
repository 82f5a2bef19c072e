/*
 * The pages of a listing in order, fetched by several threads from several ranges of keys.
 *
 *	list_ranges_new(&ranges, &query, 8, err);
 *	while ((r = list_ranges_next(ranges, &page, err)) == LIST_RANGES_PAGE)
 *		... page->items[page->at .. page->n) ..., list_page_free(page)
 *	list_ranges_free(ranges);
 *
 * The keys of all pages together are in strictly rising order. If the store's listing does not
 * allow this, list_ranges_next() returns the reason, and the caller starts again: with one range,
 * or by sorting all keys.
 */
#ifndef TRANSFER_LIST_RANGES_H
#define TRANSFER_LIST_RANGES_H

#include "transfer/list/page.h"

struct list_ranges;

/* Creates a listing. The texts of `query` and its client are borrowed. If `parallel` is 1, one
 * range is read ahead. */
int list_ranges_new(struct list_ranges **out, const struct list_query *query, unsigned parallel,
	struct penstock_error *err);
/* Cancels requests in flight and waits for them. */
void list_ranges_free(struct list_ranges *l);

enum {
	LIST_RANGES_END,
	LIST_RANGES_PAGE,
	/* the store ignores start keys: only one range works */
	LIST_RANGES_NO_START,
	LIST_RANGES_DISORDER /* the store's listing is unsorted */
};
/* Returns one of these values, or a negative error. The caller owns the page. */
int list_ranges_next(struct list_ranges *l, struct list_page **page, struct penstock_error *err);

#endif
