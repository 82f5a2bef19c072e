/* `penstock flush`: uploads what an earlier attempt left behind, and ends the run as it had ended. */
#include "run/run_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "run/checkpoints.h"
#include "run/lease.h"
#include "run/live.h"
#include "run/log_upload.h"
#include "run/strays.h"
#include "sync/sync.h"
#include "transfer/objects.h"
#include "base/banned.h"

/* The end that the attempt had before its flush failed. */
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

static int flush_log(struct run *run, struct penstock_error *err)
{
	int r = run_begin_log_upload(run, err);

	return r < 0 ? r
		     : log_upload_finish(
			       take_pointer(run->log_upload), &run->interrupts.cancel, err);
}

/* The output and the log, while the run and its output are ours. */
static int flush_files(struct run *run, const char *journal, struct penstock_error *err)
{
	struct sync_options options;
	int r;

	run_sync_options(run, journal, &options);
	options.continuous = false;
	r = run_take_lease_to_flush(run, err);
	if (r == 0)
		r = sync_start(&run->sync, &options, err);
	if (r < 0)
		return r;
	r = run_flush_sync(run, run->sync, err);
	if (r == 0)
		r = run_checkpoints_settle(run, err);
	run_record_sync(run);
	if (r < 0)
		sync_settle(run->sync);
	sync_free(take_pointer(run->sync));
	return r < 0 ? r : flush_log(run, err);
}

static int flush_s3(struct run *run, const struct records_attempt *last, struct penstock_error *err)
{
	_cleanup_free_ char *journal = path_join(run->layout.state, "sync");
	const struct records_end end = end_of(last);
	int r;

	if (!journal)
		return error_memory(err);
	r = run_open_output(run, err);
	if (r < 0)
		return r;
	r = flush_files(run, journal, err);
	if (run->lease) {
		object_client_gate(run->out->client, NULL);
		/* Whatever failed: nobody may find a live state of a flush that is over, nor an end that it did not bring. */
		int l = lease_release(take_pointer(run->lease),
			run_state_name(r == 0 ? end.state : last->state),
			run_class_name(r == 0 ? end.class : last->class),
			r == 0 ? end.exit_code : last->exit_code, r == 0 ? err : NULL);

		r = r == 0 ? l : r;
	}
	return r;
}

static int flush_output(
	struct run *run, const struct records_attempt *last, struct penstock_error *err)
{
	switch (run->workflow->output.kind) {
	case WORKFLOW_S3:
		return flush_s3(run, last, err);
	case WORKFLOW_HTTP:
		return run_flush_http(run, err);
	default:
		return error_set(err, PENSTOCK_E_INTERNAL, "an output without a transport");
	}
}

static int record_flushed(
	struct run *run, const struct records_attempt *last, struct penstock_error *err)
{
	const struct records_end end = end_of(last);
	bool ended = last->ended_ns && !last->unflushed;
	/* Where nothing was missing, its end is on record already. */
	int r = ended ? 0 : records_end(run->options->records, run->id, last->attempt, &end, err);

	if (r < 0)
		return r;
	run->end = (struct run_end){.decided = true, .state = end.state, .class = end.class};
	return end.state == RUN_SUCCEEDED ? run_layout_wipe(&run->layout, err) : 0;
}

static int flush_locked(struct run *run, struct penstock_error *err)
{
	struct records_attempt last = {0};
	int r = records_last_attempt(run->options->records, run->id, &last, err);

	if (r < 0)
		return r;
	/* We hold its lock: what looks live is that of a supervisor that is gone. */
	if (run_state_is_live(last.state))
		last.state = RUN_LOST;
	run->attempt = last.attempt;
	run_layout_release(&run->layout);
	r = run_layout_init(&run->layout, run->options->home, run->id, run->attempt, err);
	if (r == 0 && run->workflow->output.kind == WORKFLOW_NO_TRANSPORT) {
		run->end = (struct run_end){.decided = true, .state = last.state};
		run->output_place = strdup(run->layout.output);
		records_attempt_release(&last);
		return run->output_place ? 0 : error_memory(err);
	}
	if (r == 0 && access(run->layout.output, F_OK) < 0 && last.state == RUN_SUCCEEDED &&
		!last.unflushed) {
		/* Its end has removed what was all uploaded: a flush that is repeated has nothing to do. */
		run->end = (struct run_end){.decided = true, .state = last.state};
		records_attempt_release(&last);
		return 0;
	}
	if (r == 0 && last.state == RUN_LOST) {
		r = strays_end(run->id, run->layout.storage, STRAYS_GRACE_MS, err);
		if (r >= 0)
			live_end(run->layout.dir);
		r = r > 0 ? 0 : r;
	}
	if (r == 0 && access(run->layout.output, F_OK) < 0)
		r = error_set(err, PENSTOCK_E_NOT_FOUND,
			"nothing of run %s is left on this machine to upload", run->id);
	if (r == 0)
		r = stores_init(&run->stores, run->options->embedded,
			&(struct stores_patience){.cancel = &run->interrupts.cancel}, err);
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
	struct run run = {.options = options,
		.workflow = options->workflow,
		.lock_fd = -1,
		.reserve_fd = -1,
		.checkpoints_lock = PTHREAD_MUTEX_INITIALIZER,
		.interrupts = {.event_fd = -1, .signal_fd = -1, .quit_fd = -1}};
	int r;

	snprintf(run.id, sizeof(run.id), "%s", id);
	r = interrupts_start(&run.interrupts, err);
	if (r < 0)
		return r;
	if (asprintf(&run.state_prefix, ".penstock/runs/%s", run.id) < 0)
		run.state_prefix = NULL;
	r = run.state_prefix ? run_layout_init(&run.layout, options->home, id, 1, err)
			     : error_memory(err);
	if (r == 0)
		r = run_take_lock(&run, err);
	if (r == 0)
		r = flush_locked(&run, err);
	snprintf(result->id, sizeof(result->id), "%s", id);
	result->attempt = run.attempt;
	result->state = run.end.state;
	result->output = run.output_place;
	/* Not of one that somebody else holds, nor of one that is not here. */
	if (r < 0 && run.lock_fd >= 0 && err && err->code == PENSTOCK_E_EXISTS)
		error_suffix(err, "; it is kept in %s until 'penstock rm --force %s'",
			run.layout.output, id);
	else if (r < 0 && run.lock_fd >= 0 && err && err->code != PENSTOCK_E_NOT_FOUND)
		error_suffix(err, "; it is kept in %s%s 'penstock flush %s' uploads the rest",
			run.layout.output, run_flush_hint(err->code), id);
	run_layout_release(&run.layout);
	interrupts_stop(&run.interrupts);
	if (run.lock_fd >= 0)
		close(run.lock_fd);
	free(run.state_prefix);
	free(run.end.message);
	return r;
}
