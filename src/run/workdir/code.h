/*
 * The code of a run: its context, copied to the working directory. An attempt that continues takes
 * the files that have changed since the last attempt, here or on another machine, and reports them
 * (docs/decisions/running-again.md).
 */
#ifndef RUN_WORKDIR_CODE_H
#define RUN_WORKDIR_CODE_H

#include <stdatomic.h>

#include "run/attempt/attempt.h"

struct code_store;

/* Brings the code in the working directory up to date. `store` is NULL if the code is not
 * published. */
int code_lay_out(const struct attempt *attempt, const struct code_store *store,
	const atomic_int *cancel, struct penstock_error *err);

#endif
