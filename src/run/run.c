#include "run/run.h"

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
#include "base/process/process.h"
#include "records/claims.h"
#include "run/cluster/slurm.h"
#include "run/config/user_limits.h"
#include "run/internal.h"
#include "run/process/strays.h"
#include "run/provenance.h"
#include "run/report/notify.h"
#include "run/report/output.h"
#include "run/retry.h"
#include "run/stage/stage.h"
#include "run/takeover.h"
#include "run/walk/steps.h"
#include "run/walk/walk.h"
#include "run/workdir/code_store.h"
#include "run/workdir/project.h"
#include "sync/sync.h"

/* Prepares storage, log, stores and the sources of notices, after the attempt is recorded. */
static int set_up(struct run *run, struct penstock_error *err)
{
	struct output *output = NULL;
	int r;

	run_layout_release(&run->attempt.layout);
	r = run_layout_init(
		&run->attempt.layout, run->attempt.home, run->attempt.id, run->attempt.number, err);
	atomic_store(&run->reaction.laid_out, r == 0);
	if (r == 0 && run->strays)
		r = strays_end(run->attempt.id, &run->attempt.layout, STRAYS_GRACE_MS, err);
	if (r > 0)
		run_say(&run->attempt.voice, RUN_EVENT_WARNING,
			"killed %d process%s that the last attempt left running", r,
			r == 1 ? "" : "es");
	if (r >= 0)
		r = run_clear_storage(run, err);
	if (r == 0)
		r = run_layout_create(&run->attempt.layout, err);
	if (r == 0)
		r = run_record_start(&run->attempt, err);
	if (r == 0)
		r = run_take_workflow(run, err);
	if (r == 0)
		r = output_start(&output, run->attempt.layout.log, run->options->stdout_fd,
			run->options->stderr_fd, err);
	run->attempt.voice.output = output;
	if (r == 0)
		r = stores_init(&run->stores, run->options->embedded,
			&(struct stores_patience){
				.cancel = &run->reaction.interrupts.cancel,
				.waiting = run_voice_warning,
				.cookie = &run->attempt.voice,
			},
			err);
	run->host.containers.engine = run->stores.engine;
	run->host.containers.patience_ms = atomic_load(&run->stores.patience_ms);
	run->host.life.dir = run->attempt.layout.dir;
	if (r == 0)
		r = step_host_find_ports(&run->host, err);
	if (r == 0)
		r = notify_start(&run->notify, &run->attempt.workflow->notify, err);
	if (r == 0)
		r = reaction_prepare(&run->reaction, err);
	if (r == 0)
		r = reaction_watch(&run->reaction, err);
	if (r == 0)
		attempt_reserve_space(&run->attempt);
	return r < 0 ? r : 0;
}

/* ---- the stages before the steps ---- */

static int claim(struct run *run, struct penstock_error *err)
{
	struct claim_limits limits;
	struct claim_request request;
	int r;

	if (run->options->slurm) /* the allocation is the claim */
		return 0;
	r = user_limits_read(&limits, err);
	if (r < 0)
		return r;
	run_claim_request(run->attempt.workflow, run->attempt.id, &limits, &request);
	return claim_acquire(&run->host.claim, &run->host.machine, &request,
		&(struct claim_wait){
			.cancel = &run->reaction.interrupts.cancel,
			.on_wait = run_voice_message,
			.cookie = &run->attempt.voice,
		},
		err);
}

static int stage(struct run *run, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf inputs = BUF_INIT(LIMIT_STRING);
	int r = stage_inputs(
		&(struct stage_options){
			.workflow = run->attempt.workflow,
			.stores = &run->stores,
			.layout = &run->attempt.layout,
			.progress = run_voice_stage,
			.cookie = &run->attempt.voice,
			.cancel = &run->reaction.interrupts.cancel,
		},
		&inputs, err);

	if (r == 0)
		run->staged = buf_take(&inputs);
	if (r == 0)
		r = provenance_record(run, err);
	return r;
}

/* Lays out the working directory. Then records the provenance again, because the Git commit of a
 * copied context is known only now. */
