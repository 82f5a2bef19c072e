/*
 * What lies below a source, on its way to a target, name by name.
 *
 *	struct tree_way way = { .t = &t, .source = &from, .target = &to, .under = "" };
 *
 *	tree_way_open(&way, &from, t.from, &entries, &err);	a stream of what is there
 *	while (entry_source_next(entries, &entry, &err) > 0)
 *		tree_way_take(&way, &entry, &err);		in the order of the names
 *	tree_way_end(&way, &err);
 *
 * Names that the target cannot have are told and left out, as are what cannot be read and, when moving, what
 * runs keep for themselves.
 */
#ifndef CLI_TRANSFER_TREE_H
#define CLI_TRANSFER_TREE_H

#include "cli/transfer.h"

struct tree_way {
	struct transfer *t;
	const struct place *source, *target;
	const char *under; /* goes before each name at the target: "" or "name/" */

	uint64_t entries; /* that were taken */
	uint64_t spared;  /* that runs keep */
	/* Names so far that the next one begins with: one of them may have to be its directory. */
	struct strlist shorter;
	char *empty; /* a local directory in which nothing was found so far */
};

/* The stream of a place: that of the source, or what is at the target. */
int tree_way_open(struct tree_way *way, const struct place *place, struct object_client *client,
	struct entry_source **out, struct penstock_error *err);
/* An error: everything is to end. */
int tree_way_take(struct tree_way *way, const struct entry *entry, struct penstock_error *err);
/* Of one that is at the target already: in the same order. */
int tree_way_same(struct tree_way *way, const struct entry *entry, struct penstock_error *err);
int tree_way_end(struct tree_way *way, struct penstock_error *err);
void tree_way_release(struct tree_way *way);
/* All of it, from open to end. */
int tree_way_go(struct tree_way *way, struct object_client *client, struct penstock_error *err);

/* Removes the directories below a path in which there is nothing, and with `itself` that one, too. */
void remove_empty_directories(const char *path, bool itself);

#endif
