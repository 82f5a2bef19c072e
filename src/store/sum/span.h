/*
 * The checksums that the bytes of an object are compared with: one of the whole object, or one of
 * each part.
 *
 *	struct store_span span = {0};
 *
 *	while (store_span_next(object, &span))
 *		printf("%llu bytes have %s\n", (unsigned long long)span.length, span.expected);
 */
#ifndef STORE_SUM_SPAN_H
#define STORE_SUM_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "s3/sum/checksum.h"

struct store_object;

/* Bytes with a checksum of their own. */
struct store_span {
	uint64_t offset, length;
	enum checksum_kind kind; /* CHECKSUM_NONE if there is no checksum */
	const char *expected; /* base64; points into the object */
	bool is_etag; /* `expected` is hexadecimal digits */
	unsigned part; /* 0 for the whole object */
	size_t next; /* used by store_span_next() */
};

/* Gets the next span; start with {0}. Uses an ETag that is an MD5 if there is no other checksum.
 * Returns false at the end. */
bool store_span_next(const struct store_object *object, struct store_span *span);
/* Ends the checksum of the bytes, and returns true if the checksum is the expected value. */
bool store_span_matches(const struct store_span *span, struct checksum *sum);

#endif
