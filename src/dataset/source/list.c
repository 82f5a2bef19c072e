/* The list of shards. */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/limits.h"
#include "dataset/source/internal.h"
#include "transfer/listing.h"

_Static_assert(sizeof(struct shard) == sizeof(struct source_entry) &&
		       offsetof(struct shard, size) == offsetof(struct source_entry, size) &&
		       offsetof(struct shard, name) == offsetof(struct source_entry, name) &&
		       offsetof(struct shard, etag) == offsetof(struct source_entry, etag) &&
		       offsetof(struct shard, mtime_ns) == offsetof(struct source_entry, mtime_ns),
	"a list is used as an array of shards");

int source_add(struct source *s, const struct entry *entry, struct penstock_error *err)
{
	struct shard *grown;

	if (s->n == LIMIT_DATASET_SHARDS)
		return error_set(err, PENSTOCK_E_LIMIT,
			"cannot open '%s': it has more than %d objects; pack them into shards",
			s->url, LIMIT_DATASET_SHARDS);
	grown = array_grow(s->shards, s->n, sizeof(*grown));
	if (!grown)
		return error_memory(err);
	s->shards = grown;
	s->shards[s->n] = (struct shard){
		.size = entry->size, .name = s->text.len, .mtime_ns = entry->mtime_ns};
	buf_add_str(&s->text, entry->path);
	buf_add_char(&s->text, '\0');
	if (!source_is_local(s)) {
		s->shards[s->n].etag = s->text.len;
		buf_add_str(&s->text, entry->etag ? entry->etag : "");
		buf_add_char(&s->text, '\0');
	}
	s->n++;
	return buf_failed(&s->text) ? buf_error(&s->text, "the list of shards", err) : 0;
}

void source_borrow(struct source *s, const struct source_list *list)
{
	s->borrowed = true;
	s->n = list->n;
	s->shards = (struct shard *)(uintptr_t)list->entries;
	s->text.data = (char *)(uintptr_t)list->text;
	s->text.len = list->text_len;
}

int source_adopt(struct source *s, const struct source_list *list, struct penstock_error *err)
{
	char version[32];
	int r = 0;

	for (size_t i = 0; r == 0 && i < list->n; i++) {
		const struct source_entry *e = &list->entries[i];

		/* Make an ETag for each shard, because a file of the cache belongs to one version
		 * of a shard. */
		snprintf(version, sizeof(version), "\"copy-%" PRIx64 "\"",
			list->objects ? 0 : (uint64_t)e->mtime_ns);
		r = source_add(s,
			&(struct entry){
				.path = list->text + e->name, .size = e->size, .etag = version},
			err);
	}
	source_accept_versions(s);
	return r;
}

void source_accept_versions(struct source *s)
{
	if (!s->engine)
		atomic_store(&s->any_version, true);
}

bool source_accepts_versions(const struct source *s)
{
	return atomic_load(&s->any_version);
}

bool source_is_web(const struct source *s)
{
	return s->engine != NULL;
}

struct source_list source_list(const struct source *s)
{
	return (struct source_list){.objects = !source_is_local(s),
		.n = s->n,
		.entries = (const void *)s->shards,
		.text = s->text.data,
		.text_len = s->text.len};
}

bool source_list_equal(struct source_list a, struct source_list b)
{
	return a.objects == b.objects && a.n == b.n && a.text_len == b.text_len &&
	       memcmp(a.text, b.text, a.text_len) == 0 &&
	       memcmp(a.entries, b.entries, a.n * sizeof(*a.entries)) == 0;
}

size_t source_count(const struct source *s)
{
	return s->n;
}

const char *source_name(const struct source *s, size_t shard)
{
	return s->text.data + s->shards[shard].name;
}

size_t source_find(const struct source *s, const char *name)
{
	size_t low = 0, high = s->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(name, source_name(s, middle));

		if (order == 0)
			return middle;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return SIZE_MAX;
}
