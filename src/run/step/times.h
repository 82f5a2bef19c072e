/* Deadlines of all steps of a run together. */
#ifndef RUN_STEP_TIMES_H
#define RUN_STEP_TIMES_H

#include <stdint.h>

struct workflow;
struct workflow_run;

/* Monotonic, in ms. */
struct run_times {
	int64_t deadline_ms; /* of all steps; 0 if there is none or no step has begun */
	int64_t overdue_until_ms; /* when cleanup after the deadline must be done; 0 before it */
};

/* Unix time at which an execution that begins now must have ended: the earliest of its timeout, the
 * run's, and the end of the Slurm job; "" if none is known. */
#define STEP_DEADLINE_SIZE 32
void step_deadline(const struct run_times *times, const struct workflow *workflow,
	const struct workflow_run *what, char out[static STEP_DEADLINE_SIZE]);

#endif
