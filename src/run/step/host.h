/*
 * State that all executions of a run's steps share: the claim on the machine, containers, control
 * group, deadlines, ports. The main thread uses it.
 */
#ifndef RUN_STEP_HOST_H
#define RUN_STEP_HOST_H

#include <stdint.h>

#include "base/limits.h"
#include "records/claims.h"
#include "run/attempt/attempt.h"
#include "run/process/live.h"
#include "run/step/containers.h"
#include "run/step/group.h"
#include "run/step/shares.h"

struct slurm_allocation;
struct workflow;
struct workflow_run;

/* Deadlines of all steps of a run together; monotonic, in ms. */
struct run_times {
	int64_t deadline_ms; /* of all steps; 0 if there is none or no step has begun */
	int64_t overdue_until_ms; /* when cleanup after the deadline must be done; 0 before it */
};

struct step_host {
	struct attempt *attempt; /* borrowed */
	const struct slurm_allocation *slurm; /* NULL if the run has only this machine */
	struct machine_capacity machine;
	struct claim *claim; /* NULL if Slurm's allocation is the claim */
	struct shares shares;
	struct containers containers;
	struct run_group group;
	struct run_life life;
	struct run_times times;
	unsigned long serial; /* of the last execution */
	int ports[LIMIT_WORKFLOW_PORTS]; /* workflow->ports of them */
	char *venv; /* owned; of the Python packages, NULL if there is none */
	/* Called before tasks are killed: what they were writing is incomplete. May be NULL. */
	void (*kill_coming)(void *cookie);
	void *cookie;
};

/* Finds the steps' free ports, which stay the same for the whole attempt, and writes them to the
 * file `ports` of the run. */
int step_host_find_ports(struct step_host *host, struct penstock_error *err);
/* After the last execution: removes control groups and records of processes. */
void step_host_end(struct step_host *host);

/* Unix time at which an execution that begins now must have ended: the earliest of its timeout, the
 * run's, and the end of the Slurm job; "" if none is known. */
#define STEP_DEADLINE_SIZE 32
void step_deadline(const struct run_times *times, const struct workflow *workflow,
	const struct workflow_run *what, char out[static STEP_DEADLINE_SIZE]);

#endif
