/*
 * One execution of a `run` block, from the start of its tasks to the end of all their processes. An
 * execution has no thread: one thread polls several executions.
 *
 *	struct step_run *step = NULL;
 *
 *	step_run_start(&step, &host, &(struct step_run_spec){.step = &s->run, .name = name}, err);
 *	... poll step_run_fd(step) until it is readable ...
 *	step_run_ended(step, &end);	// also checks timeouts and limits
 *	step_run_signal(step, SIGTERM);	// asks its leaders to end
 *	step_run_kill(step);	// kills all of its processes, even those left after its end
 *	step_run_free(step);
 */
#ifndef RUN_STEP_RUN_H
#define RUN_STEP_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "records/records.h"
#include "workflow/model.h"

struct penstock_error;
struct run_store;
struct step_host;
struct step_run;

#define STEP_MORE_SIZE	     256
#define STEP_MEMORY_CHECK_MS 250 /* used if no control group enforces the limit */

struct step_run_spec {
	const struct workflow_run *step;
	const char *name; /* for messages; borrowed until step_run_free() */
	const char *path; /* place in the tree of steps, for the live record; NULL if unknown */
	/* "K=V" of this execution, with more precedence than the job's variables and less than the
	 * step's own; NULL-terminated, or NULL. */
	const char *const *env;
	/* $DEEPSQUARE_ENV of a module, in addition to the file of the run; NULL if there is none */
	const char *env_file;
	const struct run_store *store; /* the tasks get its credentials; NULL if there is none */
	/* checkpoint to continue from, below the output; NULL if there is none */
	const char *checkpoint;
	bool here; /* the step runs on this machine even if the run has a cluster */
};

/* Reason why penstock ended an execution. */
enum step_stop {
	STEP_NOT_STOPPED,
	STEP_PEER_FAILED, /* one of its tasks failed, which ends the step */
	STEP_TIMEOUT, /* the step's own timeout */
	STEP_RUN_TIMEOUT, /* the run's timeout */
	STEP_HUNG, /* no output and no use of the CPU for the given time */
	STEP_OVER_MEMORY, /* more memory than its limit, without a control group */
};

/* End of an execution; with several tasks, the end of the first task that failed. */
struct step_end {
	int code; /* exit status; undefined if signal is set */
	int signal; /* signal that killed the task; 0 if it exited */
	/* rank of the task that failed; -1 if there was only one task, none failed, or the whole
	 * step was stopped */
	int rank;
	bool oom; /* out of memory: the step, or the whole run, reached its limit */
	bool done; /* the execution created its `done` file: it has finished in spite of a notice */
	bool signalled; /* a notice has signalled one of the leaders */
	/* penstock killed some of its tasks: files that they were writing may be incomplete */
	bool killed;
	enum step_stop stop;
	int64_t stop_ms; /* the timeout that expired */
	uint64_t memory_limit; /* bytes; 0 if unlimited */
	uint64_t memory_peak; /* bytes; 0 if unknown */
	uint64_t memory_of_run; /* bytes; 0 unless the whole run reached this limit */
	/* resources of the step, borrowed; NULL if penstock sets no limits */
	const struct workflow_step_resources *resources;
	/* fault in its $DEEPSQUARE_ENV, "wrote …"; "" if there is none */
	char values[256];
};

int step_run_start(struct step_run **out, struct step_host *host, const struct step_run_spec *spec,
	struct penstock_error *err);
/* Returns a descriptor that is readable when step_run_ended() must be called. */
int step_run_fd(const struct step_run *step);
/* Returns false while any of the tasks runs. */
bool step_run_ended(struct step_run *step, struct step_end *out);
/* Returns the leader of the first task. */
pid_t step_run_pid(const struct step_run *step);
/* Returns true if processes other than the leaders live. */
bool step_run_left(const struct step_run *step);
void step_run_signal(struct step_run *step, int signal);
/* Passes a notice on: signals each leader that handles the signal, once (0: no signal). */
void step_run_notice(struct step_run *step, int signal);
/* Returns true if a notice has signalled one of the leaders. */
bool step_run_signalled(const struct step_run *step);
/* Forgets a withdrawn notice, so that the next notice signals the leaders again. */
void step_run_forget_notice(struct step_run *step);
/* Returns the number of the execution within the attempt. */
unsigned long step_run_serial(const struct step_run *step);
void step_run_kill(struct step_run *step);
void step_run_free(struct step_run *step);

/* Writes the option that raises a limit, "--set resources.memPerCpu=MB"; if `own`, the step sets
 * the limit, else the job. */
void step_more(const struct workflow_step_resources *res, bool own, const char *key_and_value,
	char out[static STEP_MORE_SIZE]);

/* The end of the run because of a step that failed by itself. */
struct step_failure {
	enum run_class class;
	int exit_code; /* penstock's exit code */
	int step_code; /* the step's own exit code if penstock's differs; else 0 */
	char text[768]; /* one line: the fault and its remedy */
};
/* Fills in `out` after a failure. Returns false after a success. */
bool step_end_explain(
	const struct step_end *end, const char *name, const char *run_id, struct step_failure *out);

#endif
