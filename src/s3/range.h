/*
 * Byte ranges: the request's `Range`, the reply's `Content-Range`, and `x-amz-copy-source-range`.
 *
 *	struct byte_range r;
 *
 *	switch (range_parse(header, size, &r)) {
 *	case RANGE_WHOLE:	// 200, the whole object
 *	case RANGE_PART:	// 206, bytes r.first to r.last, range_format_content()
 *	case RANGE_UNSATISFIABLE:	// 416 InvalidRange, range_format_unsatisfied()
 *		break;
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
	/* no range, or a range that must be ignored: malformed, with another unit, or several
	 * ranges */
	RANGE_WHOLE,
	RANGE_PART,
	RANGE_UNSATISFIABLE,
};

/* `header` may be NULL. `out` is set for RANGE_PART only, and is then within `size`. */
enum range_result range_parse(const char *header, uint64_t size, struct byte_range *out);

/* Parses "bytes=first-last" with both ends, as required by UploadPartCopy. Returns false if the
 * range is malformed or reversed. */
bool range_parse_copy_source(const char *header, struct byte_range *out);

#define RANGE_UNKNOWN_SIZE UINT64_MAX
/*
 * Parses "bytes 0-99/1234"; a star as the size gives RANGE_UNKNOWN_SIZE. With a star as the range
 * (the reply to an unsatisfiable range) `*satisfied` is false and `*out` is not set. Returns false
 * if the header is malformed.
 */
bool range_parse_content(
	const char *header, struct byte_range *out, uint64_t *size, bool *satisfied);

#define RANGE_TEXT_SIZE 72
/* Formats "bytes=first-last", for a request. */
void range_format_request(const struct byte_range *r, char out[static RANGE_TEXT_SIZE]);
/* Formats "bytes first-last/size", for a reply. */
void range_format_content(
	const struct byte_range *r, uint64_t size, char out[static RANGE_TEXT_SIZE]);
/* Formats the Content-Range of a 416 reply, with a star as the range. */
void range_format_unsatisfied(uint64_t size, char out[static RANGE_TEXT_SIZE]);

#endif
