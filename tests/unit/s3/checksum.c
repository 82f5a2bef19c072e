#include "s3_test.h"

#include "base/str.h"
#include "s3/sum/checksum.h"
#include "s3/sum/crc.h"

/* Published check values. The CRCs are of "123456789"; the hashes are of "abc", from their
 * standards; the xxHashes are of "Hello world", from AWS's own tests. */
static void published_check_values_come_out(void **state)
{
	static const struct {
		enum checksum_kind kind;
		const char *data, *hex;
	} rows[] = {
		{CHECKSUM_CRC32, "123456789", "cbf43926"},
		{CHECKSUM_CRC32C, "123456789", "e3069283"},
		{CHECKSUM_CRC64NVME, "123456789", "ae8b14860a799888"},
		{CHECKSUM_SHA1, "abc", "a9993e364706816aba3e25717850c26c9cd0d89d"},
		{CHECKSUM_SHA256, "abc",
			"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
		{CHECKSUM_MD5, "abc", "900150983cd24fb0d6963f7d28e17f72"},
		{CHECKSUM_SHA512, "abc",
			"ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
			"2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"},
		{CHECKSUM_XXHASH64, "Hello world", "c500b0c912b376d8"},
		{CHECKSUM_XXHASH3, "Hello world", "b6acb9d84a38ff74"},
		{CHECKSUM_XXHASH128, "Hello world", "7351f89812f97382b91d05b31e04dd7f"},
		{CHECKSUM_CRC32, "", "00000000"},
		{CHECKSUM_CRC32C, "", "00000000"},
		{CHECKSUM_CRC64NVME, "", "0000000000000000"},
		{CHECKSUM_MD5, "", "d41d8cd98f00b204e9800998ecf8427e"},
		{CHECKSUM_XXHASH64, "", "ef46db3751d8e999"},
		{CHECKSUM_XXHASH3, "", "2d06800538d394c2"},
		{CHECKSUM_XXHASH128, "", "99aa06d3014798d86001c324468d497f"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint8_t digest[CHECKSUM_MAX_SIZE];
		char hex[2 * CHECKSUM_MAX_SIZE + 1];

		assert_int_equal(
			checksum_of(rows[i].kind, rows[i].data, strlen(rows[i].data), digest, NULL),
			0);
		str_hex(digest, checksum_size(rows[i].kind), hex);
		assert_string_equal(hex, rows[i].hex);
	}
}

/* Computes the CRC bit by bit from its definition, unlike the fast implementation. */
static uint64_t slow_crc64(const uint8_t *p, size_t len)
{
	uint64_t crc = ~UINT64_C(0);

	while (len-- > 0) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc & 1 ? crc >> 1 ^ CRC64NVME_POLYNOMIAL : crc >> 1;
	}
	return ~crc;
}

/* Tests all lengths near the block sizes of the fast implementation, at every alignment, in one
 * piece and in several. */
static void the_fast_crc64_equals_the_slow_one(void **state)
{
	_cleanup_free_ uint8_t *data = malloc(2048);

	(void)state;
	for (size_t i = 0; i < 2048; i++)
		data[i] = (uint8_t)(i * 167 + (i >> 3) * 13);
	for (size_t len = 0; len < 700; len++) {
		const uint8_t *p = data + len % 17;
		uint64_t expected = slow_crc64(p, len);
		uint64_t halves = crc64nvme_update(0, p, len / 3);

		assert_true(crc64nvme_update(0, p, len) == expected);
		assert_true(crc64nvme_update_portable(0, p, len) == expected);
		assert_true(crc64nvme_update(halves, p + len / 3, len - len / 3) == expected);
	}
}

/* Pieces of any size give the same checksum as one piece, and a reset starts over. */
static void incremental_equals_whole(void **state)
{
	_cleanup_free_ uint8_t *data = malloc(100000);

	(void)state;
	for (size_t i = 0; i < 100000; i++)
		data[i] = (uint8_t)(i ^ i >> 8);
	for (int k = CHECKSUM_NONE + 1; k < CHECKSUM_KIND_COUNT_; k++) {
		uint8_t whole[CHECKSUM_MAX_SIZE], pieces[CHECKSUM_MAX_SIZE];
		struct checksum c;

		checksum_of((enum checksum_kind)k, data, 100000, whole, NULL);
		assert_int_equal(checksum_init(&c, (enum checksum_kind)k, NULL), 0);
		checksum_update(&c, "to be forgotten", 15);
		checksum_final(&c, pieces);
		checksum_reset(&c);
		for (size_t at = 0, step = 1; at < 100000; at += step, step = step * 2 + 1)
			checksum_update(&c, data + at, step < 100000 - at ? step : 100000 - at);
		checksum_final(&c, pieces);
		checksum_release(&c);
		assert_memory_equal(whole, pieces, CHECKSUM_MAX_SIZE);
	}
}

/* The checksums of the parts, even of empty ones, give the checksum of the whole. */
static void parts_combine_into_the_whole(void **state)
{
	static const enum checksum_kind kinds[] = {
		CHECKSUM_CRC32, CHECKSUM_CRC32C, CHECKSUM_CRC64NVME};
	static const size_t cuts[] = {0, 1, 7, 64, 4096, 65536, 99999, 100000};
	_cleanup_free_ uint8_t *data = malloc(100000);

	(void)state;
	for (size_t i = 0; i < 100000; i++)
		data[i] = (uint8_t)(i * 31 + 7);
	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
		uint8_t whole[CHECKSUM_MAX_SIZE];

		checksum_of(kinds[k], data, 100000, whole, NULL);
		for (size_t i = 0; i < ARRAY_SIZE(cuts); i++) {
			uint8_t a[CHECKSUM_MAX_SIZE], b[CHECKSUM_MAX_SIZE];

			checksum_of(kinds[k], data, cuts[i], a, NULL);
			checksum_of(kinds[k], data + cuts[i], 100000 - cuts[i], b, NULL);
			checksum_combine(kinds[k], a, b, 100000 - cuts[i]);
			assert_memory_equal(a, whole, checksum_size(kinds[k]));
		}
	}
}

