#include "store/internal.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/must.h"

/*
 * Cache of snapshots of recently read objects, by bucket and key. The cache has shards, so that
 * event loops do not block each other.
 *
 * A stale entry must never outlive the change that made it stale. The committer calls cache_touch()
 * for a key before its transaction commits, and cache_settle() afterwards; between the two calls
 * the shard accepts no entries. A reader that read before the change has a ticket of an older
 * generation, which the shard rejects. So a listing and a GET never contradict each other.
 */
#define SHARD_BUCKETS 1024

struct entry {
	struct entry *chain;
	struct entry *newer, *older;
	uint64_t hash;
	struct store_object *object;
	size_t cost;
	size_t bucket_len;
	char name[]; /* bucket NUL key NUL */
};

struct shard {
	pthread_mutex_t lock;
	struct entry *table[SHARD_BUCKETS];
	struct entry *newest; /* the entries form a ring: `newest->newer` is the oldest entry */
	size_t n, cost;
	uint64_t generation;
	unsigned busy;
};

struct cache {
	struct shard shards[CACHE_SHARDS];
};

int cache_new(struct cache **out, struct penstock_error *err)
{
	struct cache *cache = calloc(1, sizeof(*cache));

	if (!cache)
		return error_memory(err);
	for (size_t i = 0; i < CACHE_SHARDS; i++)
		pthread_mutex_init(&cache->shards[i].lock, NULL);
	*out = cache;
	return 0;
}

/* FNV-1a over both names. */
static uint64_t name_hash(const char *bucket, const char *key)
{
	uint64_t h = UINT64_C(14695981039346656037);

	for (const char *p = bucket; *p; p++)
		h = (h ^ (unsigned char)*p) * UINT64_C(1099511628211);
	h *= UINT64_C(1099511628211);
	for (const char *p = key; *p; p++)
		h = (h ^ (unsigned char)*p) * UINT64_C(1099511628211);
	return h ^ (h >> 29);
}

static struct shard *shard_of(struct cache *cache, uint64_t hash)
{
	return &cache->shards[hash % CACHE_SHARDS];
}

static struct entry **slot_of(struct shard *shard, uint64_t hash)
{
	return &shard->table[(hash / CACHE_SHARDS) % SHARD_BUCKETS];
}

/* Takes an entry out; the caller frees it after releasing the lock. */
static void shard_detach(struct shard *shard, struct entry *e)
{
	struct entry **at = slot_of(shard, e->hash);

	while (*at != e)
		at = &(*at)->chain;
	*at = e->chain;
	DL_DELETE2(shard->newest, e, newer, older);
	MUST(shard->cost >= e->cost);
	shard->n--;
	shard->cost -= e->cost;
}

static void entry_free(struct entry *e)
{
	if (e)
		store_object_unref(e->object);
	free(e);
}

/* Frees a chain of detached entries. */
static void entries_free(struct entry *e)
{
	while (e) {
		struct entry *next = e->chain;

		entry_free(e);
		e = next;
	}
}

static struct entry *shard_find(
	struct shard *shard, uint64_t hash, const char *bucket, const char *key)
{
	struct entry *e = *slot_of(shard, hash);

	while (e && !(e->hash == hash && strcmp(e->name, bucket) == 0 &&
			    strcmp(e->name + e->bucket_len + 1, key) == 0))
		e = e->chain;
	return e;
}

void cache_free(struct cache *cache)
{
	if (!cache)
		return;
	for (size_t i = 0; i < CACHE_SHARDS; i++) {
		struct shard *shard = &cache->shards[i];
		struct entry *e;

		while ((e = shard->newest) != NULL) {
			shard_detach(shard, e);
			entry_free(e);
		}
		pthread_mutex_destroy(&shard->lock);
	}
	free(cache);
}

struct store_object *cache_get(
	struct cache *cache, const char *bucket, const char *key, uint64_t *ticket)
{
	uint64_t hash = name_hash(bucket, key);
	struct shard *shard;
	struct entry *e;

