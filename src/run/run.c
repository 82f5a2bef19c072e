#include "run/run.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "records/claims.h"
#include "run/checkpoints.h"
#include "run/containers.h"
#include "run/lease.h"
#include "net/http.h"
#include "run/live.h"
#include "run/log_upload.h"
#include "run/notify.h"
#include "run/output.h"
#include "run/project.h"
#include "run/provenance.h"
#include "run/reaction.h"
#include "run/retry.h"
#include "run/run_internal.h"
#include "run/stage.h"
#include "run/strays.h"
#include "sync/http_output.h"
#include "sync/sync.h"
#include "transfer/objects.h"
#include "base/banned.h"

void run_event(const struct run *run, enum run_event_kind kind, const char *text, uint64_t done,
	uint64_t total)
{
	const struct run_observer *observer = &run->options->observer;
	const struct run_event event = {kind, text, done, total};

	if (observer->event)
		observer->event(observer->cookie, &event);
	if (run->output && (kind == RUN_EVENT_MESSAGE || kind == RUN_EVENT_WARNING))
		output_note(run->output, "penstock: %s", text);
}

void run_say(const struct run *run, enum run_event_kind kind, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_LOG_LINE);
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	run_event(run, kind, buf_str(&text), 0, 0);
}

void run_end(struct run *run, enum run_state state, enum run_class class, int exit_code,
	const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf raw = BUF_INIT(LIMIT_LOG_LINE),
					  text = BUF_INIT(2 * LIMIT_LOG_LINE);
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&raw, fmt, ap);
	va_end(ap);
	log_redact_into(&text, buf_str(&raw)); /* it goes on record */
	if (run->end.decided) {
		run_event(run, RUN_EVENT_WARNING, buf_str(&text), 0, 0);
		return;
	}
	run->end.decided = true;
	run->end.state = state;
	run->end.class = class;
	run->end.exit_code = exit_code;
	run->end.message = buf_take(&text);
}

int run_exit_code(enum run_class class, enum penstock_code code)
{
	if (code == PENSTOCK_E_PERMISSION)
		return 77;
	if (code == PENSTOCK_E_NO_SPACE || code == PENSTOCK_E_MEMORY)
		return 70;
	if (class == RUN_CLASS_INPUT || (class == RUN_CLASS_IMAGE && code == PENSTOCK_E_NOT_FOUND))
		return 66;
	if (class == RUN_CLASS_WORKFLOW || (class == RUN_CLASS_IMAGE && code == PENSTOCK_E_INVALID))
		return 65;
	if (code == PENSTOCK_E_UNAVAILABLE || code == PENSTOCK_E_TIMEOUT ||
		code == PENSTOCK_E_EXISTS)
		return 69;
	return 70;
}

void run_end_error(struct run *run, enum run_class class, struct penstock_error *err)
{
	enum interrupt_reason reason = interrupts_reason(&run->interrupts);

	if (reason == INTERRUPT_PREEMPT)
		run_end(run, RUN_PREEMPTED, RUN_CLASS_PREEMPTED, 75,
			"told to end before the steps were through; the same command continues it");
	else if (reason == INTERRUPT_STOP)
		run_end(run, RUN_STOPPED, RUN_CLASS_USER, 130,
			"stopped; 'penstock resume %s' continues it", run->id);
	else /* refused, a run that was to go on can go on later */
		run_end(run,
			err->code == PENSTOCK_E_EXISTS && run->continuing ? RUN_PREEMPTED
									  : RUN_FAILED,
			class, run_exit_code(class, err->code), "%s",
			err->message ? err->message : penstock_code_name(err->code));
	penstock_error_release(err);
}

static void set_state(struct run *run, enum run_state state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (records_set_state(run->options->records, run->id, run->attempt, state, &err) < 0)
		log_warn("the state of run %s cannot be recorded: %s", run->id, err.message);
	lease_set(run->lease, run_state_name(state));
	run_event(run, RUN_EVENT_STATE, run_state_name(state), 0, 0);
}