/* Combining must be fast for parts of terabytes. The checksum of that many zeros is computed by
 * doubling. */
static void combining_reaches_terabytes(void **state)
{
	uint8_t zeros[CHECKSUM_MAX_SIZE], doubled[CHECKSUM_MAX_SIZE], direct[CHECKSUM_MAX_SIZE];
	_cleanup_free_ uint8_t *mebibyte = calloc(1, 1 << 20);
	uint64_t len = 1 << 20;

	(void)state;
	checksum_of(CHECKSUM_CRC64NVME, mebibyte, len, zeros, NULL);
	memcpy(doubled, zeros, sizeof(doubled));
	for (int i = 0; i < 3; i++, len *= 2) {
		uint8_t copy[CHECKSUM_MAX_SIZE];

		memcpy(copy, doubled, sizeof(copy));
		checksum_combine(CHECKSUM_CRC64NVME, doubled, copy, len);
	}
	memcpy(direct, zeros, sizeof(direct));
	for (int i = 0; i < 7; i++)
		checksum_combine(CHECKSUM_CRC64NVME, direct, zeros, 1 << 20);
	assert_memory_equal(doubled, direct, 8);
	for (; len < UINT64_C(4) << 40; len *= 2) {
		uint8_t copy[CHECKSUM_MAX_SIZE];

		memcpy(copy, doubled, sizeof(copy));
		checksum_combine(CHECKSUM_CRC64NVME, doubled, copy, len);
	}
	assert_memory_not_equal(doubled, zeros, 8);
}

