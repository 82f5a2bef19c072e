/* State of one live execution: for the files of src/run/step alone. */
#ifndef RUN_STEP_EXECUTION_H
#define RUN_STEP_EXECUTION_H

#include <stdbool.h>
#include <stdint.h>

#include "run/cluster/memory.h"
#include "run/process/live.h"
#include "run/process/usage.h"
#include "run/report/usage_meter.h"
#include "run/step/ranks.h"
#include "run/step/group.h"
#include "run/step/host.h"
#include "run/step/run.h"
#include "run/task/executor.h"

struct output_task;

struct step_task {
	struct task *task;
	struct output_task *output;
	bool ended;
	bool signalled; /* because of a notice */
};

struct step_run {
	struct step_host *host; /* borrowed */
	const struct workflow_run *what;
	char *name; /* owned */
	char *path; /* owned; NULL if unknown */
	const struct executor *executor;
	bool clustered; /* runs on the nodes of a cluster: all tasks are one process here */
	struct step_task *tasks;
	size_t n; /* processes that are started: one for an MPI launcher or on a cluster */
	size_t n_started;
	size_t n_ended;
	int epoll_fd;
	int timer_fd;
	struct step_group group;
	char *mpi_box; /* directory for ranks in containers */
	unsigned long serial;
	struct step_life life;

	struct step_share share; /* the execution's share of the run's claim */
	struct slurm_memory memory; /* Slurm's messages about memory, if `clustered` */

	/* The first failure, and penstock's own actions. */
	struct step_end end;
	bool failed;
	bool noticed; /* step_run_notice() was called */
	bool asked; /* step_run_signal() was called */
	int64_t kill_at_ms; /* 0 if the execution was not asked to end */
	bool killed;

	/* Monotonic times; 0 if unset. */
	int64_t timeout_at_ms;
	enum step_stop timeout_kind;
	int64_t timeout_ms;
	int64_t hang_ms;
	int64_t active_at_ms; /* last sign of activity */
	int64_t check_at_ms; /* next check */
	int64_t check_every_ms;
	uint64_t cpu_ms; /* CPU time at the last check */
	uint64_t printed;
	int64_t memory_check_ms;

	int64_t sample_at_ms; /* next sample of the usage; 0 if there is none */
	struct usage_meter meter;
};

/* ---- start.c ---- */

/* Returns the directory where the tasks start. */
const char *step_cwd(const struct step_run *step);
/* Adds a descriptor to the execution's epoll; `which` is a rank, or UINT64_MAX for the timer. */
int step_watch_fd(const struct step_run *step, int fd, uint64_t which, struct penstock_error *err);
/* Fills in `ranks`, which all tasks share; finds a master port if there are several tasks. */
int step_fill_ranks(struct step_run *step, struct ranks *ranks, struct penstock_error *err);
int step_start_task(struct step_run *step, const struct step_run_spec *spec,
	const struct ranks *ranks, size_t rank, struct penstock_error *err);

/* ---- watch.c ---- */

/* Sets the times of the timeouts, and of the first check for a hang and of memory, at the start of
 * an execution. */
void step_set_times(struct step_run *step);
void step_set_timer(const struct step_run *step);
/* Checks timeouts, hangs and memory; asks the execution to end or kills it. */
void step_check_times(struct step_run *step);
/* Asks the execution to end and kills it after the grace period. Only the first reason counts. */
void step_stop(struct step_run *step, enum step_stop why, int64_t after_ms);
void step_signal_all(struct step_run *step, int signal);

/* ---- sample.c ---- */

/* Collects the leaders that are alive; returns their number. */
size_t step_leaders(const struct step_run *step, pid_t *leaders);
/* Gets the processor time and, unless `memory` is NULL, the memory: each from the control group if
 * the group counts it, else from the processes. */
void step_use(const struct step_run *step, uint64_t *cpu_ms, uint64_t *memory);
/* Begins to record the usage of an execution. */
void step_sample_begin(struct step_run *step, int64_t now);
void step_sample(struct step_run *step, int64_t now);

#endif
