/*
 * What to do so that one tree becomes like another, from two sorted streams and without a request per object.
 *
 *	compare_trees(from, to, &(struct compare_rules){ .size_only = true }, on_verdict, cookie, err);
 */
#ifndef TRANSFER_COMPARE_H
#define TRANSFER_COMPARE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "transfer/listing.h"

enum compare_verdict {
	COMPARE_SAME,
	COMPARE_NEW,	 /* only in `from` */
	COMPARE_CHANGED, /* in both, and to be brought from `from` */
	COMPARE_GONE	 /* only in `to` */
};

/* Where the content of a side is, for `checksum`. */
struct compare_side {
	const char *directory;	      /* of files */
	struct object_client *client; /* of objects */
	const char *bucket;
};

/*
 * Of the same size are the same: those of which `to` is not older than `from`. Times are compared as finely
 * as the coarser of the two tells them: whole seconds where one has no fraction, else milliseconds, else nanoseconds.
 */
struct compare_rules {
	bool size_only;	  /* the size alone decides */
	bool exact_times; /* the times must be equal */
	/* The content decides: local MD5s against ETags, by parts where the object came in parts; where that tells
	 * nothing the checksum that the store has (one HEAD). The sides must be told. */
	bool checksum;
	struct compare_side from, to;
	const atomic_int *cancel;
};

/* `from` is NULL of what is GONE, `to` of what is NEW. 0 goes on, else the comparison ends with that and `err`. */
typedef int (*compare_fn)(void *cookie, enum compare_verdict verdict, const struct entry *from,
	const struct entry *to, struct penstock_error *err);

/*
 * In order of the paths. Both sources are read to their ends. Of an object that is a directory ("a/") the time does not matter.
 * PENSTOCK_E_INTERNAL: a source is not sorted.
 */
int compare_trees(struct entry_source *from, struct entry_source *to,
	const struct compare_rules *rules, compare_fn fn, void *cookie, struct penstock_error *err);

#endif
