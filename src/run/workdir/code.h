/*
 * The code of a run: its context, copied to the working directory. An attempt that continues takes
 * the files that have changed since, and reports them (docs/decisions/running-again.md).
 */
#ifndef RUN_WORKDIR_CODE_H
#define RUN_WORKDIR_CODE_H

#include <stdatomic.h>

#include "run/attempt/attempt.h"

int code_lay_out(
	const struct attempt *attempt, const atomic_int *cancel, struct penstock_error *err);

#endif
