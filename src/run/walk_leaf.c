/* The leaves of the tree: executions of a `run` or of an `if`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "run/checkpoints.h"
#include "run/output.h"
#include "run/reaction.h"
#include "run/run_internal.h"
#include "run/walk.h"
#include "sync/sync.h"
#include "base/banned.h"

static void add_live(struct walk *walk, struct frame *frame)
{
	frame->next_live = walk->live;
	frame->prev_live = &walk->live;
	if (walk->live)
		walk->live->prev_live = &frame->next_live;
	walk->live = frame;
	walk->n_live++;
}

static void remove_live(struct walk *walk, struct frame *frame)
{
	*frame->prev_live = frame->next_live;
	if (frame->next_live)
		frame->next_live->prev_live = frame->prev_live;
	walk->n_live--;
}

/* "steps.0.for.steps.1" of "steps[0].for.steps[1]": no shell takes it for a pattern. */
static void add_plain_path(struct buf *out, const char *path)
{
	for (; *path; path++) {
		if (*path == '[')
			buf_add_char(out, '.');
		else if (*path != ']')
			buf_add_char(out, *path);
	}
}

/* An earlier step may make it, so this is asked right before. */
static int check_work_dir(
	const char *path, const struct workflow_run *what, struct penstock_error *err)
{
	const char *dir = what->work_dir.value;
	_cleanup_(buf_release) struct buf plain = BUF_INIT(LIMIT_STRING);
	struct stat st;

	if (!dir || what->container.given || (stat(dir, &st) == 0 && S_ISDIR(st.st_mode)))
		return 0;
	add_plain_path(&plain, path);
	return error_set(err, PENSTOCK_E_INVALID,
		"%s.run.workDir: %s is no directory on this machine; make it, or give --set "
		"%s.run.workDir=DIR",
		path, workflow_shown(&what->work_dir), buf_str(&plain));
}

int run_check_first_step(struct run *run, struct penstock_error *err)
{
	const struct workflow_step *first = &run->workflow->steps.items[0];

	if (run->continuing || first->kind != WORKFLOW_STEP_RUN || first->condition.value)
		return 0;
	return check_work_dir(first->path, &first->run, err);
}

static int start(struct walk *walk, struct frame *frame, const struct workflow_run *what,
	struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist env = {0};

	for (size_t i = 0; frame->env && i < frame->env->n; i++) {
		if (strlist_add(&env, frame->env->items[i]) < 0)
			return error_memory(err);
	}
	if (launch_add_pids(walk, frame, &env) < 0 ||
		(frame->restarts && strlist_addf(&env, "PENSTOCK_RESTART=%d", frame->restarts) < 0))
		return error_memory(err);
	return step_run_start(&frame->run, walk->run,
		&(struct step_run_spec){
			.step = what,
			.name = frame->name,
			.env = env.n ? (const char *const *)env.items : NULL,
			.env_file = frame->env_file,
			.here = what == &frame->condition,
		},
		err);
}

bool leaf_start(struct walk *walk, struct frame *frame, const struct workflow_run *what)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (check_work_dir(frame->step->path, what, &err) < 0) {
		frame_fail(frame, RUN_CLASS_WORKFLOW, &err);
		return false;
	}
	/* What it has saved before it failed is newer than what the attempt began with. */
	if (frame->restarts && what == &frame->step->run &&
		run_checkpoints_find(walk->run, &err) < 0) {
		run_say(walk->run, RUN_EVENT_WARNING, "'%s' begins without a checkpoint: %s",
			frame->name, err.message);
		penstock_error_release(&err);
	}
	walk_env_begin(walk, frame);
	if (start(walk, frame, what, &err) < 0) {
		error_prefix(&err, "'%s' cannot be started", frame->name);
		frame_fail(frame, what->container.given ? RUN_CLASS_IMAGE : RUN_CLASS_USER, &err);
		return false;
	}
	add_live(walk, frame);
	return true;
}

/* Ends whatever lives of it. What it was writing must not be taken for whole; what others write must. */
static void kill_all_of(struct walk *walk, struct frame *frame, bool asked)
{
	struct sync *sync = walk->run->sync;
	bool alone = walk->n_live == 1;

	if (!alone && !asked && !step_run_left(frame->run))
		return;
	if (sync)
		sync_kill_coming(sync);
	step_run_kill(frame->run);
	if (sync && !alone)
		sync_kill_over(sync);
}

void leaf_kill(struct walk *walk, struct frame *frame)
{
	kill_all_of(walk, frame, true);
}

bool leaf_ended(struct walk *walk, struct frame *frame, struct step_end *end)
{
	struct run *run = walk->run;
	bool killed = walk->killed || (frame->launch && frame->launch->killed);
	bool suspicious;

	if (!step_run_ended(frame->run, end))
		return false;
	/* A shell says 128 + n where its child was killed by signal n. */
	suspicious = end->killed || end->signal || end->code > 128 || killed;
	/* At once: what was closed in its last moment is published a few moments later. */
	if (run->sync && suspicious)
		sync_task_ended(run->sync, true);
	kill_all_of(walk, frame, false); /* children that it left behind */
	end->done = reaction_is_done(run, step_run_serial(frame->run));
	remove_live(walk, frame);
	step_run_free(take_pointer(frame->run));
	output_drain(run->output);
	if (run->sync)
		sync_task_ended(run->sync, suspicious);
	walk_env_check(walk, frame, end);
	return true;
}
