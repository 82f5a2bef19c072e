/*
 * `retry`: a run that failed goes on by itself, as another attempt of the same process.
 *
 *	run_execute_with_retries(&options, &result, err);	instead of run_execute()
 *
 * Each attempt is on record as any other. Between two of them the run is, for every other command and machine, one
 * that is to be continued: whatever ends the process there, the next `penstock run` goes on.
 */
#ifndef RUN_RETRY_H
#define RUN_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "run/run.h"

struct run;
struct workflow_retry;

int run_execute_with_retries(
	const struct run_options *options, struct run_result *result, struct penstock_error *err);

/*
 * Decides, once the end is known and not yet written, whether the run goes on: notes it on the disk and says so.
 * Milliseconds to wait before it does; -1: it has failed.
 */
int64_t run_plan_retry(struct run *run);
/* Before anything is claimed. PENSTOCK_E_CANCELLED: a request came. */
int run_wait_for_retry(struct run *run, struct penstock_error *err);

bool retry_has_code(const struct workflow_retry *retry, int code);
/* Before the n-th retry (from 1): twice as long as before the last one, up to LIMIT_RETRY_PAUSE_MS, but never less than
 * `backoff_ms`; a fifth more or less by `random`, so that many runs do not come back together. */
int64_t retry_pause_ms(int64_t backoff_ms, unsigned n, uint32_t random);

#endif
