/* Shared by the kinds of entry_source. */
#ifndef TRANSFER_LIST_LISTING_INTERNAL_H
#define TRANSFER_LIST_LISTING_INTERNAL_H

#include "transfer/listing.h"

struct entry_source {
	/* See entry_source_next(). */
	int (*next)(struct entry_source *source, struct entry *entry, struct penstock_error *err);
	void (*free)(struct entry_source *source);
	/* the final result of next(): 0 or the error's code; 1 while the source continues */
	int ended;
};

#endif
