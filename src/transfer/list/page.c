#include "transfer/list/page.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "s3/message/messages.h"
#include "transfer/client/internal.h"

void list_page_free(struct list_page *page)
{
	if (!page)
		return;
	free(page->token);
	free(page);
}

static int not_below(const struct list_query *q, const char *key, struct penstock_error *err)
{
	return object_error(err, PENSTOCK_E_PROTOCOL, "GET", q->at,
		"the store lists '%s', which is not below the requested '%s'", key, q->at.key);
}

int list_stuck(const struct list_query *q, struct penstock_error *err)
{
	return object_error(err, PENSTOCK_E_PROTOCOL, "GET", q->at,
		"the store's listing makes no progress: it repeats entries");
}

/* Callers rely on each name being below the prefix. */
static int check_names(
	const struct list_query *q, const struct s3_list *list, struct penstock_error *err)
{
	const char *prefix = q->at.key ? q->at.key : "";

	for (size_t i = 0; i < list->n_entries; i++) {
		if (!str_starts(list->entries[i].key, prefix))
			return not_below(q, list->entries[i].key, err);
	}
	for (size_t i = 0; i < list->n_prefixes; i++) {
		if (!str_starts(list->prefixes[i], prefix))
			return not_below(q, list->prefixes[i], err);
	}
	return 0;
}

static const char *next_token(const struct s3_list *list, bool *v1)
{
	const char *last_entry = list->n_entries ? list->entries[list->n_entries - 1].key : NULL;
	const char *last_prefix = list->n_prefixes ? list->prefixes[list->n_prefixes - 1] : NULL;

	*v1 = false;
	if (!list->truncated)
		return NULL;
	if (list->next_continuation_token)
		return list->next_continuation_token;
	*v1 = true;
	if (list->next_marker)
		return list->next_marker;
	if (last_entry && last_prefix)
		return strcmp(last_entry, last_prefix) > 0 ? last_entry : last_prefix;
	return last_entry ? last_entry : last_prefix;
}

/* ---- the page ---- */

static size_t text_size(const struct s3_list *list)
{
	size_t size = 1;

	for (size_t i = 0; i < list->n_entries; i++)
		size += strlen(list->entries[i].key) + 1 +
			(list->entries[i].etag ? strlen(list->entries[i].etag) + 3 : 0);
	for (size_t i = 0; i < list->n_prefixes; i++)
		size += strlen(list->prefixes[i]) + 1;
	return size;
}

static void add_key(struct list_page *page, struct list_item *item, const char *key, size_t *at)
{
	item->key = (uint32_t)*at;
	item->key_len = (uint32_t)strlen(key);
	memcpy(page->text + *at, key, item->key_len + 1);
	*at += item->key_len + 1;
}

static void add_entry(struct list_page *page, const struct s3_list_entry *e, size_t *at)
{
	struct list_item *item = &page->items[page->n++];
	char etag[OBJECT_ETAG_SIZE];
	size_t len;

	*item = (struct list_item){.size = e->size, .modified_ns = e->modified_ns};
	add_key(page, item, e->key, at);
	object_etag_copy(etag, e->etag);
	len = strlen(etag);
	if (len) {
		item->etag = (uint32_t)*at;
		memcpy(page->text + *at, etag, len + 1);
		*at += len + 1;
	}
}

/* Compares the last item with the previous one, and drops a duplicate. */
static void check_order(struct list_page *page)
{
	const struct list_item *last = &page->items[page->n - 1];
	int order = page->n < 2 ? -1 : strcmp(page->text + last[-1].key, page->text + last->key);

	if (order == 0 && last[-1].is_prefix == last->is_prefix)
		page->n--;
	else if (order >= 0)
		page->sorted = false;
}

/* Keys and common prefixes arrive as two sorted lists; merge them in byte order. */
static struct list_page *page_make(const struct s3_list *list)
{
	size_t n = list->n_entries + list->n_prefixes;
	size_t text = text_size(list);
	size_t bytes = sizeof(struct list_page) + n * sizeof(struct list_item) + text;
	struct list_page *page = malloc(bytes);
	size_t e = 0, p = 0, at = 1;

	if (!page)
		return NULL;
	*page = (struct list_page){.bytes = bytes, .sorted = true};
	page->text = (char *)(page->items + n);
	page->text[0] = '\0';
	while (e < list->n_entries || p < list->n_prefixes) {
		if (p == list->n_prefixes ||
			(e < list->n_entries &&
				strcmp(list->entries[e].key, list->prefixes[p]) < 0))
			add_entry(page, &list->entries[e++], &at);
		else {
			struct list_item *item = &page->items[page->n++];

			*item = (struct list_item){.is_prefix = true};
			add_key(page, item, list->prefixes[p++], &at);
		}
		check_order(page);
	}
	return page;
}

int list_page_fetch(
	struct list_page **out, const struct list_query *query, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	_cleanup_(s3_list_release) struct s3_list list = {0};
	struct list_page *page;
	const char *token;
	bool v1;
	int r;

	s3_op_init(&op, "GET", object_at(query->at.client, query->at.bucket, NULL));
	s3_op_query(&op, "list-type", "2");
	s3_op_query(&op, "encoding-type", "url");
	if (query->at.key && *query->at.key)
		s3_op_query(&op, "prefix", query->at.key);
	if (query->delimiter && *query->delimiter)
		s3_op_query(&op, "delimiter", query->delimiter);
	if (query->token)
		s3_op_query(&op, query->v1 ? "marker" : "continuation-token", query->token);
	else if (query->after)
		s3_op_query(&op, query->v1 ? "marker" : "start-after", query->after);
	s3_op_cancel(&op, query->cancel);
	r = s3_op_read(&op, s3_list_parse, &list, err);
	if (r == 0)
		r = check_names(query, &list, err);
	if (r < 0)
		return r;
	page = page_make(&list);
	if (!page)
		return error_memory(err);
	token = next_token(&list, &v1);
	page->v1 = query->v1 || v1;
	page->token = token ? strdup(token) : NULL;
	if (token ? !page->token : list.truncated) {
		list_page_free(page);
		/* If a truncated page without a token counted as the last one, the objects after it
		 * would look missing, and a sync would delete them at its target. */
		return token ? error_memory(err)
			     : object_error(err, PENSTOCK_E_PROTOCOL, "GET", query->at,
				       "the store's listing is truncated without a token to "
				       "continue");
	}
	*out = page;
	return 0;
}