static void names_are_those_of_headers_and_documents(void **state)
{
	(void)state;
	assert_string_equal(checksum_header(CHECKSUM_CRC64NVME), "x-amz-checksum-crc64nvme");
	assert_string_equal(checksum_name(CHECKSUM_CRC32C), "CRC32C");
	assert_string_equal(checksum_element(CHECKSUM_SHA1), "ChecksumSHA1");
	assert_string_equal(checksum_header(CHECKSUM_XXHASH128), "x-amz-checksum-xxhash128");
	assert_string_equal(checksum_element(CHECKSUM_MD5), "ChecksumMD5");
	assert_null(checksum_name(CHECKSUM_NONE));
	for (int k = CHECKSUM_NONE + 1; k < CHECKSUM_KIND_COUNT_; k++) {
		enum checksum_kind kind = (enum checksum_kind)k;

		assert_int_equal(checksum_find(checksum_header(kind)), kind);
		assert_int_equal(checksum_find(checksum_name(kind)), kind);
		assert_int_equal(checksum_find(checksum_element(kind)), kind);
	}
	assert_int_equal(checksum_find("X-Amz-Checksum-Sha256"), CHECKSUM_SHA256);
	assert_int_equal(checksum_find("crc64nvme"), CHECKSUM_CRC64NVME);
	assert_int_equal(checksum_find("crc"), CHECKSUM_NONE);
	assert_int_equal(checksum_find(""), CHECKSUM_NONE);
}

/* The value of a header is accepted only if it is the base64 of a digest of that algorithm. */
static void digests_are_written_and_read_as_base64(void **state)
{
	uint8_t digest[CHECKSUM_MAX_SIZE] = {0}, back[CHECKSUM_MAX_SIZE];
	char text[CHECKSUM_TEXT_SIZE];

	(void)state;
	checksum_of(CHECKSUM_CRC32C, "123456789", 9, digest, NULL);
	checksum_format(CHECKSUM_CRC32C, digest, text);
	assert_string_equal(text, "4waSgw==");
	assert_true(checksum_parse(CHECKSUM_CRC32C, text, back));
	assert_memory_equal(digest, back, 4);
	checksum_of(CHECKSUM_SHA256, "", 0, digest, NULL);
	checksum_format(CHECKSUM_SHA256, digest, text);
	assert_string_equal(text, "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
	assert_true(checksum_parse(CHECKSUM_SHA256, text, back));
	checksum_of(CHECKSUM_SHA512, "", 0, digest, NULL);
	checksum_format(CHECKSUM_SHA512, digest, text);
	assert_int_equal(strlen(text), CHECKSUM_TEXT_SIZE - 1);
	assert_true(checksum_parse(CHECKSUM_SHA512, text, back));
	assert_memory_equal(digest, back, CHECKSUM_MAX_SIZE);

	static const char *const bad[] = {"", "4waSgw",
		"4waSgw=", "4waSgx==", "4waSg===", "4waSgw==\n", "4wa gw==", "47DEQpj8HBSa",
		"====", "4w=Sgw=="};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_row(!checksum_parse(CHECKSUM_CRC32C, bad[i], back), bad[i]);
}

static void base64_agrees_with_its_standard(void **state)
{
	static const char *const rows[][2] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="},
		{"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="},
		{"foobar", "Zm9vYmFy"}};
	static const char *const bad[] = {
		"Z", "Zg", "Zg=", "Zh==", "Zm9=", "Zg==Zg==", "Zm9v!A==", "=AAA", "Zm 9"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_(buf_release) struct buf text = BUF_INIT(100), back = BUF_INIT(100);

		assert_int_equal(base64_encode(&text, rows[i][0], strlen(rows[i][0])), 0);
		assert_string_equal(buf_str(&text), rows[i][1]);
		assert_int_equal(base64_decode(&back, buf_str(&text), text.len), 0);
		assert_string_equal(buf_str(&back), rows[i][0]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_(buf_release) struct buf back = BUF_INIT(100);

		assert_row(base64_decode(&back, bad[i], strlen(bad[i])) == -1, bad[i]);
		assert_int_equal(back.len, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_check_values_come_out),
		cmocka_unit_test(the_fast_crc64_equals_the_slow_one),
		cmocka_unit_test(incremental_equals_whole),
		cmocka_unit_test(parts_combine_into_the_whole),
		cmocka_unit_test(combining_reaches_terabytes),
		cmocka_unit_test(names_are_those_of_headers_and_documents),
		cmocka_unit_test(digests_are_written_and_read_as_base64),
		cmocka_unit_test(base64_agrees_with_its_standard),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
