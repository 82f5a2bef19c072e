#include "s3/multipart.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/sum/checksum.h"

int multipart_part_size(
	uint64_t total, uint64_t wanted, uint64_t *part_size, struct penstock_error *err)
{
	uint64_t size = wanted ? wanted : LIMIT_S3_PART_DEFAULT;

	if (total > LIMIT_S3_OBJECT_MAX)
		return error_set(err, PENSTOCK_E_LIMIT,
			"%" PRIu64 " bytes exceed the maximum size of an object (5 TiB)", total);
	if (size < LIMIT_S3_PART_MIN)
		size = LIMIT_S3_PART_MIN;
	if (size > LIMIT_S3_PART_MAX)
		size = LIMIT_S3_PART_MAX;
	if (multipart_count(total, size) > LIMIT_S3_PARTS) {
		size = (total + LIMIT_S3_PARTS - 1) / LIMIT_S3_PARTS;
		size = (size + MIB - 1) / MIB * MIB;
	}
	*part_size = size;
	return 0;
}

uint64_t multipart_count(uint64_t total, uint64_t part_size)
{
	if (total == 0 || part_size == 0)
		return 1;
	return total / part_size + (total % part_size != 0);
}

bool multipart_range(
	uint64_t total, uint64_t part_size, unsigned number, uint64_t *offset, uint64_t *length)
{
	if (number < 1 || number > LIMIT_S3_PARTS || number > multipart_count(total, part_size))
		return false;
	uint64_t start = (uint64_t)(number - 1) * part_size;

	*offset = start;
	*length = total - start < part_size ? total - start : part_size;
	return true;
}

uint64_t multipart_growing_size(unsigned number)
{
	/* Doubles every 1,000 parts: 1,000 * 8 MiB * (2^10 - 1) is 7.8 TiB in 10,000 parts. */
	unsigned step = number > 0 ? (number - 1) / 1000 : 0;

	return (uint64_t)LIMIT_S3_PART_DEFAULT << (step < 9 ? step : 9);
}

int multipart_etag(const uint8_t (*part_md5)[16], size_t n, char out[static MULTIPART_ETAG_SIZE],
	struct penstock_error *err)
{
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char hex[33];

	if (n < 1 || n > LIMIT_S3_PARTS)
		return error_set(err, PENSTOCK_E_INVALID, "an upload has 1 to %d parts, not %zu",
			LIMIT_S3_PARTS, n);
	int rc = checksum_of(CHECKSUM_MD5, part_md5, n * sizeof(*part_md5), digest, err);

	if (rc < 0)
		return rc;
	str_hex(digest, 16, hex);
	snprintf(out, MULTIPART_ETAG_SIZE, "\"%s-%zu\"", hex, n);
	return 0;
}
