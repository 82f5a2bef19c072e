/*
 * The shards of a data set: files of a directory, or objects below a prefix, sorted by name, byte
 * by byte. Shards are numbered from 0.
 *
 *	struct source *source = NULL;
 *	struct source_reader *reader = NULL;	// one for each thread
 *
 *	r = source_open(&source, &(struct source_place){.url = "s3://cifar10/images/",
 *		.open = open_client, .cookie = library}, err);
 *	if (r == 0)
 *		r = source_reader_new(&reader, source, err);
 *	if (r == 0)
 *		r = source_read(reader, reads, n, cancel, err);
 *	source_reader_free(reader);
 *	source_free(source);
 *
 * A URL that ends in "/", names a directory, or names no object, is a prefix: all files or objects
 * below the prefix are shards, except hidden names and objects whose keys end in "/". Any other URL
 * names one shard. A read of a shard that was replaced or truncated after source_open() fails with
 * PENSTOCK_E_CHANGED.
 *
 * HTTP cannot list files. An HTTP URL names one shard, or several shards by {000..099} and {A,B} in
 * its path; a URL that ends in "/" or "/index.json" is a directory whose index names the shards.
 */
#ifndef DATASET_SOURCE_SOURCE_H
#define DATASET_SOURCE_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <penstock/error.h>

#include "base/clock.h"
#include "s3/sum/checksum.h"
#include "transfer/reads.h"

struct buf;
struct http_engine;
struct object_client;
struct source;
struct source_reader;
struct strlist;

/* A shard in a list. A list is written to a file exactly as it is in memory. */
struct source_entry {
	uint64_t size;
	uint64_t name; /* offset in the text */
	union {
		uint64_t etag; /* ETag of an object, as an offset in the text */
		int64_t mtime_ns; /* time of a file */
	};
};

/* Returns the modification time of a file in ns, for `source_entry.mtime_ns`. */
static inline int64_t source_mtime_ns(const struct stat *st)
{
	return st->st_mtim.tv_sec * NS_PER_S + st->st_mtim.tv_nsec;
}

/* The list of shards, sorted by name, byte by byte. */
struct source_list {
	bool objects; /* shards have ETags instead of times */
	size_t n;
	const struct source_entry *entries;
	const char *text; /* names and ETags, each with a NUL */
	size_t text_len;
};

struct source_place {
	const char *url; /* s3://…, gs://…, http(s)://…, or a local path */
	/* Gets the client for s3:// or gs://. The client must outlive the source.
	 * source_after_fork() calls open() again. */
	int (*open)(
		void *cookie, bool google, struct object_client **out, struct penstock_error *err);
	/* Like open(), for the engine of http:// and https://. */
	int (*open_web)(void *cookie, struct http_engine **out, struct penstock_error *err);
	void *cookie;
	const atomic_int *cancel; /* cancels source_open(); may be NULL */
	const char *cache; /* directory of the cache of objects; NULL if there is no cache */
	uint64_t cache_size; /* bytes; half of the file system if 0 */
	/* Called for a prefix: returns 1 if `out` is the list of the shards, which must live as
	 * long as the source, or 0 if the shards have to be listed. May be NULL. */
	int (*listed)(void *cookie, const struct source *source, struct source_list *out,
		struct penstock_error *err);
	/* Called for a directory on the web if listed() has no list: adds the names of the
	 * directory's files to `out`, if the names are known. May be NULL. */
	int (*named)(void *cookie, const struct source *source, struct strlist *out,
		struct penstock_error *err);
	void *listed_cookie; /* for listed() and named() */
};

/* Fails with PENSTOCK_E_NOT_FOUND if there is no shard, and with PENSTOCK_E_LIMIT if there are more
 * than LIMIT_DATASET_SHARDS. */
int source_open(struct source **out, const struct source_place *place, struct penstock_error *err);
void source_free(struct source *source);

const char *source_url(const struct source *source);
/* Returns true for http:// and https://, to which nothing can be written. */
bool source_is_web(const struct source *source);
/* Returns true if the URL names one shard. */
bool source_is_single(const struct source *source);
/* Returns the list of shards, which the source owns. */
struct source_list source_list(const struct source *source);
/* Returns true if two lists have the same shards in the same versions. */
bool source_list_equal(struct source_list a, struct source_list b);
/* Returns a text that identifies the place in files that other processes share: endpoint, bucket
 * and prefix of objects, the HTTP URL, or the real path of a directory or file. The caller frees
 * the text. Returns NULL if out of memory, or if the path cannot be resolved. */
