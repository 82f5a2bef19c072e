/* MD5 (RFC 1321) of eight messages at a time, or of one. */
#include "s3/sum/md5_lanes.h"

#include <endian.h>
#include <string.h>

/* One word of each lane; the compiler maps this type to the processor's vectors. */
typedef uint32_t lanes8 __attribute__((vector_size(4 * MD5_LANES)));

static const uint32_t begin[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};

/* The first 32 bits of the fraction of |sin(i + 1)|. */
static const uint32_t sines[64] = {
	0xd76aa478,
	0xe8c7b756,
	0x242070db,
	0xc1bdceee,
	0xf57c0faf,
	0x4787c62a,
	0xa8304613,
	0xfd469501,
	0x698098d8,
	0x8b44f7af,
	0xffff5bb1,
	0x895cd7be,
	0x6b901122,
	0xfd987193,
	0xa679438e,
	0x49b40821,
	0xf61e2562,
	0xc040b340,
	0x265e5a51,
	0xe9b6c7aa,
	0xd62f105d,
	0x02441453,
	0xd8a1e681,
	0xe7d3fbc8,
	0x21e1cde6,
	0xc33707d6,
	0xf4d50d87,
	0x455a14ed,
	0xa9e3e905,
	0xfcefa3f8,
	0x676f02d9,
	0x8d2a4c8a,
	0xfffa3942,
	0x8771f681,
	0x6d9d6122,
	0xfde5380c,
	0xa4beea44,
	0x4bdecfa9,
	0xf6bb4b60,
	0xbebfbc70,
	0x289b7ec6,
	0xeaa127fa,
	0xd4ef3085,
	0x04881d05,
	0xd9d4d039,
	0xe6db99e5,
	0x1fa27cf8,
	0xc4ac5665,
	0xf4292244,
	0x432aff97,
	0xab9423a7,
	0xfc93a039,
	0x655b59c3,
	0x8f0ccc92,
	0xffeff47d,
	0x85845dd1,
	0x6fa87e4f,
	0xfe2ce6e0,
	0xa3014314,
	0x4e0811a1,
	0xf7537e82,
	0xbd3af235,
	0x2ad7d2bb,
	0xeb86d391,
};

/* Each macro operates on one message, or on all lanes. */
#define ROTATED(x, by)	     ((x) << (by) | (x) >> (32 - (by)))
#define CHOOSE(b, c, d)	     ((d) ^ ((b) & ((c) ^ (d))))
#define CHOOSE_LAST(b, c, d) ((c) ^ ((d) & ((b) ^ (c))))
#define PARITY(b, c, d)	     ((b) ^ (c) ^ (d))
#define OR_NOT(b, c, d)	     ((c) ^ ((b) | ~(d)))
#define STEP(f, a, b, c, d, word, i, by)                                                           \
	do {                                                                                       \
		(a) += f(b, c, d) + words[(word)&15] + sines[i];                                   \
		(a) = ROTATED(a, by) + (b);                                                        \
	} while (0)
/* Four steps, after which the variables are back in their places. */
#define FOUR(f, i, by, first, by0, by1, by2, by3)                                                  \
	do {                                                                                       \
		STEP(f, a, b, c, d, (first) + (by) * (i), i, by0);                                 \
		STEP(f, d, a, b, c, (first) + (by) * ((i) + 1), (i) + 1, by1);                     \
		STEP(f, c, d, a, b, (first) + (by) * ((i) + 2), (i) + 2, by2);                     \
		STEP(f, b, c, d, a, (first) + (by) * ((i) + 3), (i) + 3, by3);                     \
	} while (0)
#define ROUND(f, i, by, first, by0, by1, by2, by3)                                                 \
	do {                                                                                       \
		FOUR(f, i, by, first, by0, by1, by2, by3);                                         \
		FOUR(f, (i) + 4, by, first, by0, by1, by2, by3);                                   \
		FOUR(f, (i) + 8, by, first, by0, by1, by2, by3);                                   \
		FOUR(f, (i) + 12, by, first, by0, by1, by2, by3);                                  \
	} while (0)
#define ROUNDS                                                                                     \
	do {                                                                                       \
		ROUND(CHOOSE, 0, 1, 0, 7, 12, 17, 22);                                             \
		ROUND(CHOOSE_LAST, 16, 5, 1, 5, 9, 14, 20);                                        \
		ROUND(PARITY, 32, 3, 5, 4, 11, 16, 23);                                            \
		ROUND(OR_NOT, 48, 7, 0, 6, 10, 15, 21);                                            \
	} while (0)

