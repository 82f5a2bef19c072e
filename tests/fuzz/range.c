/* Range, Content-Range and x-amz-copy-source-range; the first byte gives the object's size. */
#include "fuzz.h"

#include "s3/range.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct byte_range r;
	uint64_t object, total;
	bool satisfied;
	char text[RANGE_TEXT_SIZE];

	if (size < 1)
		return 0;
	_cleanup_free_ char *header = fuzz_text(data + 1, size - 1);

	object = data[0] < 64 ? data[0] : UINT64_MAX >> (data[0] - 64) % 64;
	if (range_parse(header, object, &r) == RANGE_PART) {
		require(r.first <= r.last && r.last < object);
		require(byte_range_length(&r) <= object);
	}
	if (range_parse_copy_source(header, &r)) {
		require(r.first <= r.last && byte_range_length(&r) > 0);
		range_format_request(&r, text);
	}
	if (range_parse_content(header, &r, &total, &satisfied)) {
		if (satisfied) {
			require(r.first <= r.last && byte_range_length(&r) > 0);
			require(total == RANGE_UNKNOWN_SIZE || r.last < total);
			range_format_content(&r, total, text);
		} else {
			require(total != RANGE_UNKNOWN_SIZE);
			range_format_unsatisfied(total, text);
		}
	}
	return 0;
}
