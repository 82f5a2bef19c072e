/*
 * A Feistel network with cycle walking (Black, Rogaway: "Ciphers with Arbitrary Finite Domains",
 * CT-RSA 2002). The right half of a number is the lower half of its bits; the left half has the
 * upper bits, with values from 0 to ceil(n / 2^right_bits) - 1. Rounds add to the left half modulo
 * its size, and XOR the right half, in turn. The domain of the network is larger than n by less
 * than 2^right_bits, which is about the square root of n. So a result is rarely n or more, in which
 * case it is permuted again.
 */
#include "dataset/order/permute.h"

#include "base/must.h"
#include "dataset/order/key.h"

/* Returns the number of rounds after which the results have the statistics of random permutations.
 * Small halves mix slowly, because a round changes few bits. docs/decisions/datasets.md has the
 * measurement. */
static unsigned rounds_for(unsigned right_bits)
{
	if (right_bits <= 1)
		return 24;
	return right_bits == 2 ? 12 : 8;
}

void permute_init(struct permute *p, uint64_t n, uint64_t key)
{
	unsigned bits = n > 1 ? 64 - (unsigned)__builtin_clzll(n - 1) : 0;

	MUST(n <= UINT64_C(1) << 63);
	p->n = n;
	p->key = key;
	p->right_bits = bits / 2;
	p->left = (n + (UINT64_C(1) << p->right_bits) - 1) >> p->right_bits;
	p->rounds = rounds_for(p->right_bits);
}

/* Returns 32 bits from a half and the number of the round. */
static inline uint64_t hash(const struct permute *p, unsigned round, uint64_t half)
{
	return key_mix((p->key + (round + 1) * KEY_STEP) ^ half) >> 32;
}

static inline uint64_t left_hash(const struct permute *p, unsigned round, uint64_t right)
{
	return (hash(p, round, right) * p->left) >> 32;
}

static inline uint64_t right_hash(const struct permute *p, unsigned round, uint64_t left)
{
	return hash(p, round, left) & ((UINT64_C(1) << p->right_bits) - 1);
}

uint64_t permute_at(const struct permute *p, uint64_t i)
{
	uint64_t x = i;

	MUST(i < p->n);
	do {
		uint64_t left = x >> p->right_bits;
		uint64_t right = x & ((UINT64_C(1) << p->right_bits) - 1);

		for (unsigned round = 0; round < p->rounds; round += 2) {
			left += left_hash(p, round, right);
			left -= left >= p->left ? p->left : 0;
			right ^= right_hash(p, round + 1, left);
		}
		x = left << p->right_bits | right;
	} while (x >= p->n);
	return x;
}

uint64_t permute_inverse(const struct permute *p, uint64_t x)
{
	uint64_t i = x;

	MUST(x < p->n);
	do {
		uint64_t left = i >> p->right_bits;
		uint64_t right = i & ((UINT64_C(1) << p->right_bits) - 1);

		for (unsigned round = p->rounds; round > 0; round -= 2) {
			uint64_t added;

			right ^= right_hash(p, round - 1, left);
			added = left_hash(p, round - 2, right);
			left += left < added ? p->left - added : -added;
		}
		i = left << p->right_bits | right;
	} while (i >= p->n);
	return i;
}