static void note_interrupt(void *cookie, const char *text)
{
	run_event(cookie, RUN_EVENT_MESSAGE, text, 0, 0);
}

static void on_waiting(void *cookie, const char *text)
{
	run_event(cookie, RUN_EVENT_WARNING, text, 0, 0);
}

/* Also what hid its environment is found by its control group. */
static int end_last_attempt(const struct run *run, struct penstock_error *err)
{
	int r = strays_end(run->id, run->layout.storage, STRAYS_GRACE_MS, err);

	return r < 0 ? r : r + live_end(run->layout.dir);
}

static void on_notice(void *cookie, const struct notice *notice)
{
	interrupts_notice(&((struct run *)cookie)->interrupts, notice);
}

/* After the attempt is recorded: what it needs of this process. */
static int set_up(struct run *run, struct penstock_error *err)
{
	struct output *output = NULL;
	int r;

	run_layout_release(&run->layout);
	r = run_layout_init(&run->layout, run->options->home, run->id, run->attempt, err);
	atomic_store(&run->laid_out, r == 0);
	if (r == 0 && run->strays)
		r = end_last_attempt(run, err);
	if (r > 0)
		run_say(run, RUN_EVENT_WARNING,
			"ended %d process%s that the last attempt left behind", r,
			r == 1 ? "" : "es");
	if (r >= 0)
		r = run_clear_storage(run, err);
	if (r == 0)
		r = run_layout_create(&run->layout, err);
	if (r == 0)
		r = run_note_beginning(run, err);
	if (r == 0)
		r = run_note_going_on(run, err);
	if (r == 0)
		r = run_keep_workflow(run, err);
	if (r == 0)
		r = output_start(&output, run->layout.log, run->options->stdout_fd,
			run->options->stderr_fd, err);
	run->output = output;
	if (r == 0)
		r = stores_init(&run->stores, run->options->embedded,
			&(struct stores_patience){
				.cancel = &run->interrupts.cancel,
				.waiting = on_waiting,
				.cookie = run,
			},
			err);
	if (r == 0)
		r = run_find_ports(run, err);
	if (r == 0)
		r = notify_start(&run->notify, &run->workflow->notify, err);
	if (r == 0)
		r = reaction_prepare(run, err);
	if (r == 0)
		r = notices_start(&run->notices,
			&(struct notices_options){
				.preemption = &run->preemption.preemption,
				.on_notice = on_notice,
				.cookie = run,
			},
			err);
	if (r == 0)
		run_reserve_room(run);
	return r < 0 ? r : 0;
}

/* ---- the stages before the steps ---- */

static void on_claim_wait(void *cookie, const char *text)
{
	run_event(cookie, RUN_EVENT_MESSAGE, text, 0, 0);
}

static int claim(struct run *run, struct penstock_error *err)
{
	struct claim_request request;

	if (run->options->slurm) /* the allocation is the claim */
		return 0;
	run_claim_request(run, &request);
	return claim_acquire(&run->claim, &run->machine, &request,
		&(struct claim_wait){
			.cancel = &run->interrupts.cancel,
			.on_wait = on_claim_wait,
			.cookie = run,
		},
		err);
}

static void on_stage_progress(void *cookie, const char *name, uint64_t done, uint64_t total)
{
	run_event(cookie, RUN_EVENT_STAGE, name, done, total);
}

static void on_warning(void *cookie, const char *text)
{
	run_event(cookie, RUN_EVENT_WARNING, text, 0, 0);
}

static int stage(struct run *run, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf inputs = BUF_INIT(LIMIT_STRING);
	int r = stage_inputs(
		&(struct stage_options){
			.workflow = run->workflow,
			.stores = &run->stores,
			.layout = &run->layout,
			.progress = on_stage_progress,
			.warn = on_warning,
			.cookie = run,
			.cancel = &run->interrupts.cancel,
		},
		&inputs, err);

	if (r == 0)
		run->staged = buf_take(&inputs);
	if (r == 0)
		r = provenance_record(run, err);
	return r;
}

