#include "s3_test.h"

#include "s3/sum/checksum.h"
#include "s3/multipart.h"

#define TIB (UINT64_C(1) << 40)

static void part_sizes_fit_every_object_into_10000_parts(void **state)
{
	static const struct {
		uint64_t total, wanted, size;
	} rows[] = {
		{0, 0, 8 * MIB},
		{1, 0, 8 * MIB},
		{80000 * MIB, 0, 8 * MIB},
		{80000 * MIB + 1, 0, 9 * MIB},
		{100, 1, 5 * MIB},
		{100, 64 * MIB, 64 * MIB},
		{100, 7 * MIB + 1, 7 * MIB + 1},
		{100, 6 * GIB, 5 * GIB},
		{5 * TIB, 0, 525 * MIB},
		{5 * TIB, 5 * GIB, 5 * GIB},
	};
	uint64_t size;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(
			multipart_part_size(rows[i].total, rows[i].wanted, &size, NULL), 0);
		assert_int_equal(size, rows[i].size);
		assert_true(multipart_count(rows[i].total, size) <= LIMIT_S3_PARTS);
	}
	assert_int_equal(multipart_part_size(5 * TIB + 1, 0, &size, NULL), -PENSTOCK_E_LIMIT);
}

/* The parts do not overlap, are in order, and cover the whole object. */
static void parts_cover_the_object(void **state)
{
	static const uint64_t totals[] = {0, 1, 99, 100, 101, 12345, 1000000};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(totals); i++) {
		uint64_t at = 0, offset, length;
		uint64_t n = multipart_count(totals[i], 100);

		for (unsigned part = 1; part <= n; part++) {
			assert_true(multipart_range(totals[i], 100, part, &offset, &length));
			assert_int_equal(offset, at);
			assert_true(length == 100 || part == n);
			at += length;
		}
		assert_int_equal(at, totals[i]);
		assert_false(multipart_range(totals[i], 100, (unsigned)n + 1, &offset, &length));
		assert_false(multipart_range(totals[i], 100, 0, &offset, &length));
	}
}

static void growing_parts_reach_the_largest_object(void **state)
{
	uint64_t total = 0, before = 0;

	(void)state;
	for (unsigned part = 1; part <= LIMIT_S3_PARTS; part++) {
		uint64_t size = multipart_growing_size(part);

		assert_true(
			size >= before && size >= LIMIT_S3_PART_MIN && size <= LIMIT_S3_PART_MAX);
		before = size;
		total += size;
	}
	assert_true(total >= LIMIT_S3_OBJECT_MAX);
	assert_int_equal(multipart_growing_size(1), 8 * MIB);
}

/* These ETags were observed on many stores, for uploads of one empty part and of two parts. */
static void etags_are_those_of_s3(void **state)
{
	uint8_t md5[3][16], digest[CHECKSUM_MAX_SIZE];
	char etag[MULTIPART_ETAG_SIZE];

	(void)state;
	checksum_of(CHECKSUM_MD5, "", 0, digest, NULL);
	memcpy(md5[0], digest, 16);
	memcpy(md5[1], digest, 16);
	assert_int_equal(multipart_etag((const uint8_t(*)[16])md5, 1, etag, NULL), 0);
	assert_string_equal(etag, "\"59adb24ef3cdbe0297f05b395827453f-1\"");
	assert_int_equal(multipart_etag((const uint8_t(*)[16])md5, 2, etag, NULL), 0);
	assert_string_equal(etag, "\"5873dd45edd01f09c1ef2e7819369e8e-2\"");
	assert_int_equal(
		multipart_etag((const uint8_t(*)[16])md5, 0, etag, NULL), -PENSTOCK_E_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(part_sizes_fit_every_object_into_10000_parts),
		cmocka_unit_test(parts_cover_the_object),
		cmocka_unit_test(growing_parts_reach_the_largest_object),
		cmocka_unit_test(etags_are_those_of_s3),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
