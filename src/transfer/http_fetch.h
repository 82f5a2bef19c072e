/*
 * Fetches one HTTP(S) resource (or a local file) into a file, and hands the bytes over in order
 *while they arrive.
 *
 *	_cleanup_(http_fetch_result_release) struct http_fetch_result r = { 0 };
 *
 *	http_fetch(engine, url, &(struct http_fetch_options){ .directory = input,
 *		.consume = unpack, .cookie = unpacker }, &r, err);
 *
 * Where the server allows it, ranges are fetched in parallel into "NAME.MARK.penstock-part" under the
 *first reply's validator (ETag, else Last-Modified); otherwise one stream. A cut is continued where
 *it stopped. "NAME.MARK.penstock-part.json" records what is there, so that the same call after a kill
 *goes on; a resource that changed meanwhile starts again, also where all of it is there: then the server is asked
 *for its last byte. At the end length and, where given,
 *sha256 are verified, the file is synced and renamed.
 *
 * A web page in place of a file (a login, a notice) and a body in a Content-Encoding that nobody asked
 * for are errors: what is written is what the address stands for.
 *
 * `consume` runs on the calling thread, on bytes read back from the file, from offset 0 on, each
 * byte exactly once. If the resource changes after bytes were handed over, the fetch fails with
 * PENSTOCK_E_CHANGED; calling it again starts anew.
 */
#ifndef TRANSFER_HTTP_FETCH_H
#define TRANSFER_HTTP_FETCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct penstock_error;
struct http_engine;

struct http_fetch_options {
	const char *directory; /* must exist */
	const char *name;      /* of the file; NULL: from the URL */
	const char *sha256;    /* 64 hexadecimal digits; NULL: not checked */
	unsigned parallel;     /* ranges at a time; 0: 8 */
	uint64_t chunk_size;   /* bytes of a range; 0: 8 MiB */
	int64_t patience_ms;   /* how long a server that is not there is waited for (net/http.h) */
	/* The file is not synced: for callers who fetch it again after a loss of power. */
	bool no_sync;
	bool if_none_match; /* PENSTOCK_E_PRECONDITION where the file is there when it is to get its name */
	/* Once, as soon as the size is known (UINT64_MAX: the server does not say); `missing` bytes
	 * are still to be fetched. Non-zero: refuse with `err`. */
	int (*on_size)(void *cookie, uint64_t size, uint64_t missing, struct penstock_error *err);
	/*
	 * Where the server does not say the size: asked before each `bytes` that are written, on another
	 * thread. Non-zero: refuse with `err`. NULL: there is room for all that comes.
	 */
	int (*on_more)(void *cookie, uint64_t bytes, struct penstock_error *err);
	/* Everything is here and verified, and is about to get its name; `sha256` is "" where not known. */
	int (*on_whole)(void *cookie, uint64_t size, const char *etag, const char *sha256,
		struct penstock_error *err);
	/* The next bytes. Non-zero: end with `err`; what was fetched stays for the next call. */
	int (*consume)(void *cookie, const void *data, size_t len, struct penstock_error *err);
	/* Bytes fetched since the last call, from any thread; negative after a restart. */
	void (*progress)(void *cookie, int64_t bytes);
	void *cookie;
	const atomic_int *cancel;
};

struct http_fetch_result {
	char *path; /* of the file */
	uint64_t size;
	uint64_t fetched;    /* bytes that came over the network in this call */
	char sha256[65];     /* "" where not asked for */
	char *etag;	     /* NULL: the server sent none */
	char *last_modified; /* NULL: the server sent none */
	bool ranges;	     /* fetched in ranges */
	bool resumed;	     /* from what an earlier call had left */
};
void http_fetch_result_release(struct http_fetch_result *result);

/*
 * `url` is http://…, https://…, file:///… or the path of a local file. Errors:
 * PENSTOCK_E_NOT_FOUND, PENSTOCK_E_PERMISSION, PENSTOCK_E_CORRUPT (length or sha256),
 * PENSTOCK_E_CHANGED, and those of http_perform().
 */
int http_fetch(struct http_engine *engine, const char *url,
	const struct http_fetch_options *options, struct http_fetch_result *result,
	struct penstock_error *err);

/*
 * The file name that a URL gives: the last path segment, percent-decoded; what cannot be a file
 * name (empty, "." or "..", control characters, "/") becomes "download" or "_".
 */
int http_fetch_name(const char *url, struct buf *out);

#endif