/* The bucket is made where it is missing and we may. */
int run_open_output(struct run *run, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	const struct workflow_s3 *s3 = &run->workflow->output.s3;
	int r;

	if (run->workflow->output.kind != WORKFLOW_S3)
		return 0;
	r = stores_open(&run->stores, run->workflow, s3, &run->out, err);
	if (r < 0)
		return r;
	r = bucket_head(run->out->client, run->out->bucket, &e);
	if (r == -(int)PENSTOCK_E_NOT_FOUND) {
		r = bucket_create(run->out->client, run->out->bucket, err);
		if (r == 0)
			run_say(run, RUN_EVENT_MESSAGE, "created the bucket %s://%s",
				object_client_scheme(run->out->client), run->out->bucket);
		return r;
	}
	/* Keys that may write objects but not look at the bucket are common; the first write tells. */
	if (r == -(int)PENSTOCK_E_PERMISSION && e.http_status == 403)
		return 0;
	return r < 0 ? error_move(err, &e) : 0;
}

static void on_sync_event(
	void *cookie, enum sync_event event, const char *path, uint64_t bytes, const char *detail)
{
	struct run *run = cookie;
	char size[STR_SIZE_SIZE];

	switch (event) {
	case SYNC_PUBLISHED:
		run_checkpoints_published(run, path);
		break;
	case SYNC_PARTIAL:
		run_say(run, RUN_EVENT_WARNING,
			"%s may be incomplete: kept as %s, the last good object stays", path,
			detail);
		break;
	case SYNC_KEPT:
		str_format_size(bytes, size);
		if (path)
			run_say(run, RUN_EVENT_MESSAGE,
				"%s was there before: the old object (%s) is kept as %s, see "
				"'penstock show %s'",
				path, size, detail, run->id);
		else
			run_say(run, RUN_EVENT_MESSAGE,
				"begun anew: what earlier attempts put out (%s, %s) is kept in the "
				"bucket where it is overwritten",
				detail, size);
		break;
	case SYNC_WARNING:
		run_event(run, RUN_EVENT_WARNING, detail, 0, 0);
		break;
	case SYNC_LOST:
		run_say(run, RUN_EVENT_WARNING,
			"another run has taken over this output; nothing is published any more");
		break;
	default:
		log_debug("%s: %s", path ? path : "", detail ? detail : "");
		break;
	}
}

void run_sync_options(struct run *run, const char *journal, struct sync_options *options)
{
	*options = (struct sync_options){
		.dir = run->layout.output,
		.private_dir = run->layout.tmp,
		.client = run->out->client,
		.bucket = run->out->bucket,
		.prefix = run->out->prefix,
		.state_prefix = run->state_prefix,
		.run_id = run->id,
		.attempt = run->attempt,
		.anew = run_began_with(run),
		.journal_path = journal,
		.delete_sync = run->workflow->output.s3.delete_sync.value,
		.continuous = run->workflow->continuous_output_sync.value,
		.on_event = on_sync_event,
		.cookie = run,
		.cancel = &run->interrupts.cancel,
	};
}

/* A process that stood still for a while, or a store that did, is no reason to fail. */
static int restore(struct run *run, const struct sync_options *options,
	struct sync_restored *restored, struct penstock_error *err)
{
	for (;;) {
		_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
		unsigned long refusals = lease_refusals(run->lease);
		int r = sync_restore(options, restored, &e);

		if (r != -(int)PENSTOCK_E_UNAVAILABLE || refusals == lease_refusals(run->lease) ||
			!lease_wait(run->lease, &run->interrupts.cancel))
			return r < 0 ? error_move(err, &e) : 0;
	}
}

