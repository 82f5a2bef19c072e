/* Running the steps of a workflow one after another. */
#include "run/run_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "run/lease.h"
#include "run/output.h"
#include "run/step_run.h"
#include "sync/sync.h"
#include "base/banned.h"

enum {
	STATUS_MS = 1000, /* how often the sync's lag is recorded */
	GRACE_MS =
		30000, /* from the request to end to the kill; what clouds give at a preemption */
};

void run_record_sync(struct run *run)
{
	struct sync_status status;

	if (!run->sync)
		return;
	sync_get_status(run->sync, &status);
	records_set_sync(run->options->records, run->id, run->attempt,
		&(struct records_sync){
			.lag_ms = status.lag_ms,
			.bytes_waiting = status.bytes_waiting,
			.files_waiting = status.files_waiting,
			.files_published = status.files_published,
			.bytes_published = status.bytes_published,
			.last_error = status.last_error,
		},
		NULL);
}

/* What the loop around a running task remembers. */
struct watch {
	struct run *run;
	struct step_run *step;
	int requests;	     /* interrupts seen */
	int64_t grace_ms;    /* that it was given to end */
	int64_t kill_at_ms;  /* 0: nobody asked it to end */
	int64_t deadline_ms; /* of the step's timeout; 0: none */
	bool killed;
};

/* Ends whatever lives of the step. What it was writing must not be taken for whole. */
static void kill_step(const struct watch *watch)
{
	if (watch->run->sync)
		sync_kill_coming(watch->run->sync);
	step_run_kill(watch->step);
}

/* $PENSTOCK_STOP_GRACE seconds, or what `penstock stop --grace` has left in the run's directory. */
static int64_t grace_ms(const struct run *run)
{
	_cleanup_free_ char *path = path_join(run->layout.dir, "grace");
	_cleanup_(buf_release) struct buf text = BUF_INIT(32);
	const char *given = getenv("PENSTOCK_STOP_GRACE");
	uint64_t value;

	if (path && fs_read(path, &text, NULL) == 0 && unlink(path) == 0 &&
		str_to_u64(buf_str(&text), 0, INT64_MAX / 2, &value))
		return (int64_t)value;
	if (given && str_to_u64(given, 0, 7 * 24 * 3600, &value))
		return (int64_t)value * 1000;
	return GRACE_MS;
}

/* The first request asks the step to end, the second ends it. */
static void react(struct watch *watch)
{
	struct run *run = watch->run;
	int requests = interrupts_count(&run->interrupts);

	interrupts_clear_event(&run->interrupts);
	if (requests >= 1 && watch->requests == 0) {
		watch->grace_ms = grace_ms(run);
		watch->kill_at_ms = clock_monotonic_ms() + watch->grace_ms;
		run_say(run, RUN_EVENT_MESSAGE, "asking the step to end (once more kills it)");
		step_run_signal(watch->step, SIGTERM);
	}
	if (requests >= 2 && !watch->killed) {
		watch->killed = true;
		kill_step(watch);
	}
	watch->requests = requests;
}

/* Milliseconds until something is due. */
static int next_timeout(const struct watch *watch)
{
	int64_t wait = STATUS_MS;

	if (watch->kill_at_ms && !watch->killed) {
		int64_t left = watch->kill_at_ms - clock_monotonic_ms();

		if (left < wait)
			wait = left;
	}
	return wait > 0 ? (int)wait : 0;
}

/* Another owner goes on with this run: nothing of ours may be published any more, and the step is in vain. */
static void fence(struct watch *watch)
{
	struct run *run = watch->run;

	run->fenced = true;
	sync_free(take_pointer(run->sync));
	if (!watch->kill_at_ms) {
		watch->grace_ms = grace_ms(run);
		watch->kill_at_ms = clock_monotonic_ms() + watch->grace_ms;
	}
	step_run_signal(watch->step, SIGTERM);
}

static void wait_for_end(struct watch *watch, struct step_end *end)
{
	struct run *run = watch->run;
	struct pollfd fds[2] = {
		{step_run_fd(watch->step), POLLIN, 0}, {run->interrupts.event_fd, POLLIN, 0}};

	for (;;) {
		int n = poll(fds, 2, next_timeout(watch));

		if (n > 0 && fds[0].revents && step_run_ended(watch->step, end))
			return;
		if (n > 0 && fds[1].revents)
			react(watch);
		if (!run->fenced && lease_is_lost(run->lease))
			fence(watch);
		if (watch->kill_at_ms && !watch->killed &&
			clock_monotonic_ms() >= watch->kill_at_ms) {
			watch->killed = true;
			run_say(run, RUN_EVENT_WARNING,
				"the step did not end within %" PRId64 " s and is killed",
				watch->grace_ms / 1000);
			kill_step(watch);
		}
		if (n == 0)
			run_record_sync(run);
	}
}

