/* Fetches and verifies one page of a listing, and holds the page in little memory. */
#ifndef TRANSFER_LIST_PAGE_H
#define TRANSFER_LIST_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transfer/objects.h"

/* An object or a common prefix; the texts are offsets into the page's text. */
struct list_item {
	uint64_t size;
	int64_t modified_ns;
	uint32_t key, key_len;
	uint32_t etag; /* with quotes, or "" */
	bool is_prefix;
};

struct list_page {
	struct list_page *next; /* next page in a list of the caller */
	size_t bytes; /* bytes of memory of the page */
	size_t n;
	size_t at; /* first item that the caller has not used; 0 at first */
	char *text;
	char *token; /* token of the next page; NULL if this is the last page */
	bool sorted; /* the keys are in rising order */
	bool v1; /* the store uses version 1 of the listing, and `token` is a marker */
	/* keys and common prefixes merged, each in the store's order; consecutive duplicates appear
	 * once */
	struct list_item items[];
};
void list_page_free(struct list_page *page);

static inline const char *list_page_key(const struct list_page *page, size_t i)
{
	return page->text + page->items[i].key;
}

struct list_query {
	struct object_ref at;
	const char *delimiter; /* may be NULL */
	const char *after; /* starts after this key; NULL to start at the beginning */
	const char *token; /* token of the previous page, in place of `after` */
	bool v1; /* `v1` of the previous page */
	const atomic_int *cancel;
};
/* Fails with PENSTOCK_E_PROTOCOL if the reply is not a listing, has names outside the prefix, or is
 * truncated without a token. */
int list_page_fetch(
	struct list_page **out, const struct list_query *query, struct penstock_error *err);
/* Raises the error for a listing that repeats itself. */
int list_stuck(const struct list_query *query, struct penstock_error *err);

#endif
