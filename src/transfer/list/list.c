/* Lists the objects below a prefix, page by page. */
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "transfer/list/page.h"
#include "transfer/client/internal.h"

struct listing {
	struct list_query query;

	/*
	 * A store may return pages in a cycle. Each page is compared with a kept one, which is
	 * replaced each time the number of pages has doubled, so that a cycle of any length is
	 * found.
	 */
	struct buf kept_token;
	struct buf kept_first; /* first key or prefix of the kept page */
	uint64_t pages;
	uint64_t keep_at; /* the page to keep next */
	unsigned empty; /* consecutive pages without entries */
};

/* Verifies that a page that is not the last one makes progress. */
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
	buf_clear(&l->kept_token);
	buf_clear(&l->kept_first);
	buf_add_str(&l->kept_token, page->token);
	buf_add_str(&l->kept_first, first);
	return buf_failed(&l->kept_token) || buf_failed(&l->kept_first) ? error_memory(err) : 0;
}

int object_list(struct object_ref at, const char *delimiter, object_list_fn fn, void *cookie,
	const atomic_int *cancel, struct penstock_error *err)
{
	struct listing l = {.query = {.at = at, .delimiter = delimiter, .cancel = cancel},
		.kept_token = BUF_INIT(LIMIT_STRING),
		.kept_first = BUF_INIT(LIMIT_STRING)};
	struct list_page *page = NULL;
	bool stopped = false;
	int r;

	for (;;) {
		struct list_page *before = page;

		page = NULL;
		r = list_page_fetch(&page, &l.query, err);
		list_page_free(before); /* the request needed the token of this page */
		if (r == 0 && page->token)
			r = check_progress(&l, page, err);
		for (size_t i = 0; r == 0 && i < page->n && !stopped; i++) {
			const struct list_item *item = &page->items[i];
			struct object_info info = {.key = page->text + item->key,
				.size = item->size,
				.modified_ns = item->modified_ns,
				.is_prefix = item->is_prefix};

			object_etag_copy(info.etag, page->text + item->etag);
			stopped = fn(cookie, &info) != 0;
		}
		if (r < 0 || stopped || !page->token)
			break;
		l.query.token = page->token;
		l.query.v1 = page->v1;
	}
	list_page_free(page);
	buf_release(&l.kept_token);
	buf_release(&l.kept_first);
	return r;
}
