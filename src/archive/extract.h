/* Extracts the members of an archive into a tree, through libarchive, on the calling thread. */
#ifndef ARCHIVE_EXTRACT_H
#define ARCHIVE_EXTRACT_H

#include "archive/detect.h"

struct ring;
struct tree;
struct unpack_options;
struct penstock_error;

/*
 * Extracts the members of the uncompressed tar, RAR or zip in `in`, and reads `in` to its end. For
 * a zip, uses the header before each member; extract_amend_zip() completes the result. Fails with
 * PENSTOCK_E_CANCELLED if the writer of the ring failed; the writer has the reason. `member` (at
 * least EXTRACT_MEMBER bytes) gets the name of the current member on failure, or "".
 */
#define EXTRACT_MEMBER 256
int extract_ring(enum archive_kind kind, struct ring *in, struct tree *tree,
	const struct unpack_options *options, char *member, struct penstock_error *err);

/* Extracts the members of the complete zip or 7z at `path`. */
int extract_path(enum archive_kind kind, const char *path, struct tree *tree,
	const struct unpack_options *options, struct penstock_error *err);

/*
 * Compares the members that extract_ring() wrote from a zip with the list at the end of the
 * complete file, and sets their modes and links from that list. Returns 0, or 1 if the members
 * differ from the list. The list is authoritative, so extract_path() must then repeat the
 * extraction.
 */
int extract_amend_zip(const char *path, struct tree *tree, const struct unpack_options *options,
	struct penstock_error *err);

/* Writes the bytes of `in` to the file `name`, the only member. */
int extract_single(struct ring *in, struct tree *tree, const char *name,
	const struct unpack_options *options, struct penstock_error *err);

#endif