/* An earlier step may make it, so this is asked right before. */
static int check_work_dir(const struct run *run, size_t i, struct penstock_error *err)
{
	const struct workflow_step *step = &run->workflow->steps.items[i];
	const char *dir = step->run.work_dir.value;
	struct stat st;

	/* That of a container is the image's. */
	if (step->kind != WORKFLOW_STEP_RUN || !dir || step->run.container.given)
		return 0;
	if (stat(dir, &st) == 0 && S_ISDIR(st.st_mode))
		return 0;
	return error_set(err, PENSTOCK_E_INVALID,
		"steps[%zu].run.workDir: %s is no directory on this machine; make it, or give "
		"--set steps.%zu.run.workDir=DIR",
		i, dir, i);
}

int run_check_first_step(struct run *run, struct penstock_error *err)
{
	return run->workflow->steps.n && !run->continuing ? check_work_dir(run, 0, err) : 0;
}

static void judge(struct run *run, const char *name, const struct step_end *end)
{
	struct step_failure failure;
	enum interrupt_reason reason = interrupts_reason(&run->interrupts);

	if (run->fenced) {
		run_end(run, RUN_FAILED, RUN_CLASS_NODE, 69,
			"another owner has taken this run over during '%s'; what was written here "
			"stays in %s",
			name, run->layout.output);
	} else if (reason == INTERRUPT_PREEMPT) {
		run_end(run, RUN_PREEMPTED, RUN_CLASS_PREEMPTED, 75,
			"told to end during '%s'; the same command continues it", name);
	} else if (reason == INTERRUPT_STOP) {
		run_end(run, RUN_STOPPED, RUN_CLASS_USER, 130,
			"stopped during '%s'; 'penstock resume %s' continues it", name, run->id);
	} else if (step_end_explain(end, name, run->id, &failure)) {
		run->end.step_code = run->end.decided ? run->end.step_code : failure.step_code;
		run_end(run, RUN_FAILED, failure.class, failure.exit_code, "%s", failure.text);
	}
}

/* Runs one step to its end; true: the next one may begin. */
static bool run_step(struct run *run, size_t i)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct watch watch = {.run = run};
	struct step_end end = {0};
	const char *name = run->workflow->steps.items[i].label;
	bool suspicious;

	run_event(run, RUN_EVENT_STEP, name, i + 1, run->workflow->steps.n);
	if (run->workflow->steps.items[i].kind != WORKFLOW_STEP_RUN)
		return true;
	if (check_work_dir(run, i, &err) < 0) {
		run_end_error(run, RUN_CLASS_WORKFLOW, &err);
		return false;
	}
	if (step_run_start(&watch.step, run,
		    &(struct step_run_spec){
			    .step = &run->workflow->steps.items[i].run, .name = name},
		    &err) < 0) {
		error_prefix(&err, "'%s' cannot be started", name);
		run_end_error(run,
			run->workflow->steps.items[i].run.container.given ? RUN_CLASS_IMAGE
									  : RUN_CLASS_USER,
			&err);
		return false;
	}
	wait_for_end(&watch, &end);
	/* A shell says 128 + n where its child was killed by signal n. */
	suspicious = end.signal || end.code > 128 || watch.killed;
	/* At once: what was closed in its last moment is published a few moments later. */
	if (run->sync && suspicious)
		sync_task_ended(run->sync, true);
	kill_step(&watch); /* children that the step left behind */
	step_run_free(watch.step);
	output_drain(run->output);
	if (run->sync)
		sync_task_ended(run->sync, suspicious);
	run_record_sync(run);
	judge(run, name, &end);
	return !run->end.decided;
}

/* Whether somebody asked to end between two steps. */
static bool interrupted(struct run *run)
{
	const struct step_end none = {0};

	if (interrupts_reason(&run->interrupts) != INTERRUPT_NONE)
		judge(run, "the change of steps", &none);
	return run->end.decided;
}

/* A step that is not on record would be run again. */
static void record_done(struct run *run, size_t i, const char *name)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r = records_step_done(run->options->records, run->id, run->attempt, (int)i, name, &err);

	if (r == -(int)PENSTOCK_E_NO_SPACE && run_give_room(run)) {
		penstock_error_release(&err);
		r = records_step_done(
			run->options->records, run->id, run->attempt, (int)i, name, &err);
	}
	if (r < 0)
		run_say(run, RUN_EVENT_WARNING,
			"that '%s' is finished cannot be recorded, so a resumed run repeats it: %s",
			name, err.message);
}

void run_steps(struct run *run)
{
	_cleanup_free_ char *grace = path_join(run->layout.dir, "grace");

	if (grace)
		unlink(grace); /* of a request that an earlier attempt did not come to */
	interrupts_phase(&run->interrupts, PHASE_STEPS);
	for (size_t i = 0; i < run->workflow->steps.n && !interrupted(run); i++) {
		const char *name = run->workflow->steps.items[i].label;

		if (i < run->steps_done) {
			run_say(run, RUN_EVENT_MESSAGE, "'%s' was finished by an earlier attempt",
				name);
			continue;
		}
		if (!run_step(run, i))
			return;
		record_done(run, i, name);
	}
}
