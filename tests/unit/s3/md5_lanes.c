/* MD5s that are computed in parallel equal those of OpenSSL. */
#include "s3_test.h"

#include "s3/sum/checksum.h"
#include "s3/sum/md5_lanes.h"

#define BLOCKS 130
#define TAIL   200

static unsigned char data[MD5_LANES][BLOCKS * MD5_BLOCK + TAIL];

static void fill(void)
{
	uint32_t x = 1;

	for (size_t i = 0; i < MD5_LANES; i++)
		for (size_t j = 0; j < sizeof(data[i]); j++) {
			x = x * 1664525 + 1013904223;
			data[i][j] = (unsigned char)(x >> 24);
		}
}

/* Makes two updates of all lanes, the first one with `first` blocks, and ends each lane with a tail
 * of a different length. */
static void check(size_t n, size_t first, size_t second)
{
	struct md5_lane lanes[MD5_LANES];
	const unsigned char *from[MD5_LANES];
	size_t at = first * MD5_BLOCK, end = (first + second) * MD5_BLOCK;

	for (size_t i = 0; i < n; i++) {
		md5_lane_begin(&lanes[i]);
		from[i] = data[i];
	}
	md5_lanes_update(lanes, n, from, at);
	for (size_t i = 0; i < n; i++)
		from[i] = data[i] + at;
	md5_lanes_update(lanes, n, from, end - at);
	for (size_t i = 0; i < n; i++) {
		size_t tail = (end + 7 * i + first) % TAIL;
		uint8_t got[CHECKSUM_MAX_SIZE], want[CHECKSUM_MAX_SIZE];

		md5_lane_end(&lanes[i], data[i] + end, tail, got);
		assert_int_equal(checksum_of(CHECKSUM_MD5, data[i], end + tail, want, NULL), 0);
		assert_memory_equal(got, want, 16);
	}
}

static void each_lane_has_the_digest_of_its_own_message(void **state)
{
	(void)state;
	fill();

	for (size_t n = 1; n <= MD5_LANES; n++)
		for (size_t blocks = 0; blocks <= BLOCKS; blocks += 13)
			for (size_t first = 0; first <= blocks; first += 5)
				check(n, first, blocks - first);
}

/* Tests the padding for all lengths near the block size. */
static void messages_end_anywhere(void **state)
{
	(void)state;
	fill();

	for (size_t len = 0; len <= TAIL; len++) {
		struct md5_lane lane;
		uint8_t got[CHECKSUM_MAX_SIZE], want[CHECKSUM_MAX_SIZE];

		md5_lane_begin(&lane);
		md5_lane_end(&lane, data[0], len, got);
		assert_int_equal(checksum_of(CHECKSUM_MD5, data[0], len, want, NULL), 0);
		assert_memory_equal(got, want, 16);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_lane_has_the_digest_of_its_own_message),
		cmocka_unit_test(messages_end_anywhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
