/* The end of a run: flush, lease, record, release. Every attempt ends in run_finish(). */
#include "run/internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "run/ending.h"
#include "run/owner/lease.h"
#include "run/report/notify.h"
#include "run/report/output.h"
#include "run/retry.h"
#include "run/takeover.h"
#include "run/walk/steps.h"
#include "run/workdir/project.h"
#include "sync/sync.h"
#include "transfer/objects.h"

void run_set_state(struct run *run, enum run_state state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (records_set_state(
		    run->attempt.records, run->attempt.id, run->attempt.number, state, &err) < 0)
		log_warn("cannot record the state of run '%s': %s", run->attempt.id, err.message);
	lease_set(run->publisher.lease, run_state_name(state));
	run_event(&run->attempt.voice, RUN_EVENT_STATE, run_state_name(state), 0, 0);
}

void run_notify(const struct run *run, enum workflow_notify_event event)
{
	notify_send(run->notify, event,
		&(struct notify_event){
			.run_id = run->attempt.id,
			.name = run->attempt.workflow->name.value,
			.attempt = run->attempt.number,
			.state = run_state_name(
				run->attempt.end.decided ? run->attempt.end.state : RUN_RUNNING),
			.run_class = run->attempt.end.decided && run->attempt.end.class
					     ? run_class_name(run->attempt.end.class)
					     : NULL,
			.exit_code = run->attempt.end.exit_code,
			.message = run->attempt.end.message,
			.ended = run->attempt.end.decided,
		});
}

/* Sets the status of the run at the tracker (run/tracking), unless another owner has the run. */
static void end_tracking(const struct run *run, const struct records_end *end, bool lost)
{
	enum run_state state = end->unflushed ? end->flushed_state : end->state;
	const char *status = state == RUN_SUCCEEDED ? "FINISHED"
			     : state == RUN_STOPPED ? "KILLED"
						    : "FAILED";

	/* The next attempt continues the run at the tracker. */
	if (state == RUN_PREEMPTED || run->result->retry_in_ms >= 0)
		status = "SCHEDULED";
	if (!lost)
		tracking_end(&run->tracking, status);
}

static void set_unflushed(const struct run *run, struct records_end *end)
{
	end->unflushed = true;
	end->flushed_state = run->attempt.end.state;
	end->flushed_class = run->attempt.end.class;
	end->flushed_exit_code = run->attempt.end.exit_code;
}

/* Sets `unflushed` if the attempt ended before it could publish anything and the output of an
 * earlier attempt may still be unpublished: otherwise the next attempt would remove the only copy
 * of that output. */
static void keep_waiting_output(struct run *run, struct records_end *end)
{
	if (!run->only_copy || !attempt_has_output(&run->attempt) ||
		run->attempt.workflow->output.kind == WORKFLOW_NO_TRANSPORT)
		return;
	set_unflushed(run, end);
	run_say(&run->attempt.voice, RUN_EVENT_WARNING,
		"the output of an earlier attempt is not completely uploaded%s; it is kept in '%s'",
		run_is_superseded(&run->attempt)
			? ", and is older than what another machine has published since"
			: "; 'penstock flush' uploads it",
		run->attempt.layout.output);
}

/* Returns true if the local files are the only copy of an HTTP output, which is sent only when the
 * steps have finished. */
static bool http_output_waits(const struct run *run)
{
	return run->attempt.workflow->output.kind == WORKFLOW_HTTP && run->attempt.steps_began &&
	       run->attempt.end.state == RUN_PREEMPTED && attempt_has_output(&run->attempt);
}

