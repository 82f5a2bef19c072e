#include "run/shares.h"

#include <stdbool.h>

#include "base/banned.h"

size_t shares_take(uint16_t *used, const int *list, size_t have, size_t n, int *out)
{
	bool taken[CLAIMS_MAX_CPUS] = {false};
	size_t count = 0;

	if (n > have)
		n = have;
	for (size_t k = 0; k < n; k++) {
		size_t best = have;

		for (size_t i = 0; i < have; i++) {
			if (!taken[i] && (best == have || used[i] < used[best]))
				best = i;
		}
		taken[best] = true;
	}
	for (size_t i = 0; i < have; i++) {
		if (taken[i]) {
			used[i]++;
			out[count++] = list[i];
		}
	}
	return count;
}

void shares_give(uint16_t *used, const int *list, size_t have, const int *taken, size_t n)
{
	for (size_t k = 0; k < n; k++) {
		for (size_t i = 0; i < have; i++) {
			if (list[i] == taken[k] && used[i])
				used[i]--;
		}
	}
}
