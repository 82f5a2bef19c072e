#include "s3/range.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "s3/ascii.h"
#include "base/banned.h"

/* Reads decimal digits at *at. Returns false if there are none or the number does not fit. */
static bool take_u64(const char **at, uint64_t *out)
{
	uint64_t value = 0;
	const char *p = *at;

	if (*p < '0' || *p > '9')
		return false;
	for (; *p >= '0' && *p <= '9'; p++) {
		uint64_t digit = (uint64_t)(*p - '0');

		if (value > (UINT64_MAX - digit) / 10)
			return false;
		value = value * 10 + digit;
	}
	*at = p;
	*out = value;
	return true;
}

static const char *skip_blanks(const char *p)
{
	while (*p == ' ' || *p == '\t')
		p++;
	return p;
}

/* Reads any number of digits; values above 64 bits become UINT64_MAX. */
static bool take_clamped(const char **at, uint64_t *out)
{
	const char *p = *at;

	if (*p < '0' || *p > '9')
		return false;
	if (!take_u64(at, out)) {
		*out = UINT64_MAX;
		while (*p >= '0' && *p <= '9')
			p++;
		*at = p;
	}
	return true;
}

enum range_result range_parse(const char *header, uint64_t size, struct byte_range *out)
{
	uint64_t first = 0, last = UINT64_MAX;
	bool suffix;

	if (!header || !ascii_starts(header, "bytes="))
		return RANGE_WHOLE;
	const char *p = skip_blanks(header + strlen("bytes="));

	suffix = *p == '-';
	if (!suffix && !take_clamped(&p, &first))
		return RANGE_WHOLE;
	if (*p++ != '-')
		return RANGE_WHOLE;
	bool has_last = take_clamped(&p, &last);

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

	if (!take_u64(&p, &r.first) || *p++ != '-' || !take_u64(&p, &r.last) || *p != '\0' ||
		r.last < r.first || r.last - r.first == UINT64_MAX)
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
	else if (!take_u64(&p, &r.first) || *p++ != '-' || !take_u64(&p, &r.last) ||
		 r.last < r.first)
		return false;
	if (*p++ != '/')
		return false;
	if (*p == '*')
		p++;
	else if (!take_u64(&p, &total) || total == RANGE_UNKNOWN_SIZE)
		return false;
	if (*skip_blanks(p) != '\0')
		return false;
	if (part && total != RANGE_UNKNOWN_SIZE && r.last >= total)
		return false;
	if (!part && total == RANGE_UNKNOWN_SIZE)
		return false;
	/* The length must fit, too, or byte_range_length() wraps. */
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