static int lay_out(struct run *run, struct penstock_error *err)
{
	const struct publisher *p = &run->publisher;
	_cleanup_free_ char *key = p->store ? str_printf("%s%s/context.zip", p->store->prefix,
						      p->state_prefix)
					    : NULL;
	const struct code_store store = {
		.at = p->store ? object_at(p->store->client, p->store->bucket, key)
			       : (struct object_ref){0},
		.lease = p->lease,
		.tmp = run->attempt.layout.tmp,
		.cancel = &run->reaction.interrupts.cancel,
	};
	int r = p->store && !key
			? error_memory(err)
			: project_lay_out(&run->attempt, key ? &store : NULL, store.cancel, err);

	return r < 0 || !run->attempt.workflow->context.path.value ? r
								   : provenance_record(run, err);
}

static int start_publishing(struct run *run, struct penstock_error *err)
{
	int r = publisher_start(&run->publisher, err);

	if (r == 0)
		r = run_checkpoints_begin(&run->publisher, err);
	return r < 0 ? r : publisher_start_log(&run->publisher, err);
}

/* Handles the result of a stage before the steps. Returns false if the end is decided. */
static bool passed(struct run *run, enum run_class class, int r, struct penstock_error *err)
{
	if (r < 0 || interrupts_reason(&run->reaction.interrupts) != INTERRUPT_NONE)
		reaction_end_error(&run->reaction, class, err);
	return !run->attempt.end.decided;
}

static bool begin_stages(struct run *run)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	const atomic_int *cancel = &run->reaction.interrupts.cancel;

	if (!passed(run, RUN_CLASS_NODE, run_wait_for_retry(run, &err), &err) ||
		!passed(run, RUN_CLASS_INPUT, run_wait_for_others(run, &err), &err) ||
		!passed(run, RUN_CLASS_NODE, claim(run, &err), &err))
		return false;
	run_set_state(run, RUN_STAGING);
	if (!(passed(run, RUN_CLASS_WORKFLOW, run_check_first_step(&run->attempt, &err), &err) &&
		    passed(run, RUN_CLASS_OUTPUT, publisher_open(&run->publisher, &err), &err) &&
		    passed(run, RUN_CLASS_OUTPUT, run_take_lease(run, &err), &err) &&
		    passed(run, RUN_CLASS_IMAGE, containers_pull(&run->host.containers, &err),
			    &err) &&
		    passed(run, RUN_CLASS_INPUT, stage(run, &err), &err) &&
		    passed(run, RUN_CLASS_OUTPUT, start_publishing(run, &err), &err) &&
		    passed(run, RUN_CLASS_WORKFLOW, lay_out(run, &err), &err) &&
		    passed(run, RUN_CLASS_WORKFLOW,
			    project_install(&run->attempt, cancel, &run->venv, &err), &err)))
		return false;
	run->host.venv = run->venv.dir;
	return true;
}

/* Called last before the steps, so that a run that does not reach its steps is not tracked. */
static int track(struct run *run, struct penstock_error *err)
{
	int r;

	if (!run->attempt.workflow->tracking.given)
		return 0;
	r = tracking_begin(&run->tracking, &run->attempt, &run->reaction.interrupts.cancel, err);
	return r < 0 ? r : provenance_record(run, err);
}

static void perform(struct run *run)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	bool begun = begin_stages(run);

	stores_hurry(&run->stores);
	if (!begun)
		return;
	if (!passed(run, RUN_CLASS_NODE, track(run, &err), &err))
		return;
	run_set_state(run, RUN_RUNNING);
	run_notify(run, WORKFLOW_NOTIFY_START);
	/* Orphans of steps become our children, so that the end of a step finds all of them. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	run->attempt.steps_began = true;
	unlink(run->attempt.layout.goes_on);
	run_steps(&run->host, &run->reaction, &run->publisher);
	prctl(PR_SET_CHILD_SUBREAPER, 0);
}

static void announce(const struct run *run)
{
	char line[RECORDS_ID_SIZE + 1], number[32] = "";
	int n = snprintf(line, sizeof(line), "%s\n", run->attempt.id);

	if (run->options->ready_fd >= 0 &&
		fs_write_all(run->options->ready_fd, line, (size_t)n) < 0)
		log_debug("cannot write the run's id: no reader");
	if (run->options->on_ready)
		run->options->on_ready();
	/* If the output is in a store, other machines may have made attempts, so the number may
	 * still change: see run_take_lease(). */
	if (run->attempt.workflow->output.kind != WORKFLOW_S3)
		snprintf(number, sizeof(number), ", attempt %d", (int)run->attempt.number);
	run_say(&run->attempt.voice, RUN_EVENT_MESSAGE, "run %s%s%s%s", run->attempt.id, number,
		run->attempt.continuing ? ": continues the last attempt" : "",
		run->after_failure && !run->options->resume ? ", which failed; --fresh starts over"
							    : "");
}

