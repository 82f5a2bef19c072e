/* Whether two entries have the same content, with as little reading as that takes. */
#ifndef TRANSFER_COMPARE_CONTENT_H
#define TRANSFER_COMPARE_CONTENT_H

#include "transfer/compare.h"

/* Of the same size. 1: the same; 0: different, or nobody can tell; negative: an error. */
int compare_content(const struct compare_rules *rules, const struct entry *from,
	const struct entry *to, struct penstock_error *err);

#endif
