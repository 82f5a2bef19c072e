/* The objects below a prefix as a stream. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "transfer/list_page.h"
#include "transfer/listing_internal.h"
#include "base/banned.h"

struct object_source {
	struct entry_source source;
	struct object_source_options options;
	struct list_query query;
	char *bucket, *prefix;
	struct list_page *page;
	unsigned empty;
};

static int next_page(struct object_source *s, struct penstock_error *err)
{
	struct list_page *before = s->page;
	int r;

	s->page = NULL;
	s->query.token = before ? before->token : NULL;
	s->query.v1 = before && before->v1;
	r = list_page_fetch(&s->page, &s->query, err);
	list_page_free(before);
	if (r == 0) {
		s->empty = s->page->n ? 0 : s->empty + 1;
		if (s->empty > LIMIT_S3_EMPTY_PAGES)
			r = list_stuck(&s->query, err);
	}
	return r;
}

static bool give(struct object_source *s, const struct list_item *item, struct entry *entry)
{
	const char *key = s->page->text + item->key;
	size_t cut = s->options.cut;
	bool directory;

	if (item->key_len <= cut)
		return false;
	directory = key[item->key_len - 1] == '/';
	*entry = (struct entry){.path = key + cut,
		.path_len = item->key_len - cut,
		.kind = item->is_prefix ? ENTRY_PREFIX
			: directory	? ENTRY_DIRECTORY
					: ENTRY_FILE,
		.size = item->size,
		.mtime_ns = item->modified_ns,
		.key = key,
		.etag = s->page->text + item->etag};
	return !s->options.takes || s->options.takes(s->options.cookie, entry->path, directory);
}

static int objects_next(
	struct entry_source *source, struct entry *entry, struct penstock_error *err)
{
	struct object_source *s = (struct object_source *)source;

	for (;;) {
		while (s->page && s->page->at < s->page->n) {
			if (give(s, &s->page->items[s->page->at++], entry))
				return 1;
		}
		if (s->page && !s->page->token)
			return 0;
		int r = next_page(s, err);

		if (r < 0)
			return r;
	}
}

static void objects_free(struct entry_source *source)
{
	struct object_source *s = (struct object_source *)source;

	list_page_free(s->page);
	free(s->bucket);
	free(s->prefix);
	free(s);
}

int entry_source_objects(struct entry_source **out, struct object_client *client,
	const char *bucket, const char *prefix, const struct object_source_options *options,
	struct penstock_error *err)
{
	struct object_source *s = calloc(1, sizeof(*s));

	if (!s)
		return error_memory(err);
	s->source = (struct entry_source){objects_next, objects_free, 1};
	if (options)
		s->options = *options;
	s->bucket = strdup(bucket);
	s->prefix = strdup(prefix ? prefix : "");
	if (!s->bucket || !s->prefix) {
		objects_free(&s->source);
		return error_memory(err);
	}
	if (s->options.whole_keys)
		s->options.cut = 0;
	else if (!s->options.cut)
		s->options.cut = strlen(s->prefix);
	s->query = (struct list_query){.client = client,
		.bucket = s->bucket,
		.prefix = s->prefix,
		.delimiter = s->options.delimiter,
		.cancel = s->options.cancel};
	*out = &s->source;
	return 0;
}
