/* Permutations without a table: bijective, the same on every machine, and statistically random. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "dataset/order/key.h"
#include "dataset/order/permute.h"

#define LARGEST (UINT64_C(1) << 63)

/* The expected values come from a second implementation, in Python. */
static void test_permutations_are_the_same_on_every_machine(void **state)
{
	static const struct {
		uint64_t n, first, second, middle, last;
	} golden[] = {
		{1, 0, 0, 0, 0},
		{2, 1, 0, 0, 0},
		{10, 3, 2, 9, 1},
		{1000, 621, 285, 40, 944},
		{1281167, 1127174, 629367, 14039, 569119},
		{UINT64_C(1) << 40, 161011211894, 245638149888, 976476182173, 237986444574},
		{LARGEST - 1, 6108722897554305202, 2853577442853347664, 4665044782007812107,
			1399642486199413997},
		{LARGEST, 6108722897554305202, 2853577442853347664, 6065236320106519516,
			2449091786692781429},
	};
	struct permute p;

	(void)state;
	assert_true(key_of(42, 3, 0, KEY_FULL) == UINT64_C(0x5c3736f0590b0bde));
	for (size_t i = 0; i < ARRAY_SIZE(golden); i++) {
		permute_init(&p, golden[i].n, key_of(42, 3, 0, KEY_FULL));

		assert_true(permute_at(&p, 0) == golden[i].first);
		assert_true(permute_at(&p, 1 % p.n) == golden[i].second);
		assert_true(permute_at(&p, p.n / 2) == golden[i].middle);
		assert_true(permute_at(&p, p.n - 1) == golden[i].last);
	}
}

/* Tests all small sizes; the halves into which the permutation divides a number have few bits or
 * none. */
static void test_each_number_appears_once(void **state)
{
	struct permute p;

	(void)state;
	for (uint64_t n = 1; n <= 1200; n++) {
		unsigned char seen[1200] = {0};

		permute_init(&p, n, key_of(n, 0, 0, KEY_FULL));
		for (uint64_t i = 0; i < n; i++) {
			uint64_t x = permute_at(&p, i);

			assert_true(x < n && !seen[x]);
			assert_true(permute_inverse(&p, x) == i);
			seen[x] = 1;
		}
	}
}

/* Tests sizes near powers of two, up to the largest size. A function with an inverse is a
 * bijection. */
static void test_large_sizes_have_an_inverse(void **state)
{
	struct permute p;

	(void)state;
	for (unsigned bits = 11; bits <= 63; bits++) {
		for (int64_t off = -1; off <= (bits < 63 ? 1 : 0); off++) {
			uint64_t n = (UINT64_C(1) << bits) + (uint64_t)off;

			permute_init(&p, n, key_of(bits, 0, 0, KEY_FULL));
			for (uint64_t k = 0; k < 100; k++) {
				uint64_t i = k < 50 ? n - 1 - k : key_mix(k) % n;
				uint64_t x = permute_at(&p, i);

				assert_true(x < n && permute_inverse(&p, x) == i);
				assert_true(permute_at(&p, permute_inverse(&p, i)) == i);
			}
		}
	}
}

/* ---- statistics ---- */

/* Asserts that counts of independent events with equal chances are as even as they should be: chi
 * square within 4 standard deviations of its mean. The keys are fixed, so that every run gives the
 * same result. */
static void assert_even(const uint32_t *counts, size_t n, double degrees)
{
	double sum = 0, chi = 0, expected;

	for (size_t i = 0; i < n; i++)
		sum += counts[i];
	expected = sum / (double)n;
	for (size_t i = 0; i < n; i++)
		chi += (counts[i] - expected) * (counts[i] - expected) / expected;
	assert_true((chi - degrees) * (chi - degrees) < 16 * 2 * degrees);
}

/* Tests sizes whose numbers are divided into halves of 1 to 5 bits, with different numbers of
 * rounds. */
static void test_a_number_is_equally_likely_at_each_position(void **state)
{
	static const uint64_t sizes[] = {3, 5, 7, 8, 9, 17, 31, 33, 63, 100, 129};
	static uint32_t counts[129 * 129];
	struct permute p;

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(sizes); k++) {
		uint64_t n = sizes[k];

		memset(counts, 0, sizeof(counts));
		for (uint64_t seed = 0; seed < 20000; seed++) {
			permute_init(&p, n, key_of(seed, 0, 0, KEY_FULL));
			for (uint64_t i = 0; i < n; i++)
				counts[i * n + permute_at(&p, i)]++;
		}
		assert_even(counts, n * n, (double)((n - 1) * (n - 1)));
	}
}