	*ticket = 0;
	if (!cache)
		return NULL;
	shard = shard_of(cache, hash);
	LOCK_SCOPE(&shard->lock);
	*ticket = shard->generation;
	e = shard_find(shard, hash, bucket, key);
	if (!e)
		return NULL;
	if (shard->newest != e) {
		DL_DELETE2(shard->newest, e, newer, older);
		DL_PREPEND2(shard->newest, e, newer, older);
	}
	return store_object_ref(e->object);
}

static struct entry *entry_new(
	const char *bucket, const char *key, uint64_t hash, struct store_object *object)
{
	size_t bucket_len = strlen(bucket), key_len = strlen(key);
	struct entry *e = malloc(sizeof(*e) + bucket_len + key_len + 2);

	if (!e)
		return NULL;
	e->hash = hash;
	e->bucket_len = bucket_len;
	memcpy(e->name, bucket, bucket_len + 1);
	memcpy(e->name + bucket_len + 1, key, key_len + 1);
	e->cost = sizeof(*e) + bucket_len + key_len + object->memory +
		  object->n_pieces * sizeof(struct store_blob);
	e->object = store_object_ref(object);
	return e;
}

void cache_put(struct cache *cache, const char *bucket, const char *key, uint64_t ticket,
	struct store_object *object)
{
	uint64_t hash = name_hash(bucket, key);
	struct entry *e = cache ? entry_new(bucket, key, hash, object) : NULL;
	struct entry *evicted = NULL;
	struct shard *shard;

	if (!e)
		return; /* out of memory, or no cache: the object is not cached */
	shard = shard_of(cache, hash);
	pthread_mutex_lock(&shard->lock);
	if (e->cost > LIMIT_STORE_CACHE_BYTES / CACHE_SHARDS || shard->busy ||
		shard->generation != ticket || shard_find(shard, hash, bucket, key)) {
		pthread_mutex_unlock(&shard->lock);
		entry_free(e);
		return;
	}
	e->chain = *slot_of(shard, hash);
	*slot_of(shard, hash) = e;
	DL_PREPEND2(shard->newest, e, newer, older);
	shard->n++;
	shard->cost += e->cost;
	while (shard->n > LIMIT_STORE_CACHE_ENTRIES / CACHE_SHARDS ||
		shard->cost > LIMIT_STORE_CACHE_BYTES / CACHE_SHARDS) {
		struct entry *old = shard->newest->newer;

		shard_detach(shard, old);
		old->chain = evicted;
		evicted = old;
	}
	pthread_mutex_unlock(&shard->lock);
	entries_free(evicted);
}

void cache_touch(struct cache *cache, const char *bucket, const char *key)
{
	uint64_t hash = name_hash(bucket, key);
	struct shard *shard = shard_of(cache, hash);
	struct entry *e;

	pthread_mutex_lock(&shard->lock);
	shard->busy++;
	e = shard_find(shard, hash, bucket, key);
	if (e)
		shard_detach(shard, e);
	pthread_mutex_unlock(&shard->lock);
	entry_free(e);
}

void cache_touch_all(struct cache *cache, const char *bucket)
{
	for (size_t i = 0; i < CACHE_SHARDS; i++) {
		struct shard *shard = &cache->shards[i];
		struct entry *e, *next, *gone = NULL;

		pthread_mutex_lock(&shard->lock);
		shard->busy++;
		DL_FOREACH_SAFE2(shard->newest, e, next, older)
		{
			if (bucket && strcmp(e->name, bucket) != 0)
				continue;
			shard_detach(shard, e);
			e->chain = gone;
			gone = e;
		}
		pthread_mutex_unlock(&shard->lock);
		entries_free(gone);
	}
}

static void shard_settle(struct shard *shard)
{
	LOCK_SCOPE(&shard->lock);
	MUST(shard->busy > 0);
	shard->busy--;
	shard->generation++;
}

void cache_settle(struct cache *cache, const char *bucket, const char *key)
{
	shard_settle(shard_of(cache, name_hash(bucket, key)));
}

void cache_settle_all(struct cache *cache)
{
	for (size_t i = 0; i < CACHE_SHARDS; i++)
		shard_settle(&cache->shards[i]);
}