/* Decides the end of an attempt whose output or log could not be uploaded. */
static void decide_incomplete(
	struct run *run, struct records_end *end, const struct penstock_error *err)
{
	if (atomic_load(&run->publisher.out_of_time) &&
		(run->attempt.end.state == RUN_SUCCEEDED ||
			run->attempt.end.state == RUN_PREEMPTED)) {
		/* The machine ends before everything is published. Every published file is
		 * complete, and the run continues from those files. */
		if (run->attempt.end.state != RUN_PREEMPTED) {
			run_end_reset(&run->attempt);
			run_end(&run->attempt, RUN_PREEMPTED, RUN_CLASS_PREEMPTED, 75,
				"preempted while the output was uploaded; the same command "
				"continues the run");
		}
		set_unflushed(run, end);
		run_say(&run->attempt.voice, RUN_EVENT_WARNING,
			"out of time before all of the output was published; every published file "
			"is complete, and 'penstock flush %s' uploads the others if this machine "
			"stays",
			run->attempt.id);
		return;
	}
	if (run->attempt.end.message)
		run_event(&run->attempt.voice, RUN_EVENT_WARNING, run->attempt.end.message, 0, 0);
	/* Do not set `unflushed`: the local files are not part of the new owner's output. */
	if (lease_is_lost(run->publisher.lease)) {
		run_end_reset(&run->attempt);
		run_end(&run->attempt, RUN_FAILED, RUN_CLASS_NODE, 69,
			"another owner has taken over this run: %s; the files written here stay in "
			"'%s'",
			err->message, run->attempt.layout.output);
		return;
	}
	if (run->publisher.sync)
		sync_settle(run->publisher.sync);
	set_unflushed(run, end);
	run_end_reset(&run->attempt);
	run_end(&run->attempt, RUN_FAILED, RUN_CLASS_OUTPUT, 73,
		"the output is not complete: %s; it is kept in '%s'%s 'penstock flush %s' uploads "
		"the missing files",
		err->message, run->attempt.layout.output, publisher_flush_hint(err->code),
		run->attempt.id);
}

/* Flushes the output, and decides the end if that fails: then returns false. */
static bool flush_and_decide(struct run *run, struct records_end *end)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	bool any = run->publisher.sync || run->publisher.log ||
		   publisher_sends_http(&run->publisher);

	interrupts_phase(&run->reaction.interrupts, PHASE_FLUSH);
	if (!any) {
		if (http_output_waits(run))
			set_unflushed(run, end);
		else
			keep_waiting_output(run, end);
		return true;
	}
	run_set_state(run, RUN_FLUSHING);
	publisher_watch_time(&run->publisher);
	if (publisher_flush(&run->publisher, &err) == 0)
		return true;
	decide_incomplete(run, end, &err);
	return false;
}

static void release_lease(struct run *run)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	/* Release the run as lost, so that other machines may continue it, if the attempt continued
	 * an earlier one but never started its steps, or if a retry is pending. */
	bool goes_on = (run->attempt.continuing && !run->attempt.steps_began &&
			       run->attempt.end.state != RUN_SUCCEEDED) ||
		       run->result->retry_in_ms >= 0;
	enum run_state state = goes_on ? RUN_LOST : run->attempt.end.state;

	/* The upload was cancelled because it was out of time, not because the store did not reply:
	 * clear `cancel`, so that the state can be written. */
	if (atomic_load(&run->publisher.out_of_time))
		interrupts_try_again(&run->reaction.interrupts);
	publisher_watch_last_words(&run->publisher);
	if (run->publisher.lease)
		object_client_gate(run->publisher.store->client, NULL);
	/* Add no warning if the output could not be uploaded (73): `penstock flush` uploads the
	 * output and the state. */
	if (lease_release(take_pointer(run->publisher.lease),
		    &(struct lease_end){.state = run_state_name(state),
			    .ended_as = goes_on ? run_state_name(run->attempt.end.state) : NULL,
			    .class = run_class_name(run->attempt.end.class),
			    .message = run->attempt.end.message,
			    .exit_code = run->attempt.end.exit_code},
		    &err) < 0 &&
		run->attempt.end.exit_code != 73)
		run_say(&run->attempt.voice, RUN_EVENT_WARNING,
			"cannot update the run's state in its output: %s", err.message);
	publisher_unwatch_time(&run->publisher);
}

/* Removes local files only after a success, when they are published or can be staged again. An
 * output without a transport stays. */
static void tidy(struct run *run)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (run->attempt.end.state != RUN_SUCCEEDED)
		return;
	if (run->attempt.workflow->output.kind == WORKFLOW_NO_TRANSPORT &&
		attempt_has_output(&run->attempt))
		return;
	if (run_layout_wipe(&run->attempt.layout, &err) < 0)
		log_warn("%s", err.message);
}

/* Writes the last line of the run's log, and sets the place of the output in the result. This line
 * comes before the record of the end, so that `logs --follow` shows the line, and before the upload
 * of the log. */