/* The numbers at two positions are independent, as far as a permutation allows. */
static void test_a_pair_of_numbers_is_equally_likely(void **state)
{
	static const uint64_t sizes[] = {5, 7, 13, 17, 33, 50, 100};
	static uint32_t near[100 * 99], far[100 * 99];
	struct permute p;

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(sizes); k++) {
		uint64_t n = sizes[k];

		memset(near, 0, sizeof(near));
		memset(far, 0, sizeof(far));
		for (uint64_t seed = 0; seed < 300000; seed++) {
			uint64_t x, y, z;

			permute_init(&p, n, key_of(0, seed, 0, KEY_FULL));
			x = permute_at(&p, 0);
			y = permute_at(&p, 1);
			z = permute_at(&p, n - 1);
			near[x * (n - 1) + y - (y > x)]++;
			far[x * (n - 1) + z - (z > x)]++;
		}
		assert_even(near, n * (n - 1), (double)(n * (n - 1) - 1));
		assert_even(far, n * (n - 1), (double)(n * (n - 1) - 1));
	}
}

/* The strictest check, which is possible only for a small size. */
static void test_each_permutation_of_six_is_equally_likely(void **state)
{
	static uint32_t counts[720];
	struct permute p;

	(void)state;
	for (uint64_t seed = 0; seed < 720 * 200; seed++) {
		uint64_t x[6], number = 0;

		permute_init(&p, 6, key_of(seed, 1, 0, KEY_FULL));
		for (uint64_t i = 0; i < 6; i++)
			x[i] = permute_at(&p, i);
		for (size_t i = 0; i < 6; i++) {
			uint64_t less = 0;

			for (size_t j = i + 1; j < 6; j++)
				less += x[j] < x[i];
			number = number * (6 - i) + less;
		}
		counts[number]++;
	}
	assert_even(counts, 720, 719);
}

/* On average, a random permutation of any size has two pairs of consecutive numbers that differ by
 * one, modulo the size, and the distances of consecutive numbers are equally distributed. */
static void test_neighbours_do_not_stay_neighbours(void **state)
{
	static uint32_t distances[100];
	uint64_t neighbours = 0, n = 100100, permutations = 40;
	struct permute p;

	(void)state;
	for (uint64_t seed = 0; seed < permutations; seed++) {
		uint64_t before;

		permute_init(&p, n, key_of(seed, 0, 0, KEY_FULL));
		before = permute_at(&p, 0);
		for (uint64_t i = 1; i < n; i++) {
			uint64_t x = permute_at(&p, i), distance = (x + n - before) % n;

			neighbours += distance == 1 || distance == n - 1;
			distances[distance * 100 / n]++;
			before = x;
		}
	}
	/* The expected number is 80, with a standard deviation of 9. */
	assert_true(neighbours > 80 - 36 && neighbours < 80 + 36);
	assert_even(distances, 100, 99);
}

/* On average, two random permutations agree at one position. */
static void test_epochs_seeds_and_sets_have_orders_of_their_own(void **state)
{
	uint64_t n = 10007, same[3] = {0};
	struct permute p, q;

	(void)state;
	for (uint64_t k = 0; k < 100; k++) {
		const uint64_t others[] = {key_of(k, 1, 0, KEY_FULL), key_of(k + 1, 0, 0, KEY_FULL),
			key_of(k, 0, 1, KEY_FULL)};

		permute_init(&p, n, key_of(k, 0, 0, KEY_FULL));
		for (size_t j = 0; j < ARRAY_SIZE(others); j++) {
			permute_init(&q, n, others[j]);
			for (uint64_t i = 0; i < n; i++)
				same[j] += permute_at(&p, i) == permute_at(&q, i);
		}
	}
	/* The expected number is 100, with a standard deviation of 10. */
	for (size_t j = 0; j < ARRAY_SIZE(same); j++)
		assert_true(same[j] > 60 && same[j] < 140);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_permutations_are_the_same_on_every_machine),
		cmocka_unit_test(test_each_number_appears_once),
		cmocka_unit_test(test_large_sizes_have_an_inverse),
		cmocka_unit_test(test_a_number_is_equally_likely_at_each_position),
		cmocka_unit_test(test_a_pair_of_numbers_is_equally_likely),
		cmocka_unit_test(test_each_permutation_of_six_is_equally_likely),
		cmocka_unit_test(test_neighbours_do_not_stay_neighbours),
		cmocka_unit_test(test_epochs_seeds_and_sets_have_orders_of_their_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
