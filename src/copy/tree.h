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
 * Names that the target cannot have and unreadable files are reported and skipped. A move without
 * `force` also skips the state of runs.
 */
#ifndef COPY_TREE_H
#define COPY_TREE_H

#include "copy/internal.h"
#include "transfer/listing.h"

struct source_tree {
	struct copy *copy;
	const struct place *source, *target;
	const char *under; /* precedes each name at the target: "" or "name/" */
	/* A file at the target that is not among the entries: no other file may have the same name
	 * or be below that name. NULL if there is none. */
	const char *taken;

	uint64_t entries; /* entries, except those that `spared` of the copy counts */
	/* Names so far that are prefixes of the next name: a file with such a name cannot be the
	 * directory of the next file. */
	struct strlist shorter;
	char *empty; /* a local directory without a file so far; NULL if there is none */
};

/* Lists the entries of a place, which is the source or the target. */
int source_tree_open(struct source_tree *tree, const struct place *place, struct entry_source **out,
	struct penstock_error *err);
/* Submits an entry, or reports and skips it. An error means that the copy must end. */
int source_tree_push(
	struct source_tree *tree, const struct entry *entry, struct penstock_error *err);
/* Called in place of source_tree_push() for an entry that the target has already. */
int source_tree_keep(
	struct source_tree *tree, const struct entry *entry, struct penstock_error *err);
int source_tree_end(struct source_tree *tree, struct penstock_error *err);
void source_tree_release(struct source_tree *tree);
/* Opens the source, submits all its entries, and calls source_tree_end(). */
int source_tree_push_all(struct source_tree *tree, struct penstock_error *err);

/* Checks an entry of a download as source_tree_push() does, and submits nothing. Fails with
 * PENSTOCK_E_INVALID if the target cannot have the name. */
int source_tree_check(
	struct source_tree *tree, const struct entry *entry, struct penstock_error *err);
/* Returns true if keep_same applies to the file of an entry: the file has the size and time of its
 * object. */
bool source_tree_has_file(const struct source_tree *tree, const struct entry *entry);

/* ---- directory.c ---- */

/* Creates the directory `target` of an object "a/"; a move then deletes the object. */
int directory_make(struct source_tree *tree, const struct entry *entry, const struct target *target,
	struct penstock_error *err);
/* Called for each local entry in order. Uploads the previous directory as an object if the previous
 * directory is empty. `wanted` is true if the entry is a directory that the target lacks. */
int directory_enter(
	struct source_tree *tree, const char *path, bool wanted, struct penstock_error *err);
/* Uploads the directory `tree->empty`, if there is one, as an object "a/", as s3fs does. */
int directory_put_empty(struct source_tree *tree, struct penstock_error *err);
/* Removes the empty directories below a path, and with `itself` the path, too. */
void directory_remove_empty(const char *path, bool itself);

#endif
