/* The latest waits, and the budget of resends. */
#include "net/pace/waits.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLES_MIN  8
#define CREDIT_EACH  0.05
#define CREDIT_START 2
#define CREDIT_MAX   8

void waits_init(struct waits *waits)
{
	*waits = (struct waits){.credit = CREDIT_START};
}

void waits_add(struct waits *waits, int64_t wait_ms)
{
	waits->last[waits->next] = wait_ms < 0		  ? 0
				   : wait_ms > UINT32_MAX ? UINT32_MAX
							  : (uint32_t)wait_ms;
	waits->next = (waits->next + 1) % WAITS_SAMPLES;
	if (waits->n < WAITS_SAMPLES)
		waits->n++;
	waits->credit += CREDIT_EACH;
	if (waits->credit > CREDIT_MAX)
		waits->credit = CREDIT_MAX;
}

static int by_length(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

int64_t waits_quantile(const struct waits *waits, unsigned tenths)
{
	uint32_t sorted[WAITS_SAMPLES];

	if (!waits->n)
		return -1;
	memcpy(sorted, waits->last, waits->n * sizeof(*sorted));
	qsort(sorted, waits->n, sizeof(*sorted), by_length);
	return sorted[(waits->n - 1) * tenths / 10];
}

int64_t waits_slow_ms(const struct waits *waits, int64_t more_ms)
{
	uint64_t sum = 0;
	int64_t slow, p90;

	if (waits->n < SAMPLES_MIN)
		return 0;
	for (unsigned i = 0; i < waits->n; i++)
		sum += waits->last[i];
	slow = (int64_t)(sum / waits->n) + more_ms;
	p90 = waits_quantile(waits, 9);
	return slow < 2 * p90 ? 2 * p90 : slow;
}

bool waits_is_slow(const struct waits *waits, int64_t more_ms, int64_t silent_ms, int64_t others_ms)
{
	/* Sorting the waits takes time, so it is done only for a request that may be slow. */
	int64_t slow = silent_ms < more_ms ? 0 : waits_slow_ms(waits, more_ms);

	return slow && silent_ms >= slow && (others_ms < slow / 2 || silent_ms >= 2 * slow);
}

bool waits_spend(struct waits *waits)
{
	if (waits->credit < 1)
		return false;
	waits->credit -= 1;
	return true;
}
