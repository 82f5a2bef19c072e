/* The objects below a prefix as a stream. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "transfer/client/internal.h"
#include "transfer/list/ranges.h"
#include "transfer/list/sort.h"
#include "transfer/list/listing_internal.h"

#define DEFAULT_PARALLEL 8

/* Manner of listing, with a fallback to the next one if the store does not support it. */
enum manner {
	IN_RANGES, /* several ranges of keys at a time */
	IN_A_CHAIN, /* one page after another, read ahead */
	SORTED_HERE /* everything is sorted before the first entry is returned */
};

struct object_source {
	struct entry_source source;
	struct object_source_options options;
	struct list_query query;
	char *bucket, *prefix;
	enum manner manner;
	struct list_ranges *ranges;
	struct list_page *page;
	struct list_sorter *sorter;
	struct buf before; /* the key that the sorter returned last */
	/* Keys that were returned before a fallback are not returned again. */
	struct buf last;
	uint64_t given; /* number of keys listed so far, even if filtered out */
	bool again; /* skipping keys up to `last` */
	uint64_t passed; /* number of skipped keys */
	struct penstock_error error; /* error of on_listed() */
};

/* ---- falling back ---- */

static int on_listed(void *cookie, const struct object_info *info)
{
	struct object_source *s = cookie;
	const struct entry entry = {.path = info->key,
		.kind = info->is_prefix ? ENTRY_PREFIX : ENTRY_FILE,
		.size = info->size,
		.mtime_ns = info->modified_ns,
		.key = info->key,
		.etag = info->etag};

	return list_sorter_add_entry(s->sorter, &entry, &s->error) < 0;
}

static int begin(struct object_source *s, enum manner manner, struct penstock_error *err)
{
	const struct list_query *q = &s->query;
	int r;

	list_ranges_free(s->ranges);
	s->ranges = NULL;
	s->manner = manner;
	s->again = s->given > 0;
	s->passed = 0;
	if (manner != SORTED_HERE)
		return list_ranges_new(
			&s->ranges, q, manner == IN_RANGES ? s->options.parallel : 1, err);
	r = list_sorter_new(&s->sorter, LIMIT_LIST_AHEAD / 2, err);
	if (r == 0)
		r = object_list(q->at, q->delimiter, on_listed, s, q->cancel, err);
	if (r == 0 && s->error.code)
		r = error_move(err, &s->error);
	return r == 0 ? list_sorter_seal(s->sorter, err) : r;
}

/* Checks, once all keys that were returned earlier have been skipped, that their number is the
 * same. */
static int check_passed(struct object_source *s, struct penstock_error *err)
{
	if (!s->again || s->manner != SORTED_HERE || s->passed == s->given)
		return 0;
	return object_error(err, PENSTOCK_E_PROTOCOL, "GET", s->query.at,
		"the store's listing is unsorted, which was detected too late; try again");
}

/* Returns 1 if the key is new, 0 if it was returned before the fallback, or a negative error if
 * this cannot be decided, because the store's listing is unsorted. */
static int is_new(struct object_source *s, const char *key, struct penstock_error *err)
{
	int r;

	if (!s->again)
		return 1;
	if (strcmp(key, buf_str(&s->last)) <= 0) {
		s->passed++;
		return 0;
	}
	r = check_passed(s, err);
	s->again = false;
	return r < 0 ? r : 1;
}

/* ---- the stream ---- */

/* Returns 1 if there is a page, 0 after the last. */
static int next_page(struct object_source *s, struct penstock_error *err)
{
	const struct list_page *page = s->page;
	int r = 0;

	/* Keep the last key, because a later page may force a fallback. */
	if (page && page->n && !s->again) {
		buf_clear(&s->last);
		if (buf_add_str(&s->last, list_page_key(page, page->n - 1)) < 0)
			return buf_error(&s->last, "a key", err);
	}
	list_page_free(s->page);
	s->page = NULL;
	while (r == 0) {
		r = list_ranges_next(s->ranges, &s->page, err);
		if (r != LIST_RANGES_NO_START && r != LIST_RANGES_DISORDER)
			return r;
		s->query.after = NULL;
		r = begin(s, r == LIST_RANGES_NO_START ? IN_A_CHAIN : SORTED_HERE, err);
		if (r == 0 && s->sorter)
			return 0;
	}
	return r;
}