static void describe_signal(const void *allocation, int signal, struct notice *notice)
{
	slurm_describe(allocation, signal, notice);
}

static int on_image(void *cookie, struct penstock_error *err)
{
	return provenance_record(cookie, err);
}

/* Notifies the sync before tasks are killed: files that the tasks are writing are incomplete. */
static void on_kill(void *cookie)
{
	const struct publisher *publisher = cookie;

	if (publisher->sync)
		sync_kill_coming(publisher->sync);
}

void run_init(struct run *run, const struct run_options *options, struct run_result *result)
{
	struct attempt *attempt = &run->attempt;

	*run = (struct run){.options = options, .result = result, .lock_fd = -1};
	*attempt = (struct attempt){
		.workflow = options->workflow,
		.home = options->home,
		.records = options->records,
		.keep_context = options->keep_context,
		.voice.observer = &options->observer,
		.reserve_fd = -1,
	};
	publisher_init(&run->publisher, attempt, &run->reaction, &run->stores);
	if (options->slurm) {
		run->reaction.describe = describe_signal;
		run->reaction.describe_cookie = options->slurm;
	}
	run->host = (struct step_host){
		.attempt = attempt,
		.slurm = options->slurm,
		.containers =
			{
				.attempt = attempt,
				.cancel = &run->reaction.interrupts.cancel,
				.pulled = on_image,
				.cookie = run,
			},
		.group.attempt = attempt,
		.tracking = &run->tracking,
		.kill_coming = on_kill,
		.cookie = &run->publisher,
	};
}

void run_release(struct run *run)
{
	reaction_release(&run->reaction);
	publisher_release(&run->publisher);
	output_free(run->attempt.voice.output);
	run_layout_release(&run->attempt.layout);
	if (run->lock_fd >= 0)
		close(run->lock_fd);
	venv_release(&run->venv);
	free(run->staged);
	free(run->attempt.end.message);
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
	_cleanup_(run_release) struct run run;
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	struct attempt *attempt = &run.attempt;
	int r;

	run_init(&run, options, result);
	result->retry_in_ms = -1;
	r = reaction_init(&run.reaction, attempt, err);
	if (r == 0)
		r = run_begin(&run, err);
	if (r < 0)
		return r;
	announce(&run);
	if (set_up(&run, &e) < 0)
		reaction_end_error(&run.reaction, RUN_CLASS_NODE, &e);
	else
		perform(&run);
	run_finish(&run);
	snprintf(result->id, sizeof(result->id), "%s", attempt->id);
	result->attempt = attempt->number;
	result->state = attempt->end.state;
	result->exit_code = run.refused && run.finished ? 0 : attempt->end.exit_code;
	result->refused = run.refused;
	result->message = take_pointer(attempt->end.message);
	return 0;
}

int run_execute_with_retries(
	const struct run_options *options, struct run_result *result, struct penstock_error *err)
{
	struct run_options next = *options;
	int r;

	process_raise_files(); /* parallel iterations need many descriptors */
	r = run_execute(options, result, err);
	while (r == 0 && result->retry_in_ms >= 0) {
		char id[RECORDS_ID_SIZE];

		memcpy(id, result->id, sizeof(id));
		next.id = id;
		next.resume = next.retrying = true;
		next.fresh = false;
		next.wait_ms = result->retry_in_ms;
		next.ready_fd = -1;
		next.on_ready = NULL;
		run_result_release(result);
		r = run_execute(&next, result, err);
	}
	return r;
}
