/*
 * Many reads of objects and of ranges into the caller's memory, as samples of a training need them.
 *
 *	struct object_reads *reads = NULL;
 *	struct object_read batch[256];	// each with key, offset, length and data
 *
 *	r = reads_new(&reads, s3, "cifar10", err);
 *	if (r == 0)
 *		r = reads_run(reads, batch, 256, cancel, err);
 *	reads_free(reads);
 *
 * A store that speaks plain HTTP is read on connections of the calling thread (net/plain), which
 * costs a fifth of a request of the engine. Anything unusual there (another status, a cut
 * connection, silence), HTTPS and Google's store go to the client's engine, with its retries,
 * limits and messages. docs/decisions/datasets.md has the figures.
 *
 * Resources of the web are read by reads_new_web(): their `key` is a URL, and their `etag` the
 * version that web_find() found.
 */
#ifndef TRANSFER_READS_H
#define TRANSFER_READS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transfer/objects.h"

#include <penstock/error.h>

struct http_engine;
struct object_reads;

/* Bytes of a read that go to a place of their own. */
struct read_piece {
	uint64_t at; /* from the first byte of the read */
	size_t length;
	void *to;
};

/* The pieces of a read whose bytes come one after the other. */
struct read_pieces {
	/* In the order of `at`. They may overlap, and bytes between them are dropped. Borrowed. */
	const struct read_piece *items;
	size_t n;
	size_t next; /* those before have all their bytes */
};

struct object_read {
	/* Set by the caller; borrowed. */
	const char *key;
	uint64_t offset;
	size_t length; /* bytes; exactly as many must arrive */
	/* The read is all of the object, and is verified against the store's checksum, if it has
	 * one. */
	bool whole;
	const char *etag; /* another version is PENSTOCK_E_CHANGED; NULL or "" for any */
	void *data; /* gets `length` bytes; NULL if `pieces` get them */
	struct read_pieces pieces;

	/* Set by reads_run(). */
	struct penstock_error error; /* code PENSTOCK_OK if it is good; release it */
};

/* The client is borrowed and outlives it; `bucket` is copied. Sends nothing. One thread at a time
 * may use it. */
int reads_new(struct object_reads **out, struct object_client *client, const char *bucket,
	struct penstock_error *err);
/* The same for http:// and https://. The engine is borrowed and outlives it. */
int reads_new_web(
	struct object_reads **out, struct http_engine *engine, struct penstock_error *err);
void reads_free(struct object_reads *reads);
/* The time that reads from now on wait for an unavailable store or server; at first it is
 * LIMIT_READS_PATIENCE_MS. */
void reads_patience(struct object_reads *reads, int64_t ms);
/*
 * Runs all reads (at most LIMIT_READS) to their end. Returns the number of those that failed, whose
 * `error` has the reason. Once `cancel` (may be NULL) is set the rest fails with
 * PENSTOCK_E_CANCELLED. Once one fails with PENSTOCK_E_UNAVAILABLE or PENSTOCK_E_TIMEOUT, after its
 * retries, the rest does so without a try. An error of the call itself, such as credentials that
 * cannot be found, is returned with nothing read.
 */
int reads_run(struct object_reads *reads, struct object_read *items, size_t n,
	const atomic_int *cancel, struct penstock_error *err);

/* A resource of the web. */
struct web_info {
	uint64_t size;
	/* Its ETag, else its Last-Modified. */
	char version[OBJECT_ETAG_SIZE];
};
/* Requests one byte, which shows if the server supports ranges: PENSTOCK_E_UNSUPPORTED if it does
 * not, or names no version of what it sends. */
int web_find(struct http_engine *engine, const char *url, const atomic_int *cancel,
	struct web_info *out, struct penstock_error *err);

/* Copies `len` bytes of a read, which begin at its byte `at`, to where they belong. Bytes come in
 * their order; if the read begins again, at 0. */
void read_pieces_add(struct read_pieces *pieces, uint64_t at, const void *data, size_t len);

#endif