char *source_identity(const struct source *source);
/* Appends the content of the file or object `name` below the prefix. Fails with
 * PENSTOCK_E_NOT_FOUND if it is missing. */
int source_get(const struct source *source, const char *name, const atomic_int *cancel,
	struct buf *out, struct penstock_error *err);
/* Replaces the file or object `name` below the prefix as a whole. Fails with PENSTOCK_E_INVALID if
 * the URL names one shard, or is http(s)://. */
int source_put(const struct source *source, const char *name, const void *data, size_t len,
	const atomic_int *cancel, struct penstock_error *err);
size_t source_count(const struct source *source);
/* Returns the name of a shard relative to the URL, or the last component of the URL of a single
 * shard. Valid as long as the source. */
const char *source_name(const struct source *source, size_t shard);
/* Returns the size of a shard in bytes, or the size of its content if the shard is compressed. */
uint64_t source_size(const struct source *source, size_t shard);
/* Returns the number of the shard with this name, or SIZE_MAX if there is none. */
size_t source_find(const struct source *source, const char *name);

/* ---- compressed shards ---- */

enum source_packing { SOURCE_GZIP, SOURCE_ZSTD };

struct source_sum {
	enum checksum_kind kind; /* CHECKSUM_NONE if the checksum is not known */
	uint8_t digest[CHECKSUM_MAX_SIZE];
};

struct source_content {
	enum source_packing packing;
	uint64_t size; /* bytes of the content */
	/* checksums of the shard as it is stored, and of its content */
	struct source_sum stored, unpacked;
};

/* Declares that a shard is compressed: from now on reads and sizes refer to its content. The first
 * read fetches and unpacks the whole shard; the content stays in memory until other shards need the
 * room (LIMIT_DATASET_UNPACKED). Must be called before other threads read. Fails with
 * PENSTOCK_E_LIMIT if the shard or its content is larger than LIMIT_DATASET_PACKED, but with
 * PENSTOCK_E_CORRUPT if only the content of a gzip file is larger. */
int source_unpack(struct source *source, size_t shard, const struct source_content *content,
	struct penstock_error *err);
/* Returns true if some shards are compressed. */
bool source_is_packed(const struct source *source);

/* ---- reading ---- */

/* A range, which must be inside its shard. */
struct source_read {
	size_t shard;
	uint64_t offset;
	size_t length;
	void *data; /* gets `length` bytes; borrowed; NULL if `pieces` get them */
	/* Unpacks a compressed shard no further than needed, and does not fill the cache. Requires
	 * `data`. */
	bool scan;
	struct read_pieces pieces;
	struct penstock_error error; /* set by source_read(); the caller releases it */
};

/* Call this function once when the data set is open: from then on reads wait
 * LIMIT_READS_PATIENCE_MS for an unavailable store, instead of LIMIT_OPEN_PATIENCE_MS. */
void source_opened(struct source *source);
/* From now on a shard of another version and the same size is not an error, since the caller
 * verifies each sample. Does nothing for a source on the web. */
void source_accept_versions(struct source *source);
bool source_accepts_versions(const struct source *source);
/* Call this function once in a child after fork(): the readers of the child need another client. */
int source_after_fork(struct source *source, struct penstock_error *err);
/* Creates a reader, which one thread at a time may use. A child after fork() creates its own
 * reader. */
int source_reader_new(
	struct source_reader **out, struct source *source, struct penstock_error *err);
void source_reader_free(struct source_reader *reader);
/* Closes the file of a shard that will not be read again soon. */
void source_reader_close(struct source_reader *reader, size_t shard);
/* Reads all ranges. After a failure, some of the remaining ranges are not tried, and fail with
 * PENSTOCK_E_CANCELLED. Returns the number of failed ranges, whose `error` has the reason, or a
 * negative error of the call. */
int source_read(struct source_reader *reader, struct source_read *reads, size_t n,
	const atomic_int *cancel, struct penstock_error *err);

#endif
