/*
 * `penstock flush`: uploads the output that the last attempt could not upload, and records the end
 * that the attempt would have had with a complete upload.
 */
#include "run/internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "run/publish/checkpoints.h"
#include "run/owner/lease.h"
#include "run/process/strays.h"
#include "run/takeover.h"
#include "sync/sync.h"
#include "transfer/objects.h"

/* Returns the end of the attempt, or, if its flush failed, the end before the failure. */
static struct records_end end_of(const struct records_attempt *last)
{
	struct records_end end = {
		.state = last->unflushed ? last->flushed_state : last->state,
		.class = last->unflushed ? last->flushed_class : last->class,
		.exit_code = last->unflushed ? last->flushed_exit_code : last->exit_code,
		.step_code = last->step_code,
	};

	if (end.state == RUN_FAILED || end.state == RUN_LOST)
		end.message = last->unflushed ? "failed earlier; its output is complete now"
					      : last->message;
	return end;
}

/* Uploads the output and the log, under the lease. */
static int flush_files(
	struct run *run, const char *journal, bool succeeded, struct penstock_error *err)
{
	struct sync_options options;
	int r, l;

	publisher_sync_options(&run->publisher, journal, &options);
	options.continuous = false;
	r = run_take_lease_to_flush(run, err);
	if (r == 0)
		r = sync_start(&run->publisher.sync, &options, err);
	if (r < 0)
		return r;
	r = publisher_flush_sync(&run->publisher, err);
	if (r == 0)
		r = run_checkpoints_settle(&run->publisher, succeeded, err);
	if (r == 0)
		publisher_bound_replaced(&run->publisher);
	publisher_record(&run->publisher);
	if (r < 0)
		sync_settle(run->publisher.sync);
	sync_free(take_pointer(run->publisher.sync));
	if (r < 0)
		return r;
	r = publisher_start_log(&run->publisher, err);
	/* Finish the log even after a failure, because its thread may be running. */
	l = publisher_finish_log(&run->publisher, r < 0 ? NULL : err);
	return r < 0 ? r : l;
}

static int flush_s3(struct run *run, const struct records_attempt *last, struct penstock_error *err)
{
	_cleanup_free_ char *journal = path_join(run->attempt.layout.state, "sync");
	const struct records_end end = end_of(last);
	int r;

	if (!journal)
		return error_memory(err);
	r = publisher_open(&run->publisher, err);
	if (r < 0)
		return r;
	r = flush_files(run, journal, end.state == RUN_SUCCEEDED, err);
	if (run->publisher.lease) {
		/* Release the lease even after a failure, with the state of the last attempt: the
		 * state must not stay live, and must not show an end that this flush did not reach.
		 * Only a second interrupt cancels this last write. */
		interrupts_phase(&run->reaction.interrupts, PHASE_FLUSH);
		object_client_gate(run->publisher.store->client, NULL);
		int l = lease_release(take_pointer(run->publisher.lease),
			&(struct lease_end){
				.state = run_state_name(r == 0 ? end.state : last->state),
				.class = run_class_name(r == 0 ? end.class : last->class),
				.message = r == 0 ? end.message : last->message,
				.exit_code = r == 0 ? end.exit_code : last->exit_code},
			r == 0 ? err : NULL);

		r = r == 0 ? l : r;
	}
	return r;
}

static int flush_output(
	struct run *run, const struct records_attempt *last, struct penstock_error *err)
{
	switch (run->attempt.workflow->output.kind) {
	case WORKFLOW_S3:
		return flush_s3(run, last, err);
	case WORKFLOW_HTTP:
		return publisher_flush_http(&run->publisher, err);
	default:
		return error_set(err, PENSTOCK_E_INTERNAL, "the output has no transport");
	}
}

static int record_flushed(
	struct run *run, const struct records_attempt *last, struct penstock_error *err)
{
	const struct records_end end = end_of(last);
	bool ended = last->ended_ns && !last->unflushed;
	/* If the last attempt had uploaded all output, its end is already recorded. */
	int r = ended ? 0
		      : records_end(
				run->attempt.records, run->attempt.id, last->attempt, &end, err);

