/* One run while it lives: for the files of src/run itself, not for those of its folders. */
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
	struct run_result *result; /* of the caller */
	struct attempt attempt;
	bool strays; /* processes of a lost attempt may still live */
	struct workflow_changes changes; /* since the last attempt that this one continues */
	bool after_failure; /* the attempt that this one continues failed */
	bool only_copy; /* the output of the last attempt may exist nowhere else */
	bool refused; /* another machine has the run, or has finished it: no attempt is recorded */
	bool finished; /* with `refused`: it has succeeded there */
	int lock_fd; /* runs/ID/lock, held for life; -1 before */
	struct reaction reaction;
	struct stores stores;
	struct publisher publisher;
	struct step_host host;
	struct venv venv; /* of the Python packages */
	struct notify *notify; /* NULL if the workflow names no webhook */
	struct tracking tracking; /* of the trackers that the workflow names */
	char *staged; /* owned; the inputs as a JSON array, NULL before they are staged */
};

/* Connects the parts; nothing fails and nothing is started. */
void run_init(struct run *run, const struct run_options *options, struct run_result *result);
void run_release(struct run *run);

/* Begins the run, or refuses it without a trace: a live run of the same identity, resources that
 * can never fit, output that was not uploaded. Records the attempt. */
int run_begin(struct run *run, struct penstock_error *err);
/* Holds runs/ID/lock. If another process holds it, the error names that process. */
int run_take_lock(struct run *run, struct penstock_error *err);
/* Empties the storage of a fresh start. Moves output aside that may not have been uploaded. */
int run_clear_storage(struct run *run, struct penstock_error *err);
/* Place of the output for people and records; NULL if there is none, or out of memory. */
char *run_describe_output(const struct workflow_output *output);
/* ---- again.c ---- */

/* Writes the workflow as it is run, overrides applied and secrets left out, for `resume` and
 * `flush`; and `source`, if it is not NULL: how its file was read. */
int run_keep_workflow(const struct run_layout *layout, const struct workflow *workflow,
	const char *source, struct penstock_error *err);
/* Compares the workflow with that of the last attempt, for an attempt that continues: steps that
 * have changed, and all after them, do not count as finished. Changes nothing at rest. */
int run_compare_workflow(struct run *run, struct penstock_error *err);
/* Reports the changes, and makes them what the next attempt compares with. */
int run_take_workflow(struct run *run, struct penstock_error *err);

/* ---- check.c ---- */

void run_claim_request(const struct workflow *workflow, const char *id,
	const struct claim_limits *limits, struct claim_request *request);
int run_check_on(const struct machine_capacity *machine, const struct workflow *workflow,
	struct penstock_error *err);

/* ---- end.c ---- */

/* Flushes, records the end and releases what the attempt holds: the one way out of every run. */
void run_finish(struct run *run);
void run_set_state(struct run *run, enum run_state state);
/* Notifies the webhook of an event that the workflow asks for. */
void run_notify(const struct run *run, enum workflow_notify_event event);

#endif
