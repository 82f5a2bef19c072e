/* State of a run in progress. Only the files of src/run itself include this header, not those of
 * its folders. */
#ifndef RUN_INTERNAL_H
#define RUN_INTERNAL_H

#include "run/attempt/attempt.h"
#include "run/notices/reaction.h"
#include "run/publish/publisher.h"
#include "run/run.h"
#include "run/stage/stores.h"
#include "run/step/host.h"
#include "run/tracking/tracking.h"
#include "run/workdir/venv.h"
#include "workflow/changes.h"

struct claim_limits;
struct notify;

struct run {
	const struct run_options *options;
	struct run_result *result; /* the caller's */
	struct attempt attempt;
	bool strays; /* processes of a lost attempt may still live */
	struct workflow_changes changes; /* since the attempt that this attempt continues */
	bool after_failure; /* this attempt continues an attempt that failed */
	/* the storage may have the only copy of the output of an earlier attempt */
	bool only_copy;
	/* another machine has the run or has ended it, or another run has the output: the attempt
	 * is not recorded */
	bool refused;
	bool finished; /* with `refused`: the run has succeeded on the other machine */
	int lock_fd; /* runs/ID/lock, held until run_release(); -1 before it is taken */
	struct reaction reaction;
	struct stores stores;
	struct publisher publisher;
	struct step_host host;
	struct venv venv; /* the environment with the Python packages */
	struct notify *notify; /* NULL if the workflow names no webhook */
	struct tracking tracking; /* the trackers that the workflow names */
	char *staged; /* owned; the inputs as a JSON array, NULL before they are staged */
};

/* Connects the parts. Cannot fail, and starts nothing. */
void run_init(struct run *run, const struct run_options *options, struct run_result *result);
void run_release(struct run *run);

/* Begins the run and records the attempt. Fails, and records no attempt, if the run is live,
 * belongs to another file, is not due for a restart or has output that was not uploaded, or if its
 * resources can never fit. */
int run_begin(struct run *run, struct penstock_error *err);
/* Takes runs/ID/lock. If another process holds the lock, the error names that process. */
int run_take_lock(struct run *run, struct penstock_error *err);
/* Empties the storage for a start from scratch, after moving output that may not have been uploaded
 * to `output.before-N`. Does nothing if the attempt continues an earlier one. */
int run_clear_storage(struct run *run, struct penstock_error *err);
/* Returns the place of the output for messages and records; NULL if the output has no transport, or
 * out of memory. */
char *run_describe_output(const struct workflow_output *output);
/* ---- again.c ---- */

/* Writes the workflow, with its overrides and without its secrets, for `resume` and `flush`. If
 * `source` is not NULL, also keeps `source`, which describes how the workflow's file was read. */
int run_keep_workflow(const struct run_layout *layout, const struct workflow *workflow,
	const char *source, struct penstock_error *err);
/* Compares the workflow with the workflow of the attempt that this one continues. The first changed
 * step and all steps after it no longer count as finished. Changes no file. */
int run_compare_workflow(struct run *run, struct penstock_error *err);
/* Reports the changes, removes the records of the finished steps from the first changed step on,
 * and keeps the workflow, so that the next attempt can compare its own workflow with it. */
int run_take_workflow(struct run *run, struct penstock_error *err);

/* ---- check.c ---- */

void run_claim_request(const struct workflow *workflow, const char *id,
	const struct claim_limits *limits, struct claim_request *request);
int run_check_on(const struct machine_capacity *machine, const struct workflow *workflow,
	struct penstock_error *err);

/* ---- end.c ---- */

/* Flushes, records the end and releases everything that the attempt holds. Every attempt ends
 * here. */
void run_finish(struct run *run);
void run_set_state(struct run *run, enum run_state state);
/* Notifies the webhook if the workflow asks for the event. */
void run_notify(const struct run *run, enum workflow_notify_event event);

#endif
