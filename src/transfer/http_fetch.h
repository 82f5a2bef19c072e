/*
 * Fetches one HTTP(S) resource (or a local file) into a file, and passes the bytes on in order
 * while they arrive.
 *
 *	_cleanup_(http_fetch_result_release) struct http_fetch_result r = { 0 };
 *
 *	http_fetch(engine, url, &(struct http_fetch_options){ .directory = input,
 *		.consume = unpack, .cookie = unpacker }, &r, err);
 *
 * If the server supports ranges, the file is fetched in parallel ranges into
 * "NAME.MARK.penstock-part" under the first reply's validator (ETag, else Last-Modified); otherwise
 * one stream is read. A request that was interrupted resumes at the next byte.
 * "NAME.MARK.penstock-part.json" records the ranges that are complete, so the same call after a
 * kill (not after a reboot) resumes; a resource that changed meanwhile is fetched from its
 * beginning. If an earlier call has fetched every byte, the last byte is requested again, to verify
 * that the resource is unchanged. At the end the length and, if given, the sha256 are verified, and
 * the file is synced and renamed.
 *
 * A web page in place of a file (a login, a notice) and a body in a Content-Encoding that was not
 * requested are errors.
 *
 * `consume` runs on the calling thread on bytes read back from the file, from offset 0, each byte
 * exactly once. If the resource changes after bytes were passed on, the fetch fails with
 * PENSTOCK_E_CHANGED; the next call starts from the beginning.
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
	const char *name; /* the file's name; NULL to take it from the URL */
	const char *sha256; /* 64 hexadecimal digits; NULL if it is not checked */
	unsigned parallel; /* limit of ranges in flight, at most 64; 0 for 8 */
	uint64_t chunk_size; /* bytes per range, at least 4 KiB; 0 for 8 MiB */
	int64_t patience_ms; /* time to wait for an unreachable server (net/http/http.h) */
	/* Does not sync the file: for callers who fetch it again after a power loss. */
	bool no_sync;
	/* fails with PENSTOCK_E_PRECONDITION if the target exists at the time of the rename */
	bool if_none_match;
	/* Called as soon as the size is known (UINT64_MAX if the server does not give it), and
	 * again after a restart; `missing` bytes are still to be fetched. Returns a negative code
	 * to refuse with `err`. */
	int (*on_size)(void *cookie, uint64_t size, uint64_t missing, struct penstock_error *err);
	/* If the size is unknown: called on another thread before each write, with the number of
	 * bytes. Returns a negative code to refuse with `err`. NULL for no limit. */
	int (*on_more)(void *cookie, uint64_t bytes, struct penstock_error *err);
	/* Called when the file is complete and verified, just before it is renamed; `sha256` is ""
	 * if not known. Returns a negative code to refuse with `err`. */
	int (*on_whole)(void *cookie, uint64_t size, const char *etag, const char *sha256,
		struct penstock_error *err);
	/* Gets the next bytes. Returns a negative code to end with `err`; fetched bytes stay for
	 * the next call. */
	int (*consume)(void *cookie, const void *data, size_t len, struct penstock_error *err);
	/* Reports the bytes fetched since the last call, from any thread; negative after a
	 * restart. */
	void (*progress)(void *cookie, int64_t bytes);
	void *cookie;
	const atomic_int *cancel;
};

struct http_fetch_result {
	char *path; /* the fetched file */
	uint64_t size;
	uint64_t fetched; /* bytes received over the network in this call */
	char sha256[65]; /* "" if not requested */
	char *etag; /* NULL if the server sent none */
	char *last_modified; /* NULL if the server sent none */
	bool ranges; /* the file was fetched in ranges */
	bool resumed; /* the call resumed an earlier call */
};
void http_fetch_result_release(struct http_fetch_result *result);

/*
 * `url` is http://…, https://…, file:///… or the path of a local file. Errors:
 * PENSTOCK_E_NOT_FOUND, PENSTOCK_E_PERMISSION, PENSTOCK_E_CORRUPT (length or sha256),
 * PENSTOCK_E_CHANGED, PENSTOCK_E_EXISTS (another process fetches the file), PENSTOCK_E_INVALID (a
 * web page or an encoding), PENSTOCK_E_PRECONDITION, and the errors of http_perform().
 */
int http_fetch(struct http_engine *engine, const char *url,
	const struct http_fetch_options *options, struct http_fetch_result *result,
	struct penstock_error *err);

/* Appends the file name that a URL gives: its last path segment, percent-decoded. Control
 * characters and "/" become "_"; a name of more than 200 bytes keeps its end; "", "." and ".."
 * become "download". */
int http_fetch_name(const char *url, struct buf *out);

#endif
