/*
 * Reads one object, one web resource or one file at any offset. Bytes after sequential reads are
 * read ahead, in the background and within a limit; other reads fetch exactly their bytes.
 *
 *	struct file_pool *pool = NULL;
 *	struct file_reader *file = NULL;
 *	size_t got;
 *
 *	r = file_pool_new(&pool, engine, err);
 *	if (r == 0)
 *		r = file_reader_open(&file, pool, &(struct file_options){.url = "s3://models/a.bin",
 *			.open = open_client, .open_cookie = library}, err);
 *	if (r == 0)
 *		r = file_reader_read(file, offset, data, size, &got, err);
 *	file_reader_free(file);
 *	file_pool_free(pool);
 *
 * All bytes are of the version that was opened; otherwise the read fails with PENSTOCK_E_CHANGED.
 * Of a local file, only the length is checked. Requests are retried by transfer/reads.h. Any number
 * of threads may read one file; a file does not survive fork().
 */
#ifndef TRANSFER_FILE_READER_H
#define TRANSFER_FILE_READER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct file_pool;
struct file_reader;
struct http_engine;
struct object_client;
struct penstock_error;

/* Creates a pool of threads that read for many files: at most LIMIT_FILE_THREADS, started when they
 * are needed. The engine is borrowed. Free all files before the pool. */
int file_pool_new(struct file_pool **out, struct http_engine *engine, struct penstock_error *err);
void file_pool_free(struct file_pool *pool);

struct file_options {
	const char *url; /* s3://…, gs://…, http(s)://…, or a local path */
	/* Gets the client for s3:// or gs://; the client outlives the file. */
	int (*open)(
		void *cookie, bool google, struct object_client **out, struct penstock_error *err);
	void *open_cookie; /* passed to `open`, only while the file is opened */
	/* Called every 100 ms by each thread that waits; true ends the call of that thread with
	 * PENSTOCK_E_CANCELLED. May be NULL. */
	bool (*stop)(void *cookie);
	void *cookie; /* passed to `stop` */
	const atomic_int *cancel; /* ends calls once it is non-zero; may be NULL */
	uint64_t ahead; /* bytes to read ahead, at most LIMIT_FILE_AHEAD_MAX; 0 for none */
	/* Opens only this version, else fails with PENSTOCK_E_CHANGED; NULL for the current
	 * version. */
	const char *version;
	/* With `version`: `size` is the size of that version, so opening the file sends no request.
	 * Ignored for a local file. */
	bool known;
	uint64_t size;
};

int file_reader_open(struct file_reader **out, struct file_pool *pool,
	const struct file_options *options, struct penstock_error *err);
/* Does not wait for read-ahead in flight. No other call on the file may be in progress. */
void file_reader_free(struct file_reader *file);
uint64_t file_reader_size(const struct file_reader *file);
/* Returns the ETag, the Last-Modified, or the time of a local file; valid as long as `file`. */
const char *file_reader_version(const struct file_reader *file);

/* Reads `size` bytes, or fewer if the file ends earlier. */
int file_reader_read(struct file_reader *file, uint64_t offset, void *data, size_t size,
	size_t *got, struct penstock_error *err);

struct file_range {
	uint64_t offset;
	size_t length;
	void *data;
};
/* Reads all ranges at the same time. Fails with PENSTOCK_E_INVALID if a range does not lie within
 * the file. */
int file_reader_ranges(struct file_reader *file, const struct file_range *ranges, size_t n,
	struct penstock_error *err);

#endif
