/* Listings. */
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "transfer/list_page.h"
#include "transfer/objects_internal.h"
#include "base/banned.h"

struct listing {
	struct list_query query;
	object_list_fn fn;
	void *cookie;
	bool stopped;

	/*
	 * A store may hand out pages in a circle. Each page is compared with one that is kept, and the one
	 * that is kept becomes a later one each time the number of pages has doubled: so every circle
	 * closes, whatever its length.
	 */
	struct buf kept_token;
	struct buf kept_first; /* its first key or prefix */
	uint64_t pages;
	uint64_t keep_at; /* the page that is kept next */
	unsigned empty;	  /* pages in a row without anything */
};

static int keep_page(
	struct listing *l, const char *token, const char *first, struct penstock_error *err)
{
	buf_clear(&l->kept_token);
	buf_clear(&l->kept_first);
	buf_add_str(&l->kept_token, token);
	buf_add_str(&l->kept_first, first);
	return buf_failed(&l->kept_token) || buf_failed(&l->kept_first) ? error_memory(err) : 0;
}

/* Whether a page that leads to another gets on from those before it. */
static int check_progress(
	struct listing *l, const struct list_page *page, struct penstock_error *err)
{
	const char *first = page->n ? list_page_key(page, 0) : "";

	l->empty = *first ? 0 : l->empty + 1;
	if (l->empty > LIMIT_S3_EMPTY_PAGES ||
		(l->pages && (strcmp(page->token, buf_str(&l->kept_token)) == 0 ||
				     (*first && strcmp(first, buf_str(&l->kept_first)) == 0))))
		return list_stuck(&l->query, err);
	if (l->pages++ < l->keep_at)
		return 0;
	l->keep_at = 2 * l->pages;
	return keep_page(l, page->token, first, err);
}

static void give_page(struct listing *l, const struct list_page *page)
{
	for (size_t i = 0; i < page->n && !l->stopped; i++) {
		const struct list_item *item = &page->items[i];
		struct object_info info = {.key = page->text + item->key,
			.size = item->size,
			.modified_ns = item->modified_ns,
			.is_prefix = item->is_prefix};

		object_etag_copy(info.etag, page->text + item->etag);
		l->stopped = l->fn(l->cookie, &info) != 0;
	}
}

int object_list(struct object_client *client, const char *bucket, const char *prefix,
	const char *delimiter, object_list_fn fn, void *cookie, const atomic_int *cancel,
	struct penstock_error *err)
{
	struct listing l = {.query = {.client = client,
				    .bucket = bucket,
				    .prefix = prefix,
				    .delimiter = delimiter,
				    .cancel = cancel},
		.fn = fn,
		.cookie = cookie,
		.kept_token = BUF_INIT(LIMIT_STRING),
		.kept_first = BUF_INIT(LIMIT_STRING)};
	struct list_page *page = NULL;
	int r;

	for (;;) {
		struct list_page *before = page;

		page = NULL;
		r = list_page_fetch(&page, &l.query, err);
		list_page_free(before); /* its token was asked for */
		if (r == 0 && page->token)
			r = check_progress(&l, page, err);
		if (r == 0)
			give_page(&l, page);
		if (r < 0 || l.stopped || !page->token)
			break;
		l.query.token = page->token;
		l.query.v1 = page->v1;
	}
	list_page_free(page);
	buf_release(&l.kept_token);
	buf_release(&l.kept_first);
	return r;
}
