/* What the kinds of entry_source share. */
#ifndef TRANSFER_LISTING_INTERNAL_H
#define TRANSFER_LISTING_INTERNAL_H

#include "transfer/listing.h"

struct entry_source {
	/* As entry_source_next(). */
	int (*next)(struct entry_source *source, struct entry *entry, struct penstock_error *err);
	void (*free)(struct entry_source *source);
	int ended; /* what next() says for ever: 0 or the error's code; 1: it goes on */
};

#endif
