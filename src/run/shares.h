/*
 * What each step that lives gets of the CPUs and GPUs that its run has claimed. Steps that live at a time get
 * different ones as long as there are enough, then those that the fewest share.
 */
#ifndef RUN_SHARES_H
#define RUN_SHARES_H

#include <stddef.h>
#include <stdint.h>

#include "records/claims.h"

/* How many have each; indices are those of the claim's lists. Zeroed: nobody has anything. */
struct shares {
	uint16_t cpus[CLAIMS_MAX_CPUS];
	uint16_t gpus[CLAIMS_MAX_GPUS];
};

/* Takes `n` of the `have` numbers in `list` (fewer where there are fewer), in ascending order of the list;
 * returns how many. */
size_t shares_take(uint16_t *used, const int *list, size_t have, size_t n, int *out);
void shares_give(uint16_t *used, const int *list, size_t have, const int *taken, size_t n);

#endif
