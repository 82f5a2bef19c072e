/* The leaves of the tree: executions of a `run` or of an `if`. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/process/process.h"
#include "run/attempt/attempt.h"
#include "run/config/times.h"
#include "run/notices/reaction.h"
#include "run/publish/publisher.h"
#include "run/report/output.h"
#include "run/walk/walk.h"
#include "sync/sync.h"

/* Numbers of descriptors: of an execution, of each of its tasks, and of everything else. */
#define LEAF_FILES  16
#define TASK_FILES  4
#define OTHER_FILES 128

/* Checks the directory right before the start, because an earlier step may create the directory. */
static int check_work_dir(
	const char *path, const struct workflow_run *what, struct penstock_error *err)
{
	const char *dir = what->work_dir.value;
	_cleanup_(buf_release) struct buf plain = BUF_INIT(LIMIT_STRING);
	struct stat st;

	if (!dir || what->container.given || (stat(dir, &st) == 0 && S_ISDIR(st.st_mode)))
		return 0;
	/* Write "steps.0.for.steps.1" for "steps[0].for.steps[1]": no shell mistakes such a text
	 * for a pattern. */
	for (const char *p = path; *p; p++) {
		if (*p == '[')
			buf_add_char(&plain, '.');
		else if (*p != ']')
			buf_add_char(&plain, *p);
	}
	return error_set(err, PENSTOCK_E_INVALID,
		"%s.run.workDir: '%s' is not a directory on this machine; create it, or use --set "
		"%s.run.workDir=DIR",
		path, workflow_shown(&what->work_dir), buf_str(&plain));
}

int run_check_first_step(const struct attempt *attempt, struct penstock_error *err)
{
	const struct workflow_step *first = &attempt->workflow->steps.items[0];

	if (attempt->continuing || first->kind != WORKFLOW_STEP_RUN || first->condition.value)
		return 0;
	return check_work_dir(first->path, &first->run, err);
}

static int start(struct walk *walk, struct frame *frame, const struct workflow_run *what,
	struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist env = {0};
	const struct publisher *publisher = walk->publisher;

	if ((frame->env && strlist_add_all(&env, (const char *const *)frame->env->items) < 0) ||
		launch_add_pids(walk, frame, &env) < 0 ||
		(frame->restarts && strlist_addf(&env, "PENSTOCK_RESTART=%d", frame->restarts) < 0))
		return error_memory(err);
	return step_run_start(&frame->run, walk->host,
		&(struct step_run_spec){
			.step = what,
			.name = frame->name,
			.path = frame->path,
			.env = env.n ? (const char *const *)env.items : NULL,
			.env_file = frame->env_file,
			.store = publisher->store ? publisher->store : publisher->stores->opened,
			.checkpoint = publisher->checkpoints.newest,
			.here = what == &frame->condition,
		},
		err);
}

bool leaf_has_room(struct walk *walk, const struct frame *frame)
{
	uint64_t tasks = frame->step->kind == WORKFLOW_STEP_RUN
				 ? (uint64_t)frame->step->run.resources.tasks.value
				 : 1;
	bool may_wait = false;

	for (const struct frame *f = walk->live; f && !may_wait; f = f->next_live)
		may_wait = !f->launch; /* a launch may be a server, which does not end */
	if (may_wait && !walk->full)
		walk->full = !process_has_files(OTHER_FILES + LEAF_FILES + TASK_FILES * tasks);
	return !may_wait || !walk->full;
}

bool leaf_start(struct walk *walk, struct frame *frame, const struct workflow_run *what)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (check_work_dir(frame->step->path, what, &err) < 0) {
		frame_fail(frame, RUN_CLASS_WORKFLOW, &err);
		return false;
	}
	/* Find the newest checkpoint again: the execution may have saved one before it failed. */
	if (frame->restarts && what == &frame->step->run &&
		run_checkpoints_find(walk->publisher, &err) < 0) {
		run_say(&walk->attempt->voice, RUN_EVENT_WARNING,
			"cannot find the last checkpoint of '%s': %s", frame->name, err.message);
		penstock_error_release(&err);
	}
	walk_env_begin(walk, frame);
	if (start(walk, frame, what, &err) < 0) {
		error_prefix(&err, "cannot start '%s'", frame->name);
		frame_fail(frame, what->container.given ? RUN_CLASS_IMAGE : RUN_CLASS_USER, &err);
		return false;
	}
	frame->next_live = walk->live;
	frame->prev_live = &walk->live;
	if (walk->live)
		walk->live->prev_live = &frame->next_live;
	walk->live = frame;
	walk->n_live++;
	return true;
}

/* Kills all processes of the execution. Unless the kill was `asked` for, the tasks have ended, and
 * only processes that they left are killed. The files that these processes were writing are
 * incomplete, unlike the files of other executions. */
static void leaf_kill(struct walk *walk, struct frame *frame, bool asked)
{
	struct sync *sync = walk->publisher->sync;
	bool alone = walk->n_live == 1;

	if (!alone && !asked && !step_run_left(frame->run))
		return;
	if (sync)
		sync_kill_coming(sync);
	step_run_kill(frame->run);
	if (sync && !alone)
		sync_kill_over(sync);
}

