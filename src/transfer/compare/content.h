/* Compares the content of two entries, with as little reading as possible. */
#ifndef TRANSFER_COMPARE_CONTENT_H
#define TRANSFER_COMPARE_CONTENT_H

#include "transfer/compare.h"

/* Returns 1 if the contents of the entries, which have the same size, are the same, 0 if they
 * differ or cannot be compared, or a negative error. */
int compare_content(const struct compare_rules *rules, const struct entry *from,
	const struct entry *to, struct penstock_error *err);

#endif
