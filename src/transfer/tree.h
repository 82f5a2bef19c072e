/*
 * Downloads everything below an S3 prefix into a directory, in parallel.
 *
 *	transfer_download_tree(s3, "bucket", "/foo", dir, &(struct tree_download_options){ 0 },
 *&stats, err);
 *
 * The prefix is a path: "/foo" (or "foo", "foo/") means the object "foo" and all objects "foo/…",
 *never "foobar"; "/" and "" mean the whole bucket. Object "foo/a/b" becomes DIR/a/b, the object
 *"foo" itself DIR/foo. A key that ends in "/" becomes a directory. A key that would leave the
 *directory, or that cannot be a file beside another key, ends the download with PENSTOCK_E_INVALID
 *before anything is written.
 *
 * An interrupted download leaves a journal, DIR/.penstock-download, and no half file under its
 *final name; the next call with the same source skips what is already there unchanged. Directories
 *that are missing are created.
 */
#ifndef TRANSFER_TREE_H
#define TRANSFER_TREE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "transfer/objects.h"

struct tree_download_options {
	unsigned parallel;	    /* objects at a time; 0: 16 */
	const char *const *exclude; /* NULL-terminated; relative prefixes left out, such as
				       ".penstock/" */
	/* After the listing, before the first byte: objects and bytes still to be fetched.
	 * Non-zero: refuse with `err`. */
	int (*on_size)(void *cookie, uint64_t objects, uint64_t bytes, struct penstock_error *err);
	object_progress_fn progress;
	/* After each object that is there, fetched or not, with its path relative to the directory.
	 * Calls do not overlap. */
	void (*on_object)(void *cookie, const char *path, const struct object_info *info);
	void *cookie;
	const atomic_int *cancel;
};

struct tree_download_stats {
	uint64_t objects; /* listed and not excluded */
	uint64_t bytes;
	uint64_t fetched_objects;
	uint64_t fetched_bytes;
	uint64_t skipped_objects; /* there already */
	uint64_t directories;	  /* keys that end in "/" */
};

/*
 * PENSTOCK_E_NOT_FOUND: no such bucket. An empty prefix is a success with zero objects. Objects
 * that change during the download end it with PENSTOCK_E_CHANGED. `stats` may be NULL.
 */
int transfer_download_tree(struct object_client *client, const char *bucket, const char *prefix,
	const char *dir, const struct tree_download_options *options,
	struct tree_download_stats *stats, struct penstock_error *err);

/*
 * The path below the directory that a key gets: NULL-terminated in `out`, "" for a key that is the
 * prefix directory itself. PENSTOCK_E_INVALID: it would leave the directory or is no path.
 * PENSTOCK_E_NOT_FOUND: the key is not below `prefix` ("foobar" is not below "foo").
 */
int tree_relative_path(
	const char *prefix, const char *key, struct buf *out, struct penstock_error *err);

#endif
