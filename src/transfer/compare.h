/*
 * Decides how to make one tree like another, from two sorted streams and without a request per
 * object.
 *
 *	compare_trees(from, to, &(struct compare_rules){ .size_only = true }, on_verdict,
 *		cookie, err);
 */
#ifndef TRANSFER_COMPARE_H
#define TRANSFER_COMPARE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "transfer/listing.h"

enum compare_verdict {
	COMPARE_SAME,
	COMPARE_NEW, /* only in `from` */
	COMPARE_CHANGED, /* in both, but different: to be copied from `from` */
	COMPARE_GONE /* only in `to` */
};

/* Location of a side's content, for `checksum`. */
struct compare_side {
	const char *directory; /* if the side consists of files */
	struct object_client *client; /* if the side consists of objects */
	const char *bucket;
};

/*
 * Two entries of equal size are the same if `to` is not older than `from`. Times are compared at
 * the resolution of the coarser side: whole seconds if one time has no fraction, else milliseconds
 * if one time has no finer digits, else nanoseconds.
 */
struct compare_rules {
	bool size_only; /* only the size decides */
	bool exact_times; /* the times must be equal */
	/*
	 * The content decides: local MD5s against ETags, part by part for objects uploaded in
	 * parts; if the ETags do not match, the checksum that the store keeps (a HEAD of each
	 * object). `from` and `to` must be set.
	 */
	bool checksum;
	struct compare_side from, to;
	const atomic_int *cancel;
};

/* `from` is NULL for COMPARE_GONE, `to` for COMPARE_NEW. Returns 0 to continue; another value ends
 * the comparison with that value and `err`. */
typedef int (*compare_fn)(void *cookie, enum compare_verdict verdict, const struct entry *from,
	const struct entry *to, struct penstock_error *err);

/* Calls `fn` in order of the paths and reads both sources to their ends. Size and time of a
 * directory ("a/") are ignored. Fails with PENSTOCK_E_INTERNAL if a source is not sorted. */
int compare_trees(struct entry_source *from, struct entry_source *to,
	const struct compare_rules *rules, compare_fn fn, void *cookie, struct penstock_error *err);

#endif