static void log_end(struct run *run)
{
	const char *state = run_state_name(run->attempt.end.state), *more;
	/* The message may begin with the state: "stopped during 'train'; …". */
	bool said = run->attempt.end.message && str_starts(run->attempt.end.message, state);

	free(take_pointer(run->result->output));
	if (run->attempt.end.state == RUN_SUCCEEDED &&
		run->attempt.workflow->output.kind == WORKFLOW_NO_TRANSPORT &&
		attempt_has_output(&run->attempt))
		run->result->output = strdup(run->attempt.layout.output);
	else if (run->attempt.end.state == RUN_SUCCEEDED)
		run->result->output = run_describe_output(&run->attempt.workflow->output);
	more = run->attempt.end.message ? run->attempt.end.message : run->result->output;

	if (run->attempt.voice.output)
		output_note(run->attempt.voice.output, "penstock: run %s %s%s%s", run->attempt.id,
			said ? "" : state,
			!more || said		   ? ""
			: run->attempt.end.message ? ": "
						   : "; its output is in ",
			more ? more : "");
}

/* Writes the last line of the log, and uploads the log. */
static void finish_log(struct run *run, struct records_end *end, bool complete)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	log_end(run);
	if (publisher_finish_log(&run->publisher, &err) == 0 || !complete)
		return;
	decide_incomplete(run, end, &err);
	log_end(run);
}

/* Removes the record and the log of an attempt that was refused. */
static void withdraw(const struct run *run)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (records_drop(run->attempt.records, run->attempt.id, run->attempt.number, &err) < 0)
		log_error("cannot withdraw attempt %d of run '%s': %s", (int)run->attempt.number,
			run->attempt.id, err.message);
	unlink(run->attempt.layout.log);
	run_log_move_rest(run->attempt.layout.log, NULL);
}

void run_finish(struct run *run)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct records_end end = {0};
	struct lease_found moved = {0};
	struct ending *ending;
	bool complete, lost;

	ending_begin(&ending, &run->attempt.voice);
	attempt_free_space(&run->attempt);
	if (run->attempt.voice.output)
		output_retry(run->attempt.voice.output); /* before the log is uploaded */
	if (!run->attempt.end.decided) {
		run->attempt.end.decided = true;
		run->attempt.end.state = RUN_SUCCEEDED;
	}
	project_collect(&run->attempt);
	/* Stop without waiting for the current work on checkpoints, which may take long. */
	run_checkpoints_stop(&run->publisher);
	ending_part(ending, "uploading the output, and comparing its files with their objects");
	complete = flush_and_decide(run, &end);
	ending_part(ending, "completing the checkpoints");
	run_checkpoints_end(&run->publisher);
	ending_part(ending, "uploading the log");
	finish_log(run, &end, complete);
	publisher_record(&run->publisher);
	sync_free(take_pointer(run->publisher.sync));
	run->result->retry_in_ms = run->refused ? -1 : run_plan_retry(run);
	end.state = run->attempt.end.state;
	end.class = run->attempt.end.class;
	end.exit_code = run->attempt.end.exit_code;
	end.step_code = run->attempt.end.step_code;
	end.message = run->attempt.end.message;
	lost = lease_is_lost(run->publisher.lease);
	if (lease_moved_to(run->publisher.lease, &moved))
		run_note_elsewhere(run, &moved);
	ending_part(ending, "updating the run's state next to its output");
	release_lease(run);
	ending_part(ending, "setting the status of the tracked run");
	end_tracking(run, &end, lost);
	if (run->refused)
		withdraw(run);
	else if (records_end(run->attempt.records, run->attempt.id, run->attempt.number, &end,
			 &err) < 0)
		log_error("cannot record the end of run '%s': %s", run->attempt.id, err.message);
	else {
		/* Remove the files after the record: a kill in between must not let the next
		 * attempt resume with half of the storage. */
		ending_part(ending, "removing the run's local files, which are published");
		tidy(run);
	}
	ending_end(ending);
	run_event(
		&run->attempt.voice, RUN_EVENT_STATE, run_state_name(run->attempt.end.state), 0, 0);
	if (run->result->retry_in_ms < 0 && !run->refused)
		run_notify(run, WORKFLOW_NOTIFY_END);
	if (run->result->retry_in_ms < 0 && !run->refused &&
		run->attempt.end.state != RUN_SUCCEEDED)
		run_notify(run, WORKFLOW_NOTIFY_FAILURE);
	output_stop(run->attempt.voice.output);
	claim_release(take_pointer(run->host.claim));
	notify_free(take_pointer(run->notify));
	reaction_unwatch(&run->reaction);
	run_settle_storage(&run->attempt, !end.unflushed);
	stores_release(&run->stores);
	containers_release(&run->host.containers);
	free(take_pointer(run->staged));
}