static int begin_sync(struct run *run, struct penstock_error *err)
{
	_cleanup_free_ char *journal = path_join(run->layout.state, "sync");
	struct sync_options options;
	struct sync_restored restored = {0};
	int r;

	if (!run->out)
		return 0;
	if (!journal)
		return error_memory(err);
	run_sync_options(run, journal, &options);
	if (!run->continuing)
		options.anew = INT_MAX;
	if (run->continuing) {
		r = restore(run, &options, &restored, err);
		if (r < 0)
			return error_prefix(
				err, "the output of the last attempt cannot be restored");
		run_say(run, RUN_EVENT_MESSAGE,
			"restored the output: %" PRIu64 " kept, %" PRIu64 " fetched",
			restored.files_kept, restored.files_fetched);
	}
	unlink(run->layout.superseded);
	return sync_start(&run->sync, &options, err);
}

int run_begin_log_upload(struct run *run, struct penstock_error *err)
{
	_cleanup_free_ char *key = NULL;

	if (!run->out || !run->workflow->enable_logging.value)
		return 0;
	if (asprintf(&key, "%s%s/log/%d", run->out->prefix, run->state_prefix, run->attempt) < 0)
		return error_memory(err);
	return log_upload_start(
		&run->log_upload, run->out->client, run->out->bucket, key, run->layout.log, err);
}

/* One stage: false once the end is decided. */
static bool stage_of(struct run *run, enum run_class class,
	int (*fn)(struct run *run, struct penstock_error *err))
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (fn(run, &err) < 0)
		run_end_error(run, class, &err);
	else if (interrupts_reason(&run->interrupts) != INTERRUPT_NONE)
		run_end_error(run, class, &err);
	return !run->end.decided;
}

static bool begin_stages(struct run *run)
{
	if (!stage_of(run, RUN_CLASS_NODE, run_wait_for_retry) ||
		!stage_of(run, RUN_CLASS_NODE, claim))
		return false;
	set_state(run, RUN_STAGING);
	return stage_of(run, RUN_CLASS_WORKFLOW, run_check_first_step) &&
	       stage_of(run, RUN_CLASS_OUTPUT, run_open_output) &&
	       stage_of(run, RUN_CLASS_OUTPUT, run_take_lease) &&
	       stage_of(run, RUN_CLASS_IMAGE, containers_bring) &&
	       stage_of(run, RUN_CLASS_INPUT, stage) &&
	       stage_of(run, RUN_CLASS_OUTPUT, begin_sync) &&
	       stage_of(run, RUN_CLASS_OUTPUT, run_checkpoints_begin) &&
	       stage_of(run, RUN_CLASS_OUTPUT, run_begin_log_upload) &&
	       stage_of(run, RUN_CLASS_WORKFLOW, project_lay_out) &&
	       stage_of(run, RUN_CLASS_WORKFLOW, project_install);
}

