/* Members out of an archive into a tree, through libarchive, on the calling thread. */
#ifndef ARCHIVE_EXTRACT_H
#define ARCHIVE_EXTRACT_H

#include <stdatomic.h>
#include <stdint.h>

#include "archive/detect.h"

struct ring;
struct tree;
struct penstock_error;

struct extract_options {
	void (*progress)(void *cookie, uint64_t members, uint64_t bytes);
	void *cookie;
	const atomic_int *cancel;
};

/*
 * The members of the uncompressed tar, RAR or zip in `in`, whose rest is read to its end. Of a zip
 * that is what the headers before the members say, to be amended by extract_amend_zip(). Fails with
 * PENSTOCK_E_CANCELLED where the ring's writer broke off: then the writer knows why. `member` (at
 * least EXTRACT_MEMBER bytes) gets the name of the member at work when it failed, or "".
 */
#define EXTRACT_MEMBER 256
int extract_ring(enum archive_kind kind, struct ring *in, struct tree *tree,
	const struct extract_options *options, char *member, struct penstock_error *err);

/* The members of the finished zip or 7z at `path`. */
int extract_path(enum archive_kind kind, const char *path, struct tree *tree,
	const struct extract_options *options, struct penstock_error *err);

/*
 * Compares what extract_ring() made of a zip with the list at the end of the finished file, and
 * sets modes and links as that has them. Returns 0, or 1 where the two differ: then the list is
 * right, and extract_path() is to do it.
 */
int extract_amend_zip(const char *path, struct tree *tree, const struct extract_options *options,
	struct penstock_error *err);

/* All of `in` as the one file `name`. */
int extract_single(struct ring *in, struct tree *tree, const char *name,
	const struct extract_options *options, struct penstock_error *err);

#endif
