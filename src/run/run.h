/*
 * Life of a run: claim, stage, start, sync, flush, end; docs/ARCHITECTURE.md describes it.
 *
 *	struct run_options options = { .workflow = workflow, .home = home, .records = records,
 *		.stdout_fd = 1, .stderr_fd = 2, .observer = { on_event, cookie } };
 *	struct run_result result = { 0 };
 *
 *	if (run_execute(&options, &result, &err) < 0)
 *		... the run could not begin: no attempt was recorded
 *	return result.exit_code;
 *
 * The signals of interrupts_block_signals() must be blocked in every thread: run_execute() reads
 * them. run_execute() returns when the run has ended and every process of the run is gone.
 */
#ifndef RUN_RUN_H
#define RUN_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "records/records.h"
#include "run/report/say.h"
#include "workflow/model.h"

struct penstock_error;
struct records;
struct slurm_allocation;
struct stores_embedded_ops;

struct run_options {
	const struct workflow *workflow; /* borrowed */
	const char *id; /* id of the run; NULL for the id from run_identity() */
	const char *workflow_path; /* path shown in the records */
	const char *provenance; /* JSON object of the caller (overrides, versions), or NULL */
	/* the way the workflow's file was read, kept as runs/ID/source for the caller; NULL leaves
	 * that file as it is */
	const char *source;
	const char *home; /* $PENSTOCK_HOME */
	struct records *records; /* borrowed */
	bool fresh; /* never continue an earlier attempt */
	/* also continue a run that was stopped, or that failed and has output that was not
	 * uploaded */
	bool resume;
	/* with `resume`: continue only a preempted or lost run that no user has stopped since then
	 * (run_leave_alone()) */
	bool due;
	bool replace; /* the run may be from another file that has the same `name` */
	bool keep_context; /* keep the copy of the context that the last attempt made */
	bool retrying; /* a retry after a failure, see retry.h */
	int64_t wait_ms; /* wait before anything is claimed */
	/* ids of runs that must have succeeded before anything is claimed; NULL-terminated */
	const char *const *after;
	int stdout_fd; /* gets the output of the steps; -1 shows it only in the log */
	int stderr_fd;
	int ready_fd; /* gets "ID\n" once the run is recorded; -1 if unused */
	void (*on_ready)(void); /* called after the write to ready_fd; may be NULL */
	struct run_observer observer;
	/* Slurm allocation of the batch job; NULL if the run is not a batch job */
	const struct slurm_allocation *slurm;
	/* functions that join and leave the embedded store; NULL without an embedded store */
	const struct stores_embedded_ops *embedded;
};

struct run_result {
	char id[RECORDS_ID_SIZE];
	int attempt;
	enum run_state state;
	int exit_code; /* penstock's exit code, see docs/man: a step's own, or 64-78, or 128+n */
	char *message; /* owned; one line, NULL after a success */
	/* owned; place of the output after a success, else NULL */
	char *output;
	/* another machine has the run or has ended it, or another run has the output: the attempt
	 * is not recorded. exit_code is 0 if the run succeeded on the other machine. */
	bool refused;
	int64_t retry_in_ms; /* pause before the next attempt; -1 if this was the last */
};
void run_result_release(struct run_result *result);

int run_execute(
	const struct run_options *options, struct run_result *result, struct penstock_error *err);

/* Like run_execute(), with further attempts after failures, as `retry` of the workflow specifies.
 * Each attempt is recorded. If the process is killed between two attempts, the next `penstock run`
 * continues the run. */
int run_execute_with_retries(
	const struct run_options *options, struct run_result *result, struct penstock_error *err);

/* Uploads what the last attempt could not upload, and records the end that the attempt would have
 * had. If the output has no transport, nothing is uploaded and `result->output` is the local
 * directory. */
int run_flush(const struct run_options *options, const char *id, struct run_result *result,
	struct penstock_error *err);

/* Returns -PENSTOCK_E_INVALID if the workflow can never run on this machine; the error names the
 * override that makes the workflow fit, or the missing program. */
int run_check(const struct workflow *workflow, struct penstock_error *err);
/* Like run_check(), for a run on another machine: checks neither the resources nor the programs of
 * this machine. */
int run_check_elsewhere(const struct workflow *workflow, struct penstock_error *err);
/* Checks only for features that no machine supports, in a workflow whose references and modules are
 * not resolved. */
int run_check_kinds(const struct workflow *workflow, struct penstock_error *err);

/*
 * Records an attempt as queued and keeps its workflow, for another machine that will run it: that
 * machine withdraws the attempt (records_withdraw()) and begins its own. The caller holds the lock
 * of the run.
 */
int run_record_elsewhere(const struct run_options *options, const char *id, int *attempt,
	struct penstock_error *err);

/* Returns true if the state next to an S3 output has a later attempt than `attempt`, which another
 * machine has made. Returns false if that state has no later attempt or cannot be read. */
bool run_is_newer_elsewhere(const struct run_options *options, const char *id, int attempt);
/* Returns -PENSTOCK_E_INVALID if the run was last started from another file that still exists, with
 * a different workflow. Returns 0 if the options have an `id` or `replace`. */
int run_check_same_file(
	const struct run_options *options, const char *id, struct penstock_error *err);

/* Stops automatic restarts (options.due) of a preempted or lost run, until a user starts the
 * run. */
int run_leave_alone(const char *home, const char *id, struct penstock_error *err);
bool run_is_left_alone(const char *home, const char *id);

/* Sets `id` to the identity of the workflow's run: a digest of the place of the output and of the
 * workflow's name, or of the workflow itself if it has no name. */
int run_identity(const struct workflow *workflow, char id[static RECORDS_ID_SIZE],
	struct penstock_error *err);
/* Finds the run that `penstock run` continues for an edited file without a name: the run of the
 * file's present contents, or else the newest run of the file with this output, if that run failed,
 * was preempted or was lost. `id` is "" if there is no such run. */
int run_find_edited(const struct run_options *options, char id[static RECORDS_ID_SIZE],
	struct penstock_error *err);

#endif