	if (r < 0)
		return r;
	run->attempt.end = (struct run_end){
		.decided = true, .state = end.state, .class = end.class};
	return end.state == RUN_SUCCEEDED ? run_layout_wipe(&run->attempt.layout, err) : 0;
}

static int flush_locked(struct run *run, struct penstock_error *err)
{
	struct records_attempt last = {0};
	int r = records_last_attempt(run->attempt.records, run->attempt.id, &last, err);

	if (r < 0)
		return r;
	/* This process holds the lock, so the supervisor of a run that is recorded as live is
	 * gone. */
	if (run_state_is_live(last.state))
		last.state = RUN_LOST;
	run->attempt.number = last.attempt;
	run_layout_release(&run->attempt.layout);
	r = run_layout_init(
		&run->attempt.layout, run->attempt.home, run->attempt.id, run->attempt.number, err);
	if (r == 0 && run->attempt.workflow->output.kind == WORKFLOW_NO_TRANSPORT) {
		run->attempt.end = (struct run_end){.decided = true, .state = last.state};
		run->result->output = strdup(run->attempt.layout.output);
		records_attempt_release(&last);
		return run->result->output ? 0 : error_memory(err);
	}
	if (r == 0 && access(run->attempt.layout.output, F_OK) < 0 && last.state == RUN_SUCCEEDED &&
		!last.unflushed) {
		/* The end of the run removed the uploaded files, so a repeated flush has nothing to
		 * do. */
		run->attempt.end = (struct run_end){.decided = true, .state = last.state};
		records_attempt_release(&last);
		return 0;
	}
	if (r == 0 && last.state == RUN_LOST) {
		r = strays_end(run->attempt.id, &run->attempt.layout, STRAYS_GRACE_MS, err);
		r = r > 0 ? 0 : r;
	}
	if (r == 0 && access(run->attempt.layout.output, F_OK) < 0)
		r = error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot upload the output of run '%s': this machine has no output of the run",
			run->attempt.id);
	if (r == 0)
		r = stores_init(&run->stores, run->options->embedded,
			&(struct stores_patience){.cancel = &run->reaction.interrupts.cancel}, err);
	if (r == 0)
		r = flush_output(run, &last, err);
	if (r == 0)
		r = record_flushed(run, &last, err);
	stores_release(&run->stores);
	records_attempt_release(&last);
	return r;
}

int run_flush(const struct run_options *options, const char *id, struct run_result *result,
	struct penstock_error *err)
{
	_cleanup_(run_release) struct run run;
	struct attempt *attempt = &run.attempt;
	int r;

	run_init(&run, options, result);
	snprintf(attempt->id, sizeof(attempt->id), "%s", id);
	r = reaction_init_plain(&run.reaction, attempt, err);
	if (r < 0)
		return r;
	r = run_layout_init(&attempt->layout, options->home, id, 1, err);
	if (r == 0)
		r = run_take_lock(&run, err);
	if (r == 0)
		r = flush_locked(&run, err);
	snprintf(result->id, sizeof(result->id), "%s", id);
	result->attempt = attempt->number;
	result->state = attempt->end.state;
	/* Add no hint if another process holds the run, or if there is no output on this
	 * machine. */
	if (r < 0 && run.lock_fd >= 0 && err && err->code == PENSTOCK_E_EXISTS)
		error_suffix(err, "; the output is kept in '%s' until 'penstock rm --force %s'",
			attempt->layout.output, id);
	else if (r < 0 && run.lock_fd >= 0 && err && err->code != PENSTOCK_E_NOT_FOUND)
		error_suffix(err,
			"; the output is kept in '%s'%s 'penstock flush %s' uploads the "
			"missing files",
			attempt->layout.output, publisher_flush_hint(err->code), id);
	return r;
}