static void perform(struct run *run)
{
	bool begun = begin_stages(run);

	stores_hurry(&run->stores);
	if (!begun)
		return;
	set_state(run, RUN_RUNNING);
	run_tell(run, WORKFLOW_NOTIFY_START);
	/* Orphans of steps become our children, so that none is missed at a step's end. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	run->steps_began = true;
	unlink(run->layout.goes_on);
	run_steps(run);
	prctl(PR_SET_CHILD_SUBREAPER, 0);
}

/* ---- the one exit path ---- */

/* Only what steps of this attempt were through with: a part must not replace a good object. */
static bool sends_http(const struct run *run)
{
	return run->workflow->output.kind == WORKFLOW_HTTP && run->steps_began &&
	       run->end.state != RUN_PREEMPTED;
}

/* Completes the output; the storage stays where that fails. */
static int flush(struct run *run, struct penstock_error *err)
{
	int r = 0;

	if (run->fenced)
		r = 0; /* what is here stays here; the log of this attempt is ours alone */
	else if (lease_is_lost(run->lease))
		r = error_set(err, PENSTOCK_E_PRECONDITION, "%s", lease_owner_now(run->lease));
	else if (run->sync)
		r = run_flush_sync(run, run->sync, err);
	else if (sends_http(run))
		r = run_flush_http(run, err);
	if (run_checkpoints_end(run) && r == 0 && run->sync)
		r = run_flush_sync(run, run->sync, err);
	if (r == 0 && run->steps_began && !run->fenced)
		r = run_checkpoints_settle(run, err);
	/* A store that does not take the output gets no more time for the rest. */
	if (r < 0 && err && error_is_retryable(err))
		interrupts_give_up(&run->interrupts);
	if (run->log_upload) {
		_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
		struct log_upload *upload = take_pointer(run->log_upload);
		int l = log_upload_finish(upload, &run->interrupts.cancel, &e);

		if (l < 0 && r == 0)
			r = error_move(err, &e);
	}
	return r;
}

const char *run_flush_hint(enum penstock_code code)
{
	switch (code) {
	case PENSTOCK_E_NO_SPACE:
		return "; make room in the store, then";
	case PENSTOCK_E_PERMISSION:
		return "; mend the keys or what they may do, then";
	case PENSTOCK_E_UNAVAILABLE:
	case PENSTOCK_E_TIMEOUT:
		return "; once the store answers again,";
	default:
		return ",";
	}
}

static void set_unflushed(const struct run *run, struct records_end *end)
{
	end->unflushed = true;
	end->flushed_state = run->end.state;
	end->flushed_class = run->end.class;
	end->flushed_exit_code = run->end.exit_code;
}

/* The machine goes before all is published. What is, is whole, and the run goes on from it. */
static void end_before_its_time(struct run *run, struct records_end *end)
{
	int step_code = run->end.step_code;

	if (run->end.state != RUN_PREEMPTED) {
		free(run->end.message);
		run->end = (struct run_end){.step_code = step_code};
		run_end(run, RUN_PREEMPTED, RUN_CLASS_PREEMPTED, 75,
			"told to end while the output was uploaded; the same command continues it");
	}
	set_unflushed(run, end);
	run_say(run, RUN_EVENT_WARNING,
		"the time was over before all of the output was published; what is, is whole, and "
		"'penstock flush %s' uploads the rest if this machine stays",
		run->id);
}

/*
 * An attempt that ended before it could publish anything: what an earlier one left behind still waits,
 * and the record must say so, or the next run would take the storage for its own.
 */
static void keep_waiting_output(struct run *run, struct records_end *end)
{
	if (!run->continuing || !run->only_copy || !run_has_output(run) ||
		run->workflow->output.kind == WORKFLOW_NO_TRANSPORT)
		return;
	set_unflushed(run, end);
	run_say(run, RUN_EVENT_WARNING,
		"the output of an earlier attempt is not completely uploaded%s; it is kept in %s",
		run_is_superseded(run) ? ", and is older than what was put out elsewhere since"
				       : ", which 'penstock flush' does",
		run->layout.output);
}

/* What goes out through HTTP is sent when the steps are through; until then it is nowhere else. */
static bool http_output_waits(const struct run *run)
{
	return run->workflow->output.kind == WORKFLOW_HTTP && run->steps_began &&
	       run->end.state == RUN_PREEMPTED && run_has_output(run);
}

static void flush_and_judge(struct run *run, struct records_end *end)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	bool any = run->sync || run->log_upload || sends_http(run);

	interrupts_phase(&run->interrupts, PHASE_FLUSH);
	if (!any) {
		if (http_output_waits(run))
			set_unflushed(run, end);
		else
			keep_waiting_output(run, end);
		return;
	}
	set_state(run, RUN_FLUSHING);
	run_watch_the_time(run);
	if (flush(run, &err) == 0)
		return;
	if (atomic_load(&run->out_of_time) &&
		(run->end.state == RUN_SUCCEEDED || run->end.state == RUN_PREEMPTED)) {
		end_before_its_time(run, end);
		return;
	}
	if (run->end.message)
		run_event(run, RUN_EVENT_WARNING, run->end.message, 0, 0);
	if (lease_is_lost(run->lease)) { /* whoever has it now knows nothing of what is here */
		free(run->end.message);
		run->end = (struct run_end){.step_code = run->end.step_code};
		run_end(run, RUN_FAILED, RUN_CLASS_NODE, 69,
			"another owner has taken this run over: %s; what was written here stays "
			"in %s",
			err.message, run->layout.output);
		return;
	}
	if (run->sync)
		sync_settle(run->sync);
	set_unflushed(run, end);
	free(run->end.message);
	run->end = (struct run_end){.step_code = run->end.step_code};
	run_end(run, RUN_FAILED, RUN_CLASS_OUTPUT, 73,
		"the output is not complete: %s; it is kept in %s%s 'penstock flush %s' uploads "
		"the rest",
		err.message, run->layout.output, run_flush_hint(err.code), run->id);
}

