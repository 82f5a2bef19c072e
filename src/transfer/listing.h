/*
 * Streams of what lies below a prefix or a directory, in byte order of the relative path, whatever
 * their length in bounded memory.
 *
 *	_cleanup_(entry_source_freep) struct entry_source *there = NULL;
 *	struct entry entry;
 *	int r = entry_source_objects(&there, s3, "bucket", "data/", &(struct object_source_options){ 0 }, err);
 *
 *	while (r >= 0 && (r = entry_source_next(there, &entry, err)) > 0)
 *		printf("%s %" PRIu64 "\n", entry.path, entry.size);
 *
 * Byte order means that "/" sorts like any other byte: "a-b", "a.txt", "a/x", "a0". Both kinds of stream have
 * it, so that two can be merged (compare.h). A source is used by one thread at a time.
 */
#ifndef TRANSFER_LISTING_H
#define TRANSFER_LISTING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct object_client;
struct penstock_error;

enum entry_kind {
	ENTRY_FILE,	 /* a file, or an object */
	ENTRY_DIRECTORY, /* where asked for, and keys that end in "/"; the path ends in "/" */
	ENTRY_LINK,  /* a symbolic link that is not followed; `size` is the length of its target */
	ENTRY_PREFIX /* a common prefix, where there is a delimiter */
};

/* All strings live until the next call for the same source. */
struct entry {
	const char *path; /* relative; never "", never begins with "/" unless a key has it so */
	size_t path_len;
	enum entry_kind kind;
	uint64_t size;
	int64_t mtime_ns; /* of an object: when the store got it */
	/* Of objects only, else NULL. */
	const char *key;
	const char *etag; /* with quotes; "": the store gave none */
	/* Of files only, else 0. */
	mode_t mode;
};

struct entry_source;
/* 1: there is one more; 0: that was the last; negative: an error, which ends the source. */
int entry_source_next(struct entry_source *source, struct entry *entry, struct penstock_error *err);
/* Ends what is under way. */
void entry_source_free(struct entry_source *source);
static inline void entry_source_freep(struct entry_source **source)
{
	entry_source_free(*source);
}

/*
 * Asked on the caller's thread for every entry, and by a walk for every directory ("a/") before it is opened.
 * False leaves it out, a directory with all that is in it.
 */
typedef bool (*entry_filter_fn)(void *cookie, const char *path, bool directory);

struct object_source_options {
	/* Bytes of each key that are not part of the path; at most the prefix's. 0: all of the prefix. */
	size_t cut;
	bool whole_keys; /* the path is the key, whatever `cut` says */
	const char *
		delimiter; /* NULL: everything below; else common prefixes, too, with one page read ahead */
	unsigned parallel;     /* requests at a time; 0: chosen; 1: one page is read ahead */
	entry_filter_fn takes; /* NULL: everything */
	void *cookie;
	const atomic_int *cancel;
};
/*
 * The objects below `prefix` ("" or NULL: the whole bucket). Long listings are fetched in several ranges of
 * keys at a time. A store that does not start where it is told to is listed in one chain, one that does not
 * keep the order of keys is sorted here (in an unlinked file in TMPDIR where it is long). The object whose
 * key is the prefix itself, cut to nothing, is left out. PENSTOCK_E_PROTOCOL: the store lists what is not
 * below the prefix, does not get on, or shows its disorder when it is too late to sort.
 */
int entry_source_objects(struct entry_source **out, struct object_client *client,
	const char *bucket, const char *prefix, const struct object_source_options *options,
	struct penstock_error *err);

enum walk_links {
	WALK_LINKS_SKIP, /* left out */
	WALK_LINKS_FOLLOW, /* what they lead to; one that leads nowhere, or into a directory it is in, is a problem */
	WALK_LINKS_KEEP /* ENTRY_LINK */
};

struct walk_options {
	enum walk_links links;
	bool directories; /* ENTRY_DIRECTORY for each, before what is in it */
	entry_filter_fn takes;
	/*
	 * What cannot be listed: an unreadable directory, a socket, a link that leads nowhere. 0 leaves it out and goes on,
	 * else the walk ends with `problem`. NULL: it ends. What vanished meanwhile is no problem and is left out.
	 */
	int (*on_problem)(void *cookie, const char *path, const struct penstock_error *problem);
	void *cookie;
	const atomic_int *cancel;
};
/*
 * The files below the directory `path`, which may itself be a link. Directories are opened one below the other
 * and never through a link unless WALK_LINKS_FOLLOW. Unfinished downloads (part_file.h) are left out. A directory of millions of names is sorted in an unlinked file in TMPDIR. PENSTOCK_E_NOT_FOUND: there is no such directory.
 */
int entry_source_files(struct entry_source **out, const char *path,
	const struct walk_options *options, struct penstock_error *err);

#endif
