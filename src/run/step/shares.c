#include "run/step/shares.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/error.h"
#include "workflow/model.h"
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

void shares_release(uint16_t *used, const int *list, size_t have, const int *taken, size_t n)
{
	for (size_t k = 0; k < n; k++) {
		for (size_t i = 0; i < have; i++) {
			if (list[i] == taken[k] && used[i])
				used[i]--;
		}
	}
}

int step_share_take(struct step_share *share, struct shares *shares, const struct claim *claim,
	const struct workflow_step_resources *res, struct penstock_error *err)
{
	size_t n_cpus, n_gpus;
	const int *cpus = claim_cpus(claim, &n_cpus);
	const int *gpus = claim_gpus(claim, &n_gpus);

	share->cpus = calloc(n_cpus + 1, sizeof(int));
	share->gpus = calloc(n_gpus + 1, sizeof(int));
	if (!share->cpus || !share->gpus)
		return error_memory(err);
	share->n_cpus = shares_take(shares->cpus, cpus, n_cpus,
		(size_t)(res->tasks.value * res->cpus_per_task.value), share->cpus);
	share->n_gpus = shares_take(shares->gpus, gpus, n_gpus,
		(size_t)(res->tasks.value * res->gpus_per_task.value), share->gpus);
	return 0;
}

void step_share_release(struct step_share *share, struct shares *shares, const struct claim *claim)
{
	size_t n_cpus, n_gpus;
	const int *cpus = claim_cpus(claim, &n_cpus);
	const int *gpus = claim_gpus(claim, &n_gpus);

	if (share->cpus)
		shares_release(shares->cpus, cpus, n_cpus, share->cpus, share->n_cpus);
	if (share->gpus)
		shares_release(shares->gpus, gpus, n_gpus, share->gpus, share->n_gpus);
	free(share->cpus);
	free(share->gpus);
	*share = (struct step_share){0};
}