/* Returns 1 if there is a key, filtered or not, 0 at the end. */
static int next_listed(struct object_source *s, struct entry *entry, struct penstock_error *err)
{
	const struct list_item *item;
	int r;

	while (!s->page || s->page->at == s->page->n) {
		r = next_page(s, err);
		if (r <= 0)
			return r;
	}
	item = &s->page->items[s->page->at++];
	*entry = (struct entry){.kind = item->is_prefix ? ENTRY_PREFIX : ENTRY_FILE,
		.key = s->page->text + item->key,
		.path_len = item->key_len,
		.size = item->size,
		.mtime_ns = item->modified_ns,
		.etag = s->page->text + item->etag};
	return 1;
}

static int next_sorted(struct object_source *s, struct entry *entry, struct penstock_error *err)
{
	int r;

	/* A store whose listing is unsorted may list a key twice. */
	do {
		r = list_sorter_next_entry(s->sorter, entry, err);
	} while (r > 0 && s->before.len && strcmp(entry->key, buf_str(&s->before)) == 0);
	if (r <= 0)
		return r;
	buf_clear(&s->before);
	return buf_add(&s->before, entry->key, entry->path_len) < 0
		       ? buf_error(&s->before, "a key", err)
		       : 1;
}

/* Cuts the path out of the key. Returns false if the path is empty or filtered out. */
static bool is_wanted(const struct object_source *s, struct entry *entry)
{
	size_t cut = s->options.cut;
	bool directory;

	if (entry->path_len <= cut ||
		(s->options.after && strcmp(entry->key, s->options.after) <= 0))
		return false;
	directory = entry->key[entry->path_len - 1] == '/';
	entry->path = entry->key + cut;
	entry->path_len -= cut;
	if (directory && entry->kind == ENTRY_FILE)
		entry->kind = ENTRY_DIRECTORY;
	return !s->options.takes || s->options.takes(s->options.cookie, entry->path, directory);
}

static int objects_next(
	struct entry_source *source, struct entry *entry, struct penstock_error *err)
{
	struct object_source *s = (struct object_source *)source;
	int r = s->ranges || s->sorter ? 0 : begin(s, s->manner, err);

	while (r == 0) {
		if (!s->sorter)
			r = next_listed(s, entry, err);
		if (r == 0 && s->sorter)
			r = next_sorted(s, entry, err);
		if (r <= 0)
			return r < 0 ? r : check_passed(s, err);
		r = is_new(s, entry->key, err);
		if (r <= 0)
			continue;
		s->given++;
		r = is_wanted(s, entry);
	}
	return r;
}

static void objects_free(struct entry_source *source)
{
	struct object_source *s = (struct object_source *)source;

	list_page_free(s->page);
	list_ranges_free(s->ranges);
	list_sorter_free(s->sorter);
	buf_release(&s->last);
	buf_release(&s->before);
	penstock_error_release(&s->error);
	free(s->bucket);
	free(s->prefix);
	free(s);
}

int entry_source_objects(struct entry_source **out, struct object_ref at,
	const struct object_source_options *options, struct penstock_error *err)
{
	struct object_source *s = calloc(1, sizeof(*s));

	if (!s)
		return error_memory(err);
	s->source = (struct entry_source){objects_next, objects_free, 1};
	if (options)
		s->options = *options;
	s->bucket = strdup(at.bucket);
	s->prefix = strdup(at.key ? at.key : "");
	if (!s->bucket || !s->prefix) {
		objects_free(&s->source);
		return error_memory(err);
	}
	if (s->options.whole_keys)
		s->options.cut = 0;
	else if (!s->options.cut)
		s->options.cut = strlen(s->prefix);
	if (!s->options.parallel)
		s->options.parallel = DEFAULT_PARALLEL;
	if (s->options.delimiter && *s->options.delimiter)
		s->options.parallel = 1;
	s->manner = s->options.parallel > 1 ? IN_RANGES : IN_A_CHAIN;
	buf_init(&s->last, LIMIT_STRING);
	buf_init(&s->before, LIMIT_STRING);
	s->query = (struct list_query){.at = object_at(at.client, s->bucket, s->prefix),
		.delimiter = s->options.delimiter,
		.after = s->options.after,
		.cancel = s->options.cancel};
	*out = &s->source;
	return 0;
}
