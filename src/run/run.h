/*
 * The life of a run: claim, stage, start, sync, flush, end. docs/ARCHITECTURE.md tells it in prose.
 *
 *	struct run_options options = { .workflow = workflow, .home = home, .records = records,
 *		.stdout_fd = 1, .stderr_fd = 2, .observer = { on_event, cookie } };
 *	struct run_result result = { 0 };
 *
 *	if (run_execute(&options, &result, &err) < 0)
 *		... the run could not be begun: nothing was recorded, nothing was touched
 *	return result.exit_code;
 *
 * run_execute() must be called with the signals of interrupts_block_signals() blocked in every
 * thread: it reads them itself. It returns when the run has ended and
 * everything that this process started is gone.
 */
#ifndef RUN_RUN_H
#define RUN_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "records/records.h"
#include "workflow/model.h"

struct penstock_error;
struct records;
struct slurm_allocation;
struct stores_embedded_ops;

/* What happened, for whoever shows it. Strings live for the duration of the call. */
enum run_event_kind {
	RUN_EVENT_STATE,   /* text: the new state's name */
	RUN_EVENT_MESSAGE, /* text: one line for people */
	RUN_EVENT_WARNING, /* text */
	RUN_EVENT_STAGE,   /* text: the input's name; done and total bytes (0: unknown) */
	RUN_EVENT_FLUSH,   /* done: bytes published so far; total: with those that wait */
	RUN_EVENT_STEP,	   /* text: the step's name; done: its number from 1; total: their count */
};
struct run_event {
	enum run_event_kind kind;
	const char *text;
	uint64_t done;
	uint64_t total;
};
struct run_observer {
	void (*event)(void *cookie, const struct run_event *event); /* from any thread */
	void *cookie;
};

struct run_options {
	const struct workflow *workflow; /* borrowed */
	const char *id;			 /* of the run to go on with; NULL: run_identity() */
	const char *workflow_path;	 /* as the records show it */
	const char *provenance;	 /* JSON object of the caller (overrides, versions), or NULL */
	const char *home;	 /* $PENSTOCK_HOME */
	struct records *records; /* borrowed */
	bool fresh;		 /* never continue what was there */
	bool resume;		 /* continue also a failed or stopped run */
	bool due;		 /* with `resume`: only if it was preempted or lost */
	bool retrying;		 /* by itself, after a failure: retry.h */
	int64_t wait_ms;	 /* before anything is claimed */
	int stdout_fd;		 /* where the steps' output is shown; -1: only in the log */
	int stderr_fd;
	int ready_fd;		/* -1, or gets "ID\n" once the run is recorded */
	void (*on_ready)(void); /* called after that; may be NULL */
	struct run_observer observer;
	const struct slurm_allocation *slurm; /* whose batch job we are; NULL: of this machine */
	const struct stores_embedded_ops *embedded; /* how to join the embedded store; NULL: not */
};

struct run_result {
	char id[RECORDS_ID_SIZE];
	int attempt;
	enum run_state state;
	int exit_code; /* of penstock, by the table of DESIGN: a step's own, or 64-78, or 128+n */
	char *message; /* owned; one line, NULL where all is well */
	char *output;  /* owned; where the output is now, NULL: there is none */
	int64_t retry_in_ms; /* another attempt is to begin then; -1: that was the last */
};
void run_result_release(struct run_result *result);

int run_execute(
	const struct run_options *options, struct run_result *result, struct penstock_error *err);

/* Uploads what a failed flush left behind and ends the run as it had ended. A run whose output goes
 * nowhere has nothing to upload: then `result->output` says where it is, and nothing was done. */
int run_flush(const struct run_options *options, const char *id, struct run_result *result,
	struct penstock_error *err);

/* What can never run on this machine: PENSTOCK_E_INVALID, with the override that makes it fit. */
int run_check(const struct workflow *workflow, struct penstock_error *err);
/* The same for another machine, whose size is not known here. */
int run_check_elsewhere(const struct workflow *workflow, struct penstock_error *err);

/*
 * Records an attempt as queued, and keeps its workflow, for another machine that carries it: that one takes the
 * attempt back (records_withdraw()) and begins. The caller holds the lock of the run.
 */
int run_record_elsewhere(const struct workflow *workflow, const char *home, struct records *records,
	const char *id, const char *shown, const char *provenance, int *attempt,
	struct penstock_error *err);

/* A run that is preempted or lost is not to go on by itself (options.due): until somebody begins it by hand. */
int run_leave_alone(const char *home, const char *id, struct penstock_error *err);
bool run_is_left_alone(const char *home, const char *id);

/* The run that `workflow` stands for: its name, else a digest, together with the output's place. */
int run_identity(const struct workflow *workflow, char id[static RECORDS_ID_SIZE],
	struct penstock_error *err);

#endif
