/*
 * A permutation of 0 to n - 1 that needs no table: each element is computed in the same short time.
 *
 *	struct permute p;
 *
 *	permute_init(&p, n, key);	// 0 <= n <= 2^63
 *	x = permute_at(&p, i);	// i < n
 *	i = permute_inverse(&p, x);
 *
 * Equal n and key give equal permutations on every machine. permute.c has the network.
 */
#ifndef DATASET_ORDER_PERMUTE_H
#define DATASET_ORDER_PERMUTE_H

#include <stdint.h>

struct permute {
	uint64_t n;
	uint64_t key;
	uint64_t left; /* number of values of the left half */
	unsigned right_bits; /* bits of the right half */
	unsigned rounds; /* even */
};

void permute_init(struct permute *p, uint64_t n, uint64_t key);
uint64_t permute_at(const struct permute *p, uint64_t i);
uint64_t permute_inverse(const struct permute *p, uint64_t x);

#endif
