/*
 * Shares of the CPUs and GPUs that a run has claimed, one for each execution of a step. Executions
 * that run at a time get different ones while there are enough, then the least shared ones.
 */
#ifndef RUN_STEP_SHARES_H
#define RUN_STEP_SHARES_H

#include <stddef.h>
#include <stdint.h>

#include "records/claims.h"

struct penstock_error;
struct workflow_step_resources;

/* Number of executions that have each; the indices are those of the claim's lists. Zeroed first. */
struct shares {
	uint16_t cpus[CLAIMS_MAX_CPUS];
	uint16_t gpus[CLAIMS_MAX_GPUS];
};

struct step_share {
	int *cpus; /* owned */
	size_t n_cpus;
	int *gpus; /* owned */
	size_t n_gpus;
};

/* `claim` may be NULL: then the share is empty. */
int step_share_take(struct step_share *share, struct shares *shares, const struct claim *claim,
	const struct workflow_step_resources *res, struct penstock_error *err);
void step_share_release(struct step_share *share, struct shares *shares, const struct claim *claim);

/* Takes `n` of the `have` numbers in `list`, or all if there are fewer, in the order of the list.
 * Returns how many. */
size_t shares_take(uint16_t *used, const int *list, size_t have, size_t n, int *out);
void shares_release(uint16_t *used, const int *list, size_t have, const int *taken, size_t n);

#endif
