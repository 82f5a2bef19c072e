/*
 * Streams of the entries below a prefix or a directory, in byte order of the relative path, in
 * bounded memory for any number of entries.
 *
 *	#include "transfer/objects.h"
 *
 *	_cleanup_(entry_source_freep) struct entry_source *source = NULL;
 *	struct entry entry;
 *	int r = entry_source_objects(&source, object_at(s3, "bucket", "data/"),
 *		&(struct object_source_options){ 0 }, err);
 *
 *	while (r >= 0 && (r = entry_source_next(source, &entry, err)) > 0)
 *		puts(entry.path);
 *
 * Byte order means that "/" sorts like any other byte: "a-b", "a.txt", "a/x", "a0". Both kinds of
 * stream have this order, so that two streams can be merged (compare.h). A source is used by one
 * thread at a time.
 */
#ifndef TRANSFER_LISTING_H
#define TRANSFER_LISTING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct object_client;
struct object_ref;
struct penstock_error;

enum entry_kind {
	ENTRY_FILE, /* a file, or an object */
	/* a local directory, if requested, or a key that ends in "/"; the path ends in "/", too */
	ENTRY_DIRECTORY,
	ENTRY_LINK, /* a symbolic link that is not followed; `size` is the length of its target */
	ENTRY_PREFIX /* a common prefix, if there is a delimiter */
};

/* All strings are valid until the next call for the same source. */
struct entry {
	const char *path; /* relative; never ""; begins with "/" only if the key has a "/" there */
	size_t path_len;
	enum entry_kind kind;
	uint64_t size;
	int64_t mtime_ns; /* for an object, the time at which the store received it */
	/* Both are NULL for files. */
	const char *key;
	const char *etag; /* with quotes; "" if the store's listing has none */
	/* 0 for objects. */
	mode_t mode;
};

struct entry_source;
/* Returns 1 if there is an entry, 0 at the end, or a negative error, which ends the source. */
int entry_source_next(struct entry_source *source, struct entry *entry, struct penstock_error *err);
/* Cancels requests in flight. */
void entry_source_free(struct entry_source *source);
static inline void entry_source_freep(struct entry_source **source)
{
	entry_source_free(*source);
}

/* Called on the caller's thread for every entry, and by a walk for every directory ("a/") before it
 * is opened. Returns false to leave out the entry; a walk then leaves out a directory with its
 * contents. */
typedef bool (*entry_filter_fn)(void *cookie, const char *path, bool directory);

struct object_source_options {
	/* Number of bytes of each key that are not part of the path; at most the length of the
	 * prefix. 0 for the whole prefix. */
	size_t cut;
	bool whole_keys; /* the path is the whole key; `cut` is ignored */
	const char *after; /* leaves out the keys up to this one; NULL for all keys; borrowed */
	/* NULL to list everything below; else common prefixes are listed too, and `parallel` is
	 * 1 */
	const char *delimiter;
	/* Limit of requests in flight, at most 32; 0 for 8; with 1, a few pages are read ahead, one
	 * after another. */
	unsigned parallel;
	entry_filter_fn takes; /* may be NULL */
	void *cookie;
	const atomic_int *cancel;
};
/*
 * Streams the objects below the prefix `at.key` ("" or NULL for the whole bucket). Long listings
 * are fetched in several ranges of keys at a time. A store that ignores the start key is listed
 * page by page. The keys of a store that does not sort them are sorted by this process (in an
 * unlinked file in TMPDIR if the list is long). A key whose path would be empty is left out. Fails
 * with PENSTOCK_E_PROTOCOL if the store lists keys outside the prefix, makes no progress, or turns
 * out to be unsorted after entries were returned that are not the first ones in byte order.
 */
int entry_source_objects(struct entry_source **out, struct object_ref at,
	const struct object_source_options *options, struct penstock_error *err);

enum walk_links {
	WALK_LINKS_SKIP, /* leave links out */
	/* list the target; a dangling or circular link is a problem */
	WALK_LINKS_FOLLOW,
	WALK_LINKS_KEEP /* list the link itself, as ENTRY_LINK */
};

struct walk_options {
	enum walk_links links;
	bool directories; /* lists each directory as ENTRY_DIRECTORY before its contents */
	entry_filter_fn takes;
	/*
	 * Reports an entry that cannot be listed: an unreadable directory, a socket, a dangling
	 * link. Returns 0 to leave out the entry, else the walk ends with `problem`. If
	 * `on_problem` is NULL, the walk ends with the first problem. A lack of memory or of
	 * descriptors always ends the walk. Entries that vanish during the walk are left out
	 * without a report.
	 */
	int (*on_problem)(void *cookie, const char *path, const struct penstock_error *problem);
	void *cookie;
	const atomic_int *cancel;
};
/*
 * Streams the files below the directory `path`, which may itself be a link. Each directory is
 * opened relative to its parent and, without WALK_LINKS_FOLLOW, never through a link. Unfinished
 * downloads (state/part_file.h) are left out. A directory of millions of names is sorted in an
 * unlinked file in TMPDIR. Fails with PENSTOCK_E_NOT_FOUND if the directory does not exist.
 */
int entry_source_files(struct entry_source **out, const char *path,
	const struct walk_options *options, struct penstock_error *err);

#endif
