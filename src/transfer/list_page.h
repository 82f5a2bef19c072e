/*
 * One page of a listing: asked for, checked, and held in as little memory as it needs.
 */
#ifndef TRANSFER_LIST_PAGE_H
#define TRANSFER_LIST_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transfer/objects.h"

/* An object or a common prefix; the texts are offsets into the page's. */
struct list_item {
	uint64_t size;
	int64_t modified_ns;
	uint32_t key, key_len;
	uint32_t etag; /* with quotes, or "" */
	bool is_prefix;
};

struct list_page {
	struct list_page *next; /* the caller's */
	size_t bytes;		/* of memory */
	size_t n;
	size_t at; /* the caller's */
	char *text;
	char *token; /* where the next page begins; NULL: this is the last */
	bool sorted; /* the keys rise */
	bool v1;     /* the store answers the old form, and `token` is a marker */
	struct list_item
		items[]; /* keys and common prefixes merged, in the order that the store gave each;
				     what it gave twice in a row once */
};
void list_page_free(struct list_page *page);

static inline const char *list_page_key(const struct list_page *page, size_t i)
{
	return page->text + page->items[i].key;
}

struct list_query {
	struct object_client *client;
	const char *bucket;
	const char *prefix;    /* NULL: none */
	const char *delimiter; /* NULL: none */
	const char *after;     /* begins behind this key; NULL: at the beginning */
	const char *token;     /* of the page before, instead */
	bool v1;	       /* of it */
	const atomic_int *cancel;
};
/* PENSTOCK_E_PROTOCOL: it is no list, or names what is not below the prefix. */
int list_page_fetch(
	struct list_page **out, const struct list_query *query, struct penstock_error *err);
/* Raises that the store lists the same again and again. */
int list_stuck(const struct list_query *query, struct penstock_error *err);

#endif
