/*
 * `retry` of a workflow: a failed run continues by itself, as another attempt of the same process
 * (run_execute_with_retries()). Between two attempts the run's record says `failed` and the state
 * next to an S3 output says `lost`. `penstock run` then continues the run, on any machine if the
 * output is in S3.
 */
#ifndef RUN_RETRY_H
#define RUN_RETRY_H

#include <stdint.h>

struct penstock_error;
struct run;

/* Decides, once the end is known and before it is recorded, if the run is retried; records and
 * reports the retry. Returns the pause in milliseconds, or -1 if the run is not retried. */
int64_t run_plan_retry(struct run *run);
/* Waits for the pause before anything is claimed. Returns -PENSTOCK_E_CANCELLED if a request or a
 * notice ended the wait. */
int run_wait_for_retry(struct run *run, struct penstock_error *err);
/* Waits until the runs whose output is an input have succeeded. Returns -PENSTOCK_E_NOT_FOUND if
 * one of them has not succeeded and does not run, -PENSTOCK_E_CANCELLED as run_wait_for_retry()
 * does. */
int run_wait_for_others(struct run *run, struct penstock_error *err);

/*
 * Pause before the n-th retry (from 1): `backoff_ms`, doubled each time up to LIMIT_RETRY_PAUSE_MS,
 * or `backoff_ms` if that is longer. `random` then makes the pause up to a fifth shorter or longer,
 * so that many runs do not retry at the same time.
 */
int64_t retry_pause_ms(int64_t backoff_ms, unsigned n, uint32_t random);

#endif