static void give_back_lease(struct run *run)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	/* What it was to continue is still to be continued, from wherever. */
	bool goes_on = (run->continuing && !run->steps_began && run->end.state != RUN_SUCCEEDED) ||
		       run->retry_in_ms >= 0;
	enum run_state state = goes_on ? RUN_LOST : run->end.state;

	/* The output was given up for want of time, not for a store that does not answer. */
	if (atomic_load(&run->out_of_time))
		interrupts_try_again(&run->interrupts);
	run_watch_the_last_words(run);
	if (run->lease)
		object_client_gate(run->out->client, NULL);
	/* Where the output could not be sent, its state could not either; `penstock flush` sends both. */
	if (lease_release(take_pointer(run->lease), run_state_name(state),
		    run_class_name(run->end.class), run->end.exit_code, &err) < 0 &&
		run->end.exit_code != 73)
		run_say(run, RUN_EVENT_WARNING,
			"the run's state beside its output is not up to date: %s", err.message);
	run_forget_the_time(run);
}

/* Nothing local is removed but what a success has published (or what staging can bring again). */
static void tidy(struct run *run)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (run->end.state != RUN_SUCCEEDED)
		return;
	if (run->workflow->output.kind == WORKFLOW_NO_TRANSPORT && run_has_output(run))
		return;
	if (run_layout_wipe(&run->layout, &err) < 0)
		log_warn("%s", err.message);
}

/* The last line of the run's own log; before the end is on record, so that who follows it sees it. */
static void note_end(struct run *run)
{
	const char *state = run_state_name(run->end.state), *more;
	/* "stopped during 'train'; …" says the state itself. */
	bool said = run->end.message && str_starts(run->end.message, state);

	if (run->end.state == RUN_SUCCEEDED &&
		run->workflow->output.kind == WORKFLOW_NO_TRANSPORT && run_has_output(run))
		run->output_place = strdup(run->layout.output);
	else if (run->end.state == RUN_SUCCEEDED)
		run->output_place = run_describe_output(&run->workflow->output);
	more = run->end.message ? run->end.message : run->output_place;

	if (run->output)
		output_note(run->output, "penstock: run %s %s%s%s", run->id, said ? "" : state,
			!more || said	   ? ""
			: run->end.message ? ": "
					   : "; its output is in ",
			more ? more : "");
}

