/* The three CRCs and their combination; the rest of checksum.h is in checksum.c. */
#include "s3/sum/checksum.h"

#include <endian.h>
#include <limits.h>
#include <string.h>

#include <isa-l/crc.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "s3/sum/crc.h"
#include "s3/crc64_tables.h"

/* ISA-L takes signed or 64-bit lengths, depending on the function; pieces of 1 GiB fit all. */
#define PIECE ((size_t)1 << 30)

uint32_t crc32_update(uint32_t crc, const void *data, size_t len)
{
	return crc32_gzip_refl(crc, data, len);
}

uint32_t crc32c_update(uint32_t crc, const void *data, size_t len)
{
	/* ISA-L takes a non-const pointer, but does not write. */
	unsigned char *p = (unsigned char *)(uintptr_t)data;

	crc = ~crc;
	while (len > 0) {
		size_t n = len < PIECE ? len : PIECE;

		crc = crc32_iscsi(p, (int)n, crc);
		p += n;
		len -= n;
	}
	return ~crc;
}

static uint64_t crc64_bytes(uint64_t state, const uint8_t *p, size_t len)
{
	for (; len >= 8; len -= 8, p += 8) {
		uint64_t word;

		memcpy(&word, p, 8);
		state ^= le64toh(word);
		state = crc64_table[7][state & 0xff] ^ crc64_table[6][state >> 8 & 0xff] ^
			crc64_table[5][state >> 16 & 0xff] ^ crc64_table[4][state >> 24 & 0xff] ^
			crc64_table[3][state >> 32 & 0xff] ^ crc64_table[2][state >> 40 & 0xff] ^
			crc64_table[1][state >> 48 & 0xff] ^ crc64_table[0][state >> 56];
	}
	while (len-- > 0)
		state = crc64_table[0][(state ^ *p++) & 0xff] ^ state >> 8;
	return state;
}

#if defined(__x86_64__)
#define FOLDING __attribute__((target("pclmul,sse2")))

FOLDING static inline __m128i fold(__m128i v, __m128i by)
{
	return _mm_xor_si128(_mm_clmulepi64_si128(v, by, 0x00), _mm_clmulepi64_si128(v, by, 0x11));
}

FOLDING static inline __m128i load(const uint8_t *p)
{
	return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/*
 * Folds the data into a 16-byte remainder with the same CRC: first four remainders in parallel, 64
 * bytes at a time; then the four are joined, and folded over 16 bytes at a time. The tables process
 * the remainder and the last bytes. `len` is at least 64.
 */
FOLDING static uint64_t crc64_fold(uint64_t state, const uint8_t *p, size_t len)
{
	const __m128i by512 = _mm_set_epi64x(
		(int64_t)CRC64_FOLD_512_HIGH, (int64_t)CRC64_FOLD_512_LOW);
	const __m128i by128 = _mm_set_epi64x(
		(int64_t)CRC64_FOLD_128_HIGH, (int64_t)CRC64_FOLD_128_LOW);
	__m128i a = _mm_xor_si128(load(p), _mm_set_epi64x(0, (int64_t)state));
	__m128i b = load(p + 16), c = load(p + 32), d = load(p + 48);
	uint8_t rest[16];

	for (p += 64, len -= 64; len >= 64; p += 64, len -= 64) {
		a = _mm_xor_si128(fold(a, by512), load(p));
		b = _mm_xor_si128(fold(b, by512), load(p + 16));
		c = _mm_xor_si128(fold(c, by512), load(p + 32));
		d = _mm_xor_si128(fold(d, by512), load(p + 48));
	}
	b = _mm_xor_si128(b, fold(a, by128));
	c = _mm_xor_si128(c, fold(b, by128));
	d = _mm_xor_si128(d, fold(c, by128));
	for (; len >= 16; p += 16, len -= 16)
		d = _mm_xor_si128(fold(d, by128), load(p));
	_mm_storeu_si128((__m128i *)(void *)rest, d);
	return crc64_bytes(crc64_bytes(0, rest, sizeof(rest)), p, len);
}
#endif

uint64_t crc64nvme_update_portable(uint64_t crc, const void *data, size_t len)
{
	return ~crc64_bytes(~crc, data, len);
}

uint64_t crc64nvme_update(uint64_t crc, const void *data, size_t len)
{
#if defined(__x86_64__)
	if (len >= 64 && __builtin_cpu_supports("pclmul"))
		return ~crc64_fold(~crc, data, len);
#endif
	return crc64nvme_update_portable(crc, data, len);
}

/* Returns a * b mod the polynomial, all reflected to `width` bits. */
static uint64_t multiply(uint64_t a, uint64_t b, uint64_t polynomial, int width)
{
	uint64_t product = 0;

	for (int i = width - 1; i >= 0; i--) {
		if (a >> i & 1)
			product ^= b;
		b = b & 1 ? b >> 1 ^ polynomial : b >> 1;
	}
	return product;
}

uint64_t crc_combine(uint64_t polynomial, int width, uint64_t crc_a, uint64_t crc_b, uint64_t b_len)
{
	uint64_t shift = UINT64_C(1) << (width - 1); /* x^0 */
	uint64_t square = UINT64_C(1) << (width - 9); /* x^8: one byte */

	/* A followed by b_len zero bytes has the CRC A * x^(8 * b_len); the inversions of both CRCs
	 * cancel in the result. */
	for (; b_len > 0; b_len >>= 1) {
		if (b_len & 1)
			shift = multiply(square, shift, polynomial, width);
		square = multiply(square, square, polynomial, width);
	}
	return multiply(shift, crc_a, polynomial, width) ^ crc_b;
}
