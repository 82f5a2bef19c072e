#include "s3/range.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "s3/ascii.h"

/* Reads decimal digits at *at. Returns false if there are no digits, or if the number exceeds 64
 * bits and `clamp` is false; with `clamp` such a number becomes UINT64_MAX. */
static bool take_u64(const char **at, bool clamp, uint64_t *out)
{
	char *end;

	if (**at < '0' || **at > '9')
		return false;
	errno = 0;
	*out = strtoull(*at, &end, 10);
	*at = end;
	return clamp || errno != ERANGE;
}

static const char *skip_blanks(const char *p)
{
	while (*p == ' ' || *p == '\t')
		p++;
	return p;
}

enum range_result range_parse(const char *header, uint64_t size, struct byte_range *out)
{
	uint64_t first = 0, last = UINT64_MAX;
	bool suffix;

	if (!header || !ascii_starts(header, "bytes="))
		return RANGE_WHOLE;
	const char *p = header + strlen("bytes=");

	suffix = *p == '-';
	if (!suffix && !take_u64(&p, true, &first))
		return RANGE_WHOLE;
	if (*p++ != '-')
		return RANGE_WHOLE;
	bool has_last = take_u64(&p, true, &last);

	p = skip_blanks(p);
	if (*p != '\0' || (suffix && !has_last) || (!suffix && last < first))
		return RANGE_WHOLE;
	if (suffix) {
		if (last == 0 || size == 0)
			return RANGE_UNSATISFIABLE;
		*out = (struct byte_range){last >= size ? 0 : size - last, size - 1};
		return RANGE_PART;
	}
	if (first >= size)
		return RANGE_UNSATISFIABLE;
	*out = (struct byte_range){first, last >= size ? size - 1 : last};
	return RANGE_PART;
}

bool range_parse_copy_source(const char *header, struct byte_range *out)
{
	struct byte_range r;

	if (!ascii_starts(header, "bytes="))
		return false;
	const char *p = header + strlen("bytes=");

	if (!take_u64(&p, false, &r.first) || *p++ != '-' || !take_u64(&p, false, &r.last) ||
		*p != '\0' || r.last < r.first || r.last - r.first == UINT64_MAX)
		return false;
	*out = r;
	return true;
}

bool range_parse_content(
	const char *header, struct byte_range *out, uint64_t *size, bool *satisfied)
{
	struct byte_range r = {0, 0};
	uint64_t total = RANGE_UNKNOWN_SIZE;
	bool part;

	if (!ascii_starts(header, "bytes") || (header[5] != ' ' && header[5] != '\t'))
		return false;
	const char *p = skip_blanks(header + 5);

	part = *p != '*';
	if (!part)
		p++;
	else if (!take_u64(&p, false, &r.first) || *p++ != '-' || !take_u64(&p, false, &r.last) ||
		 r.last < r.first)
		return false;
	if (*p++ != '/')
		return false;
	if (*p == '*')
		p++;
	else if (!take_u64(&p, false, &total) || total == RANGE_UNKNOWN_SIZE)
		return false;
	if (*skip_blanks(p) != '\0')
		return false;
	if (part && total != RANGE_UNKNOWN_SIZE && r.last >= total)
		return false;
	if (!part && total == RANGE_UNKNOWN_SIZE)
		return false;
	/* The length must fit into 64 bits, too, or byte_range_length() wraps to 0. */
	if (part && r.last - r.first == UINT64_MAX)
		return false;
	if (part)
		*out = r;
	*size = total;
	*satisfied = part;
	return true;
}

void range_format_request(const struct byte_range *r, char out[static RANGE_TEXT_SIZE])
{
	snprintf(out, RANGE_TEXT_SIZE, "bytes=%" PRIu64 "-%" PRIu64, r->first, r->last);
}

void range_format_content(
	const struct byte_range *r, uint64_t size, char out[static RANGE_TEXT_SIZE])
{
	snprintf(out, RANGE_TEXT_SIZE, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, r->first, r->last,
		size);
}

void range_format_unsatisfied(uint64_t size, char out[static RANGE_TEXT_SIZE])
{
	snprintf(out, RANGE_TEXT_SIZE, "bytes */%" PRIu64, size);
}
