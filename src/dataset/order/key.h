/*
 * Keys of permutations: 64 bits, computed from a seed and from numbers that identify what is
 * permuted.
 *
 *	uint64_t key = key_of(seed, epoch, set, KEY_BLOCKS);
 *	uint64_t inner = key_more(key, window);
 *
 * The mixer is the finalizer of SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom
 * Number Generators", OOPSLA 2014), with the constants of variant 13 of Stafford ("Better Bit
 * Mixing", 2011). The mixer is a bijection, so that different numbers give different keys. The keys
 * are not for secrets.
 */
#ifndef DATASET_ORDER_KEY_H
#define DATASET_ORDER_KEY_H

#include <stdint.h>

/* 2^64 divided by the golden ratio, as in SplitMix64. */
#define KEY_STEP UINT64_C(0x9e3779b97f4a7c15)

/* A change of these numbers changes the order of samples in all training runs. */
enum key_use { KEY_FULL = 1, KEY_BLOCKS = 2, KEY_WINDOWS = 3, KEY_ORDER = 4, KEY_MIX = 5 };

static inline uint64_t key_mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static inline uint64_t key_more(uint64_t key, uint64_t number)
{
	return key_mix((key ^ number) + KEY_STEP);
}

static inline uint64_t key_of(uint64_t seed, uint64_t epoch, uint64_t set, enum key_use use)
{
	return key_more(key_more(key_more(key_more(0, seed), epoch), set), use);
}

#endif
