/*
 * Byte ranges: the request's `Range`, the reply's `Content-Range`, and `x-amz-copy-source-range`.
 *
 *	struct byte_range r;
 *
 *	switch (range_parse(header, size, &r)) {
 *	case RANGE_WHOLE:         200, all of it
 *	case RANGE_PART:          206, bytes r.first to r.last, Content-Range by
 *range_format_content() case RANGE_UNSATISFIABLE: 416 InvalidRange, Content-Range by
 *range_format_unsatisfied()
 *	}
 */
#ifndef S3_RANGE_H
#define S3_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct byte_range {
	uint64_t first;
	uint64_t last; /* inclusive, as on the wire */
};

static inline uint64_t byte_range_length(const struct byte_range *r)
{
	return r->last - r->first + 1;
}

enum range_result {
	RANGE_WHOLE, /* no range, or one that must be ignored: malformed, other unit, several */
	RANGE_PART,
	RANGE_UNSATISFIABLE,
};

/* `header` may be NULL. `out` is set for RANGE_PART only, and then lies within `size`. */
enum range_result range_parse(const char *header, uint64_t size, struct byte_range *out);

/* "bytes=first-last" with both ends, as UploadPartCopy demands it; false: malformed or reversed. */
bool range_parse_copy_source(const char *header, struct byte_range *out);

#define RANGE_UNKNOWN_SIZE UINT64_MAX
/*
 * "bytes 0-99/1234" or, with a star for the size, RANGE_UNKNOWN_SIZE. A star for the range (the
 * reply to an unsatisfiable one) gives `*satisfied` false and only the size. False: malformed.
 */
bool range_parse_content(
	const char *header, struct byte_range *out, uint64_t *size, bool *satisfied);

#define RANGE_TEXT_SIZE 72
/* "bytes=first-last", for a request. */
void range_format_request(const struct byte_range *r, char out[static RANGE_TEXT_SIZE]);
/* "bytes first-last/size", for a reply. */
void range_format_content(
	const struct byte_range *r, uint64_t size, char out[static RANGE_TEXT_SIZE]);
/* The Content-Range of a 416 reply: a star for the range. */
void range_format_unsatisfied(uint64_t size, char out[static RANGE_TEXT_SIZE]);

#endif