bool leaf_ended(struct walk *walk, struct frame *frame, struct step_end *end)
{
	struct sync *sync = walk->publisher->sync;
	bool killed = walk->killed || (frame->launch && frame->launch->killed);
	bool suspicious;

	if (!step_run_ended(frame->run, end))
		return false;
	/* A shell exits with 128 + n if its child was killed by signal n. */
	suspicious = end->killed || end->signal || end->code > 128 || killed;
	/* Notify the sync at once: a file that was closed just before the end would soon be
	 * published. */
	if (sync && suspicious)
		sync_task_ended(sync, true);
	leaf_kill(walk, frame, false);
	end->done = reaction_is_done(walk->reaction, step_run_serial(frame->run));
	end->signalled = step_run_signalled(frame->run);
	*frame->prev_live = frame->next_live;
	if (frame->next_live)
		frame->next_live->prev_live = frame->prev_live;
	walk->n_live--;
	step_run_free(take_pointer(frame->run));
	if (walk->full)
		walk_wake_waiting(walk);
	walk->full = false;
	output_drain(walk->attempt->voice.output);
	if (sync)
		sync_task_ended(sync, suspicious);
	walk_env_check(walk, frame, end);
	return true;
}

/* ---- `if` of a step ---- */

bool condition_begin(struct walk *walk, struct frame *frame)
{
	const struct workflow_step *step = frame->step;
	struct workflow_run *what = &frame->condition;
	char *command = str_printf(
		"[[ %s ]] && exit %d; exit %d", step->condition.value, CONDITION_YES, CONDITION_NO);

	if (!command) {
		frame_fail_memory(frame);
		return false;
	}
	*what = (struct workflow_run){
		.command = {.value = command},
		.shell = {.value = "/bin/bash"},
		.resources = {.tasks = {.value = 1},
			.cpus_per_task = walk->attempt->workflow->resources.cpus_per_task,
			.mem_per_cpu = walk->attempt->workflow->resources.mem_per_cpu},
		.at = step->condition.at,
	};
	if (leaf_start(walk, frame, what))
		return true;
	free(command);
	what->command.value = NULL;
	return false;
}

void condition_ended(struct walk *walk, struct frame *frame, const struct step_end *end)
{
	struct step_failure *failure = &frame->outcome.failure;

	free((char *)frame->condition.command.value);
	frame->condition.command.value = NULL;
	frame->phase = PHASE_BODY_RUNS;
	if (end->signal || end->oom) {
		frame->outcome.failed = step_end_explain(
			end, frame->name, walk->attempt->id, failure);
	} else if (end->code != CONDITION_YES && end->code != CONDITION_NO) {
		frame->outcome.failed = true;
		*failure = (struct step_failure){
			.class = RUN_CLASS_USER, .exit_code = CONDITION_WRONG};
		snprintf(failure->text, sizeof(failure->text),
			"'%s': bash cannot evaluate its `if`; see 'penstock logs %s'", frame->name,
			walk->attempt->id);
	} else if (end->code == CONDITION_NO || !frame_may_begin(walk, frame)) {
		frame->phase = PHASE_CLOSE;
		if (end->code != CONDITION_NO)
			frame_cut(walk, frame);
	} else {
		frame->phase = PHASE_BODY;
	}
}

/* ---- ending executions ---- */

void walk_notice(struct walk *walk, int signal)
{
	walk->stopping = walk->noticed = true;
	for (struct frame *f = walk->live; f; f = f->next_live) {
		if (f->final)
			continue;
		f->noticed = true;
		step_run_notice(f->run, signal);
	}
	walk_wake_waiting(walk);
}

void walk_kill_noticed(struct walk *walk)
{
	for (struct frame *f = walk->live; f; f = f->next_live) {
		if (f->noticed)
			leaf_kill(walk, f, true);
	}
}

void walk_forget_notice(struct walk *walk)
{
	walk->stopping = walk->noticed = false;
	for (struct frame *f = walk->live; f; f = f->next_live) {
		f->noticed = false;
		step_run_forget_notice(f->run);
	}
}

void walk_notice_again(struct walk *walk)
{
	for (struct frame *f = walk->live; f; f = f->next_live)
		step_run_forget_notice(f->run);
}

void walk_stop(struct walk *walk)
{
	if (walk->stopping)
		return;
	walk->stopping = true;
	for (struct frame *f = walk->live; f; f = f->next_live) {
		if (!f->final)
			step_run_signal(f->run, SIGTERM);
	}
	walk_wake_waiting(walk);
}

void walk_kill(struct walk *walk)
{
	walk->stopping = walk->killed = true;
	for (struct frame *f = walk->live; f; f = f->next_live)
		leaf_kill(walk, f, true);
	walk_wake_waiting(walk);
}

/* ---- launches ---- */

static bool is_part_of(const struct frame *frame, const struct launch *launch)
{
	for (const struct launch *l = frame->launch; l; l = l->outer) {
		if (l == launch)
			return true;
	}
	return false;
}

/* Returns the launch of the frame that is due to be killed. */
static struct launch *overdue(const struct frame *frame, int64_t now_ms)
{
	for (struct launch *l = frame->launch; l; l = l->outer) {
		if (l->stopping && !l->killed && l->kill_at_ms <= now_ms)
			return l;
	}
	return NULL;
}

void launch_check_deadlines(struct walk *walk)
{
	int64_t now_ms = clock_monotonic_ms();

	for (struct frame *f = walk->live; f; f = f->next_live) {
		struct launch *launch = overdue(f, now_ms);

		if (!launch)
			continue;
		launch->killed = true;
		run_say(&walk->attempt->voice, RUN_EVENT_WARNING,
			"'%s' did not end within %" PRId64 " s and is killed", launch->name,
			launch_grace_ms() / 1000);
		for (struct frame *other = walk->live; other; other = other->next_live) {
			if (is_part_of(other, launch))
				leaf_kill(walk, other, true);
		}
	}
}
