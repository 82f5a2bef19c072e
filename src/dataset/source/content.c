/* The compressed shards of a source, and their contents in memory. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "dataset/source/internal.h"

void packed_init(struct source *s)
{
	s->room = LIMIT_DATASET_UNPACKED;
	pthread_mutex_init(&s->lock, NULL);
	clock_cond_init(&s->changed);
}

/* The lock is initialized again, because a thread of the parent may have held it. Contents that
 * were unpacked before stay in memory. */
void packed_after_fork(struct source *s)
{
	packed_init(s);
	s->unpacked = 0;
	for (size_t i = 0; s->packed && i < s->n; i++) {
		struct packed *p = s->packed[i];

		if (!p)
			continue;
		p->loading = false;
		p->readers = 0;
		s->unpacked += p->data ? p->content.size : 0;
	}
}

void packed_release(struct source *s)
{
	for (size_t i = 0; s->packed && i < s->n; i++) {
		if (s->packed[i])
			free(s->packed[i]->data);
		free(s->packed[i]);
	}
	free(s->packed);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
}

int source_unpack(struct source *s, size_t shard, const struct source_content *content,
	struct penstock_error *err)
{
	if (content->size > LIMIT_DATASET_PACKED || s->shards[shard].size > LIMIT_DATASET_PACKED)
		return error_set(err,
			content->packing == SOURCE_GZIP &&
					s->shards[shard].size <= LIMIT_DATASET_PACKED
				? PENSTOCK_E_CORRUPT
				: PENSTOCK_E_LIMIT,
			"cannot read '%s' of '%s': it is compressed, and has more than %zu MiB%s; "
			"write smaller shards",
			s->text.data + s->shards[shard].name, s->url,
			(size_t)(LIMIT_DATASET_PACKED / MIB),
			content->packing == SOURCE_GZIP ? ", or its end is missing" : "");
	if (!s->packed)
		s->packed = calloc(s->n, sizeof(struct packed *));
	if (!s->packed)
		return error_memory(err);
	if (!s->packed[shard])
		s->packed[shard] = calloc(1, sizeof(**s->packed));
	if (!s->packed[shard])
		return error_memory(err);
	s->packed[shard]->content = *content;
	return 0;
}

bool source_is_packed(const struct source *s)
{
	return s->packed != NULL;
}

uint64_t source_size(const struct source *s, size_t shard)
{
	return s->packed && s->packed[shard] ? s->packed[shard]->content.size
					     : s->shards[shard].size;
}
