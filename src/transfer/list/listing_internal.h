/* Shared by the kinds of entry_source. */
#ifndef TRANSFER_LIST_LISTING_INTERNAL_H
#define TRANSFER_LIST_LISTING_INTERNAL_H

#include "transfer/listing.h"

struct entry_source {
	/* See entry_source_next(). */
	int (*next)(struct entry_source *source, struct entry *entry, struct penstock_error *err);
	void (*free)(struct entry_source *source);
	/* the last result of next(): 0 at the end, or the error's code; 1 until then */
	int ended;
};

#endif
