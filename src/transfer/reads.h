/*
 * Many reads of objects and of ranges into the caller's memory, such as samples for training.
 *
 *	struct object_reads *reads = NULL;
 *	struct object_read batch[256];	// each with key, offset, length and data
 *
 *	r = reads_new(&reads, s3, "cifar10", err);
 *	if (r == 0)
 *		r = reads_run(reads, batch, 256, cancel, err);
 *	reads_free(reads);
 *
 * A store that speaks plain HTTP is read on connections of the calling thread (net/plain), where a
 * request costs a fifth of a request of the engine. The client's engine, with its retries, limits
 * and messages, repeats a read that fails there (another status, a closed connection, silence), and
 * does all reads over HTTPS, through a proxy, and from Amazon and Google.
 * docs/decisions/datasets.md has the figures.
 *
 * reads_new_web() is for web resources: `key` is a URL, and `etag` the version that web_find()
 * found.
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

/* Bytes of a read and their place in memory. */
struct read_piece {
	uint64_t at; /* offset from the first byte of the read */
	size_t length;
	void *to;
};

/* The pieces of a read whose bytes arrive in order. */
struct read_pieces {
	/* In the order of `at`. The pieces may overlap, and bytes between them are dropped.
	 * Borrowed. */
	const struct read_piece *items;
	size_t n;
	size_t next; /* pieces before this one have all their bytes */
};

struct object_read {
	/* Set by the caller; borrowed. */
	const char *key;
	uint64_t offset;
	size_t length; /* bytes; exactly this number must arrive */
	/* The read is all of the object, and is verified against the store's checksum, if it has
	 * one. */
	bool whole;
	/* fails with PENSTOCK_E_CHANGED if the object has another ETag; NULL or "" for any */
	const char *etag;
	void *data; /* receives `length` bytes; NULL if `pieces` receive them */
	struct read_pieces pieces;

	/* Set by reads_run(). */
	struct penstock_error error; /* code PENSTOCK_OK after a success; release it */
};

/* Creates a reader of the objects in `bucket`, and sends no request. The client is borrowed and
 * outlives `*out`; `bucket` is copied. One thread at a time may use `*out`. */
int reads_new(struct object_reads **out, struct object_client *client, const char *bucket,
	struct penstock_error *err);
/* Like reads_new() for http:// and https:// URLs. The engine is borrowed and outlives `*out`. */
int reads_new_web(
	struct object_reads **out, struct http_engine *engine, struct penstock_error *err);
void reads_free(struct object_reads *reads);
/* Sets the time that later reads wait for an unavailable store or server; initially
 * LIMIT_READS_PATIENCE_MS. */
void reads_patience(struct object_reads *reads, int64_t ms);
/*
 * Runs all reads (at most LIMIT_READS) to their end. Returns the number of failed reads, whose
 * `error` has the reason. Once `cancel` (may be NULL) is set, the remaining reads fail with
 * PENSTOCK_E_CANCELLED. Once a read fails with PENSTOCK_E_UNAVAILABLE or PENSTOCK_E_TIMEOUT after
 * its retries, reads that have not started fail with PENSTOCK_E_UNAVAILABLE. An error of the call
 * itself, such as credentials that cannot be found, is returned as a negative code; then no read is
 * valid.
 */
int reads_run(struct object_reads *reads, struct object_read *items, size_t n,
	const atomic_int *cancel, struct penstock_error *err);

/* A web resource. */
struct web_info {
	uint64_t size;
	/* The strong ETag, else the Last-Modified, else a weak ETag. */
	char version[OBJECT_ETAG_SIZE];
};
/* Requests one byte to check that the server supports ranges. Fails with PENSTOCK_E_UNSUPPORTED if
 * the server does not, or if the reply has neither an ETag nor a Last-Modified. */
int web_find(struct http_engine *engine, const char *url, const atomic_int *cancel,
	struct web_info *out, struct penstock_error *err);

/* Copies `len` bytes of a read, from byte `at` of the read on, to the places of its pieces. Calls
 * are in the order of the bytes; a read that restarts begins with byte 0. */
void read_pieces_add(struct read_pieces *pieces, uint64_t at, const void *data, size_t len);

#endif