static void finish(struct run *run)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct records_end end = {0};

	run_give_room(run);
	if (run->output)
		output_retry(run->output); /* before the log is uploaded */
	if (!run->end.decided) {
		run->end.decided = true;
		run->end.state = RUN_SUCCEEDED;
	}
	project_collect(run);
	run_checkpoints_stop(
		run); /* what it is at may take long, and the flush does not wait for it */
	flush_and_judge(run, &end);
	run_checkpoints_end(run);
	run_record_sync(run);
	sync_free(take_pointer(run->sync));
	run->retry_in_ms = run_plan_retry(run);
	end.state = run->end.state;
	end.class = run->end.class;
	end.exit_code = run->end.exit_code;
	end.step_code = run->end.step_code;
	end.message = run->end.message;
	give_back_lease(run);
	note_end(run);
	if (records_end(run->options->records, run->id, run->attempt, &end, &err) < 0)
		log_error("the end of run %s cannot be recorded: %s", run->id, err.message);
	else /* not before: a kill in between must not let the next attempt go on with half a storage */
		tidy(run);
	run_event(run, RUN_EVENT_STATE, run_state_name(run->end.state), 0, 0);
	if (run->retry_in_ms < 0)
		run_tell(run, WORKFLOW_NOTIFY_END);
	if (run->retry_in_ms < 0 && run->end.state != RUN_SUCCEEDED)
		run_tell(run, WORKFLOW_NOTIFY_FAILURE);
	output_stop(run->output);
	claim_release(take_pointer(run->claim));
	notify_free(take_pointer(run->notify));
	notices_done(run->notices, reaction_is_alone());
	notices_stop(take_pointer(run->notices));
	run_settle_storage(run, !end.unflushed);
	stores_release(&run->stores);
	containers_release(run);
	free(take_pointer(run->staged));
}

static void announce(const struct run *run)
{
	char line[RECORDS_ID_SIZE + 1];
	int n = snprintf(line, sizeof(line), "%s\n", run->id);

	if (run->options->ready_fd >= 0 &&
		fs_write_all(run->options->ready_fd, line, (size_t)n) < 0)
		log_debug("nobody waits for the run's id");
	if (run->options->on_ready)
		run->options->on_ready();
	if (run->continuing)
		run_say(run, RUN_EVENT_MESSAGE,
			"run %s, attempt %d: goes on where the last one ended", run->id,
			run->attempt);
	else
		run_say(run, RUN_EVENT_MESSAGE, "run %s, attempt %d", run->id, run->attempt);
}

static void run_release(struct run *run)
{
	interrupts_stop(&run->interrupts);
	output_free(run->output);
	run_layout_release(&run->layout);
	if (run->lock_fd >= 0)
		close(run->lock_fd);
	free(run->state_prefix);
	free(run->venv);
	free(run->checkpoint);
	free(run->end.message);
	free(run->output_place);
	notice_settings_release(&run->preemption);
}

static void give_result(struct run *run, struct run_result *result)
{
	snprintf(result->id, sizeof(result->id), "%s", run->id);
	result->attempt = run->attempt;
	result->state = run->end.state;
	result->exit_code = run->end.exit_code;
	result->retry_in_ms = run->retry_in_ms;
	result->message = take_pointer(run->end.message);
	result->output = take_pointer(run->output_place);
}

void run_result_release(struct run_result *result)
{
	free(result->message);
	free(result->output);
	*result = (struct run_result){0};
}

int run_execute(
	const struct run_options *options, struct run_result *result, struct penstock_error *err)
{
	_cleanup_(run_release) struct run run = {.options = options,
		.workflow = options->workflow,
		.lock_fd = -1,
		.reserve_fd = -1,
		.checkpoints_lock = PTHREAD_MUTEX_INITIALIZER,
		.retry_in_ms = -1,
		.interrupts = {
			.event_fd = -1,
			.signal_fd = -1,
			.quit_fd = -1,
			.note = note_interrupt,
			.describe = reaction_describe,
			.noticed = reaction_noticed,
		}};
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	int r;

	run.interrupts.cookie = &run; /* before the thread that hands it over */
	r = notice_settings_read(&run.preemption, &options->workflow->preemption, err);
	run.interrupts.grace_ms = notice_settings_grace_ms(&run.preemption);
	if (r == 0)
		r = interrupts_start(&run.interrupts, err);
	if (r == 0)
		r = run_begin(&run, err);
	if (r < 0)
		return r;
	if (asprintf(&run.state_prefix, ".penstock/runs/%s", run.id) < 0)
		run.state_prefix = NULL;
	announce(&run);
	if (!run.state_prefix || set_up(&run, &e) < 0)
		run_end_error(&run, RUN_CLASS_NODE, &e);
	else
		perform(&run);
	finish(&run);
	give_result(&run, result);
	return 0;
}
