/* Shared by the files of this folder. */
#ifndef DATASET_SOURCE_INTERNAL_H
#define DATASET_SOURCE_INTERNAL_H

#include <pthread.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "dataset/cache/cache.h"
#include "dataset/source/source.h"
#include "transfer/location.h"
#include "transfer/objects.h"

struct entry;
struct http_engine;

struct shard {
	uint64_t size;
	size_t name; /* offset in `text` */
	union {
		size_t etag; /* ETag of an object, as an offset in `text` */
		int64_t mtime_ns; /* time of a file */
	};
};

/* A compressed shard. */
struct packed {
	struct source_content content;
	/* Under the lock of the source. */
	char *data; /* the content; NULL if the shard is not unpacked */
	bool loading; /* a thread is unpacking the shard */
	unsigned readers;
	uint64_t used; /* clock of the source at the last read */
};

struct source {
	char *url; /* as given */
	struct object_client *client; /* for objects */
	struct http_engine *engine; /* for the web; both are NULL for local files */
	/* For source_after_fork(). */
	int (*open)(
		void *cookie, bool google, struct object_client **out, struct penstock_error *err);
	int (*open_web)(void *cookie, struct http_engine **out, struct penstock_error *err);
	void *cookie;
	bool google;
	char bucket[sizeof(((struct location *)NULL)->bucket)];
	/* prefix of the keys, or path of the directory; the whole key or path of a single shard */
	char *prefix;
	char *pattern; /* names of files in an HTTP URL, as given; "" for a directory */
	char *query; /* query of an HTTP URL: "?…", or "" */
	bool encode; /* names must be percent-encoded for URLs */
	bool single;
	atomic_bool any_version; /* versions are not compared: the caller verifies samples */
	bool opened; /* reads wait longer for an unavailable store */
	struct buf text;
	struct shard *shards;
	size_t n;
	bool borrowed; /* `text` and `shards` belong to an index */
	struct packed **packed; /* one for each shard; NULL if no shard is compressed */
	uint64_t room; /* bytes for the contents of compressed shards */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* Under the lock. */
	uint64_t unpacked; /* bytes of contents in memory, or reserved for contents */
	uint64_t clock;
	struct block_cache *cache; /* cache of objects; NULL if there is none */
	/* reads do not wait for blocks of other processes before this time */
	_Atomic int64_t no_wait_until_ms;
};

/* A file that stays open for the next read: a local file, for which `fd` and `shard` are used, or a
 * file of the cache. */
struct open_file {
	struct block_file file;
	unsigned used;
};

struct source_reader {
	struct source *source;
	struct object_reads *reads; /* for objects */
	struct open_file files[LIMIT_DATASET_FILES];
	unsigned clock;
	char *chunk; /* LIMIT_PLAIN_CHUNK: buffer for bytes of a file that go to pieces */
};

static inline bool source_is_local(const struct source *s)
{
	return !s->client && !s->engine;
}

/* list.c: appends a shard, with its time or its ETag. Names and ETags are in one text, so that a
 * million shards need only two blocks of memory. */
int source_add(struct source *s, const struct entry *entry, struct penstock_error *err);
void source_borrow(struct source *s, const struct source_list *list);
/* Copies the list of an index that was copied between a directory and a store. The versions in that
 * list do not apply to the copy, so versions are not compared. */
int source_adopt(struct source *s, const struct source_list *list, struct penstock_error *err);

/* web.c: finds the shards of an http:// or https:// URL. */
int source_open_web(struct source *s, const struct source_place *place, struct penstock_error *err);
/* Appends the URL of a shard. Returns -1 if the URL does not fit. */
int source_web_url(const struct source *s, const char *name, struct buf *out);
int source_web_get(const struct source *s, const char *name, const atomic_int *cancel,
	struct buf *out, struct penstock_error *err);

/* pattern.c: sets `out` to the texts that result if {FIRST..LAST} and {A,B} in `text` are replaced
 * with their values, at most LIMIT_DATASET_WEB texts. `url` is for messages. */
int source_expand(
	const char *url, const char *text, struct strlist *out, struct penstock_error *err);

/* source.c: takes the list of shards from an index. Returns 1 if there is an index, else 0. */
int source_listed(struct source *s, const struct source_place *place, struct penstock_error *err);

/* content.c: the compressed shards. */
void packed_init(struct source *s);
void packed_after_fork(struct source *s);
void packed_release(struct source *s);

/* reader.c: returns the open file of a shard, or a slot in which the caller opens the file. If
 * LIMIT_DATASET_FILES files are open, closes the least recently used file. */
struct block_file *source_file(struct source_reader *reader, size_t shard);
/* read.c: reads shards as they are stored; n > 0. */
int source_read_stored(struct source_reader *reader, struct source_read *reads, size_t n,
	const atomic_int *cancel, struct penstock_error *err);
/* objects.c: reads objects from the store. */
int source_read_objects(struct source_reader *reader, struct source_read *reads, size_t n,
	const atomic_int *cancel, struct penstock_error *err);
/* cached.c: reads objects from the cache, and fills the cache with missing blocks. */
int source_read_cached(struct source_reader *reader, struct source_read *reads, size_t n,
	const atomic_int *cancel, struct penstock_error *err);

#endif
