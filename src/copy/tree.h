/*
 * Submits a tree to a copy, name by name.
 *
 *	_cleanup_(source_tree_release) struct source_tree tree = {
 *		.copy = &copy, .source = &from, .target = &to,
 *		.under = ""};
 *
 *	source_tree_open(&tree, &from, &entries, err);
 *	while (entry_source_next(entries, &entry, err) > 0)
 *		source_tree_push(&tree, &entry, err);	// in the order of the names
 *	source_tree_end(&tree, err);
 *
 * Reported and left out are names that the target cannot have and files that cannot be read. A move
 * also leaves the state of runs.
 */
#ifndef COPY_TREE_H
#define COPY_TREE_H

#include "copy/internal.h"
#include "transfer/listing.h"

struct source_tree {
	struct copy *copy;
	const struct place *source, *target;
	const char *under; /* goes before each name at the target: "" or "name/" */
	/* A file at the target that is not among the entries: nothing else may have its name or be
	 * below it. NULL if there is none. */
	const char *taken;

	uint64_t entries; /* that were not spared */
	/* Names so far that are prefixes of the next one: a file among them cannot be its
	 * directory. */
	struct strlist shorter;
	char *empty; /* a local directory in which no file was found yet */
};

/* The entries of a place: of the source, or of the target. */
int source_tree_open(struct source_tree *tree, const struct place *place, struct entry_source **out,
	struct penstock_error *err);
/* An error means that the copy must end. */
int source_tree_push(
	struct source_tree *tree, const struct entry *entry, struct penstock_error *err);
/* An entry that the target has already, in the same order. */
int source_tree_keep(
	struct source_tree *tree, const struct entry *entry, struct penstock_error *err);
int source_tree_end(struct source_tree *tree, struct penstock_error *err);
void source_tree_release(struct source_tree *tree);
/* From open to end. */
int source_tree_push_all(struct source_tree *tree, struct penstock_error *err);

/* The checks of source_tree_push() alone, for a download: PENSTOCK_E_INVALID if the name is
 * impossible. */
int source_tree_check(
	struct source_tree *tree, const struct entry *entry, struct penstock_error *err);
/* True if keep_same applies to the file of an entry: it has the size and time of its object. */
bool source_tree_has_file(const struct source_tree *tree, const struct entry *entry);

/* ---- directory.c ---- */

/* An object "a/" becomes the directory `target`. */
int directory_make(struct source_tree *tree, const struct entry *entry, const struct target *target,
	struct penstock_error *err);
/* A local directory is next in the order; `wanted` if the target does not have it yet. */
int directory_enter(
	struct source_tree *tree, const char *path, bool wanted, struct penstock_error *err);
/* Keeps an empty directory as an object "a/", as s3fs does. */
int directory_put_empty(struct source_tree *tree, struct penstock_error *err);
/* Removes the empty directories below a path, and with `itself` the path, too. */
void directory_remove_empty(const char *path, bool itself);

#endif