static uint32_t word_at(const unsigned char *data)
{
	uint32_t word;

	memcpy(&word, data, sizeof(word));
	return le32toh(word);
}

static void one_block(uint32_t state[static 4], const unsigned char *data)
{
	uint32_t words[16], a = state[0], b = state[1], c = state[2], d = state[3];

	for (int i = 0; i < 16; i++)
		words[i] = word_at(data + (size_t)4 * (size_t)i);
	ROUNDS;
	state[0] += a;
	state[1] += b;
	state[2] += c;
	state[3] += d;
}

static inline __attribute__((always_inline)) void eight(
	lanes8 state[static 4], const unsigned char *const data[static MD5_LANES], size_t len)
{
	lanes8 words[16];

	for (size_t at = 0; at < len; at += MD5_BLOCK) {
		lanes8 a = state[0], b = state[1], c = state[2], d = state[3];

		for (size_t i = 0; i < 16; i++) {
			size_t place = at + 4 * i;

			words[i] = (lanes8){word_at(data[0] + place), word_at(data[1] + place),
				word_at(data[2] + place), word_at(data[3] + place),
				word_at(data[4] + place), word_at(data[5] + place),
				word_at(data[6] + place), word_at(data[7] + place)};
		}
		ROUNDS;
		state[0] += a;
		state[1] += b;
		state[2] += c;
		state[3] += d;
	}
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void eight_avx2(
	lanes8 state[static 4], const unsigned char *const data[static MD5_LANES], size_t len)
{
	eight(state, data, len);
}

__attribute__((target("avx2,avx512f,avx512vl"))) static void eight_avx512(
	lanes8 state[static 4], const unsigned char *const data[static MD5_LANES], size_t len)
{
	eight(state, data, len);
}
#endif

static void eight_any(
	lanes8 state[static 4], const unsigned char *const data[static MD5_LANES], size_t len)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512vl")) {
		eight_avx512(state, data, len);
		return;
	}
	if (__builtin_cpu_supports("avx2")) {
		eight_avx2(state, data, len);
		return;
	}
#endif
	eight(state, data, len);
}

void md5_lane_begin(struct md5_lane *lane)
{
	memcpy(lane->state, begin, sizeof(begin));
	lane->length = 0;
}

void md5_lanes_update(
	struct md5_lane *lanes, size_t n, const unsigned char *const data[], size_t len)
{
	const unsigned char *from[MD5_LANES];
	lanes8 state[4];

	for (size_t i = 0; i < n; i++)
		lanes[i].length += len;
	if (n == 1) {
		for (size_t at = 0; at < len; at += MD5_BLOCK)
			one_block(lanes[0].state, data[0] + at);
		return;
	}
	/* Unused lanes repeat the first message. */
	for (size_t i = 0; i < MD5_LANES; i++) {
		size_t of = i < n ? i : 0;

		from[i] = data[of];
		for (size_t k = 0; k < 4; k++)
			state[k][i] = lanes[of].state[k];
	}
	eight_any(state, from, len);
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < 4; k++)
			lanes[i].state[k] = state[k][i];
}

void md5_lane_end(
	struct md5_lane *lane, const unsigned char *data, size_t len, uint8_t digest[static 16])
{
	unsigned char last[2 * MD5_BLOCK] = {0};
	uint64_t bits = htole64((lane->length + len) * 8);
	size_t whole = len - len % MD5_BLOCK, rest = len % MD5_BLOCK;
	size_t end = rest < MD5_BLOCK - 8 ? MD5_BLOCK : 2 * MD5_BLOCK;

	for (size_t at = 0; at < whole; at += MD5_BLOCK)
		one_block(lane->state, data + at);
	if (rest)
		memcpy(last, data + whole, rest);
	last[rest] = 0x80;
	memcpy(last + end - sizeof(bits), &bits, sizeof(bits));
	for (size_t at = 0; at < end; at += MD5_BLOCK)
		one_block(lane->state, last + at);
	for (size_t k = 0; k < 4; k++) {
		uint32_t word = htole32(lane->state[k]);

		memcpy(digest + 4 * k, &word, sizeof(word));
	}
}
