/*
 * State that all executions of a run's steps share: the claim on the machine, containers, control
 * group, deadlines, ports. The main thread uses it.
 */
#ifndef RUN_STEP_HOST_H
#define RUN_STEP_HOST_H

#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "records/claims.h"
#include "run/attempt/attempt.h"
#include "run/process/live.h"
#include "run/report/usage_file.h"
#include "run/step/containers.h"
#include "run/step/group.h"
#include "run/task/keys.h"

struct penstock_error;
struct slurm_allocation;
struct tracking;
struct workflow;
struct workflow_run;
struct workflow_step_resources;

/*
 * Shares of the CPUs and GPUs that a run has claimed, one for each execution of a step. Executions
 * that run at the same time get different CPUs and GPUs as long as there are enough, and otherwise
 * those that the fewest executions share.
 */
/* Number of executions that have each CPU and GPU, in the order of the claim's lists. The caller
 * zeroes the struct. */
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

/* Takes the share of an execution. `claim` may be NULL; the share is then empty. */
int step_share_take(struct step_share *share, struct shares *shares, const struct claim *claim,
	const struct workflow_step_resources *res, struct penstock_error *err);
void step_share_release(struct step_share *share, struct shares *shares, const struct claim *claim);

/* Takes `n` of the `have` numbers in `list`, or all if there are fewer, in the order of the list.
 * Returns the number taken. */
size_t shares_take(uint16_t *used, const int *list, size_t have, size_t n, int *out);
void shares_release(uint16_t *used, const int *list, size_t have, const int *taken, size_t n);

/* Deadlines of all steps of a run together; monotonic, in ms. */
struct run_times {
	int64_t deadline_ms; /* deadline of all steps; 0 if there is none, or no step has started */
	/* time by which cleanup after the deadline must be done; 0 before the deadline */
	int64_t overdue_until_ms;
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
	struct usage_file usage;
	unsigned long serial; /* number of the last execution */
	int ports[LIMIT_WORKFLOW_PORTS]; /* the first workflow->ports of them are set */
	struct key_server *keys; /* owned; a list of endpoints of temporary keys */
	/* token of the endpoints on nodes of a cluster; "" before the first endpoint */
	char keys_token[KEY_TOKEN_SIZE];
	const char *venv; /* environment with the Python packages; NULL if there is none */
	const struct tracking *tracking; /* borrowed */
	/* Called before tasks are killed: files that they were writing are incomplete. May be
	 * NULL. */
	void (*kill_coming)(void *cookie);
	void *cookie;
};

/* Finds the steps' free ports, which stay the same for the whole attempt, and writes them to the
 * file `ports` of the run. */
int step_host_find_ports(struct step_host *host, struct penstock_error *err);
/* Call it after the last execution: ends the cleanup of containers, and releases the endpoints of
 * keys, the control groups, the records of processes and the usage file. */
void step_host_end(struct step_host *host);

/* Writes the Unix time at which an execution that begins now must have ended: the earliest of the
 * execution's timeout, the run's timeout and the end of the Slurm job; "" if none is known. */
#define STEP_DEADLINE_SIZE 32
void step_deadline(const struct run_times *times, const struct workflow *workflow,
	const struct workflow_run *what, char out[static STEP_DEADLINE_SIZE]);

#endif
