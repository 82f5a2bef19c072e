#include "run/walk.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "run/module_env.h"
#include "run/finished.h"
#include "run/retry.h"
#include "run/run_internal.h"
#include "base/banned.h"

/* ---- frames ---- */

void frame_push(struct walk *walk, struct frame *frame)
{
	if (frame->ready)
		return;
	frame->ready = true;
	frame->next_ready = NULL;
	*walk->ready_end = frame;
	walk->ready_end = &frame->next_ready;
}

void walk_wake_waiting(struct walk *walk)
{
	while (walk->waiting) {
		struct frame *frame = walk->waiting;

		walk->waiting = frame->next_waiting;
		frame->waits = false;
		frame_push(walk, frame);
	}
}

void frame_free(struct frame *frame)
{
	scope_free(frame->own_scope);
	strlist_release(&frame->own_env);
	free(frame->own_env_file);
	free(frame->name);
	free(frame->path);
	free(frame);
}

static struct frame *frame_new(struct walk *walk, struct frame *parent, enum frame_kind kind,
	const char *name, const char *path)
{
	struct frame *frame = calloc(1, sizeof(*frame));

	if (!frame)
		return NULL;
	frame->kind = kind;
	frame->parent = parent;
	frame->name = strdup(name);
	frame->path = strdup(path);
	if (!frame->name || !frame->path) {
		frame_free(frame);
		return NULL;
	}
	(void)walk;
	if (!parent)
		return frame;
	frame->launch = parent->launch;
	frame->scope = parent->scope;
	frame->env = parent->env;
	frame->env_file = parent->env_file;
	frame->final = parent->final;
	frame->final_in_launch = parent->final_in_launch;
	frame->unrecorded = parent->unrecorded;
	return frame;
}

struct frame *frame_list(struct walk *walk, struct frame *parent, const struct workflow_steps *list,
	const char *name, const char *path)
{
	struct frame *frame = frame_new(walk, parent, FRAME_LIST, name, path);

	if (frame)
		frame->list = list;
	return frame;
}

int frame_own_env(struct frame *frame)
{
	for (size_t i = 0; frame->env && i < frame->env->n; i++) {
		if (strlist_add(&frame->own_env, frame->env->items[i]) < 0)
			return -1;
	}
	frame->env = &frame->own_env;
	return 0;
}

int frame_own_scope(struct frame *frame)
{
	struct scope *scope = calloc(1, sizeof(*scope));

	if (!scope)
		return -1;
	scope->outer = frame->scope;
	frame->scope = frame->own_scope = scope;
	return 0;
}

void frame_fail(struct frame *frame, enum run_class class, struct penstock_error *err)
{
	struct step_failure *failure = &frame->outcome.failure;

	frame->outcome.failed = true;
	failure->class = class;
	failure->exit_code = run_exit_code(class, err->code);
	failure->step_code = 0;
	snprintf(failure->text, sizeof(failure->text), "%s",
		err->message ? err->message : penstock_code_name(err->code));
	penstock_error_release(err);
}

void frame_fail_memory(struct frame *frame)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	error_memory(&err);
	frame_fail(frame, RUN_CLASS_NODE, &err);
}

/* Whether whoever told the frame's part of the tree to end meant this one, too. */
void frame_cut(struct walk *walk, struct frame *frame)
{
	if (!walk->noticed)
		return;
	walk->cut = frame->outcome.cut = true;
}

/* What was whole before anybody was told stays a failure. */
static void add_outcome(struct outcome *to, const struct outcome *from)
{
	bool cut = to->cut || from->cut;

	if (from->failed && (!to->failed || (to->told && !from->told)))
		*to = *from;
	to->cut = cut;
}

static bool is_stopping(const struct walk *walk, const struct frame *frame)
{
	return (walk->stopping && !frame->final) ||
	       (frame->launch && frame->launch->stopping && !frame->final_in_launch);
}

/* The same, but for what was through with all of it in spite of a notice. */
static bool was_stopped(const struct walk *walk, const struct frame *frame)
{
	if (frame->launch && frame->launch->stopping && !frame->final_in_launch)
		return true;
	return walk->stopping && !frame->final && (!walk->noticed || frame->outcome.cut);
}

bool frame_may_begin(const struct walk *walk, const struct frame *frame)
{
	if (walk->killed || walk->run->fenced || (frame->launch && frame->launch->killed))
		return false;
	return !is_stopping(walk, frame);
}

/* ---- what is finished ---- */

/* What of the step belongs to the scope around it and may have to be launched again. */
static bool has_launch(const struct workflow_step *step)
{
	bool open = !step->catch_steps.n && !step->finally_steps.n;

	if (step->kind == WORKFLOW_STEP_LAUNCH)
		return true;
	if (!open || (step->kind != WORKFLOW_STEP_GROUP &&
			     !(step->kind == WORKFLOW_STEP_FOR && !step->loop.parallel.value)))
		return false;
	for (size_t i = 0; i < step->steps.n; i++) {
		if (has_launch(&step->steps.items[i]))
			return true;
	}
	return false;
}

static bool has_launch_within(const struct workflow_steps *steps)
{
	for (size_t i = 0; i < steps->n; i++) {
		if (has_launch(&steps->items[i]))
			return true;
	}
	return false;
}

static void warn_unwritten(struct walk *walk, bool written)
{
	if (written || walk->warned)
		return;
	walk->warned = true;
	run_say(walk->run, RUN_EVENT_WARNING,
		"what is finished cannot be recorded, so a resumed run may repeat it");
}

/* A top-level step that is not on record would be run again. */
static void record_top(struct walk *walk, size_t i, const char *name)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct run *run = walk->run;
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

static bool may_record(const struct walk *walk, const struct frame *frame)
{
	return !frame->unrecorded && !frame->outcome.failed && !walk->killed &&
	       !walk->run->fenced && !was_stopped(walk, frame);
}

static void record_step(struct walk *walk, struct frame *frame)
{
	const struct frame *list = frame->parent;
	size_t i = (size_t)(frame->step - list->list->items);

	if (!may_record(walk, frame))
		return;
	if (list == walk->root)
		record_top(walk, i, frame->name);
	/* Launches are finished when what they launched is; the last of an iteration with it. */
	if (has_launch(frame->step) ||
		(list->parent && list->parent->kind == FRAME_LOOP && i + 1 == list->list->n &&
			!has_launch_within(list->list)))
		return;
	warn_unwritten(walk, finished_done(walk->progress, frame->path));
}

static bool is_done(const struct walk *walk, const struct frame *list, size_t i, const char *path)
{
	const struct workflow_step *step = &list->list->items[i];

	if (list->unrecorded || list->final)
		return false;
	if (finished_has(walk->progress, path))
		return step->kind == WORKFLOW_STEP_LAUNCH || !has_launch(step);
	return list == walk->root && i < walk->run->steps_done && !has_launch(step);
}

/* ---- lists ---- */

/* Begins the next step of the list that is not finished. False: there is none. */
static bool begin_step(struct walk *walk, struct frame *list)
{
	while (list->next < list->list->n) {
		size_t i = list->next++;
		const struct workflow_step *step = &list->list->items[i];
		_cleanup_free_ char *path = NULL;
		_cleanup_free_ char *name = NULL;
		struct frame *frame;

		if (asprintf(&path, "%s%s%zu", list->path, *list->path ? "." : "", i) < 0 ||
			asprintf(&name, "%s%s%s", list->name, *list->name ? " / " : "",
				step->label) < 0) {
			frame_fail_memory(list);
			return false;
		}
		if (is_done(walk, list, i, path)) {
			if (list == walk->root)
				run_say(walk->run, RUN_EVENT_MESSAGE,
					"'%s' was finished by an earlier attempt", name);
			continue;
		}
		frame = frame_new(walk, list, FRAME_STEP, name, path);
		if (frame)
			frame->step = step;
		if (!frame || ((step->catch_steps.n || step->finally_steps.n) &&
				      frame_own_scope(frame) < 0)) {
			if (frame)
				frame_free(frame);
			frame_fail_memory(list);
			return false;
		}
		frame_push(walk, frame);
		return true;
	}
	return false;
}

static void advance_list(struct walk *walk, struct frame *list)
{
	bool may_begin = frame_may_begin(walk, list);

	if (!list->outcome.failed && may_begin && begin_step(walk, list))
		return;
	if (!list->outcome.failed && !may_begin && list->next < list->list->n)
		frame_cut(walk, list);
	if (list->own_scope && !scope_close(walk, list->own_scope, list))
		return;
	frame_end(walk, list);
}

/* ---- loops ---- */

static struct frame *new_iteration(struct walk *walk, struct frame *loop, uint64_t i)
{
	const struct workflow_for *f = &loop->step->loop;
	_cleanup_free_ char *name = NULL, *path = NULL, *variable = NULL;
	const struct workflow_text *item = f->has_items ? &f->items.items[i] : NULL;
	long long index = f->begin + (long long)i * f->increment;
	struct frame *list;

	if (item && (asprintf(&name, "%s [%.40s]", loop->name, workflow_shown(item)) < 0 ||
			    asprintf(&variable, "item=%s", item->value) < 0))
		return NULL;
	if (!item && (asprintf(&name, "%s [%lld]", loop->name, index) < 0 ||
			     asprintf(&variable, "index=%lld", index) < 0))
		return NULL;
	if (asprintf(&path, "%s.i%" PRIu64, loop->path, i) < 0)
		return NULL;
	list = frame_list(walk, loop, &loop->step->steps, name, path);
	if (!list)
		return NULL;
	list->index = i;
	if (frame_own_env(list) < 0 ||
		strlist_set(&list->own_env, item ? "item" : "index", strchr(variable, '=') + 1) <
			0 ||
		(f->parallel.value && frame_own_scope(list) < 0)) {
		frame_free(list);
		return NULL;
	}
	return list;
}

static bool iteration_is_done(struct walk *walk, const struct frame *loop, uint64_t i)
{
	char path[24];
	_cleanup_(buf_release) struct buf whole = BUF_INIT(LIMIT_STRING);

	if (loop->unrecorded || has_launch_within(&loop->step->steps))
		return false;
	if (!loop->step->loop.parallel.value)
		return i < finished_iterations(walk->progress, loop->path);
	snprintf(path, sizeof(path), ".i%" PRIu64, i);
	buf_add_str(&whole, loop->path);
	buf_add_str(&whole, path);
	return !buf_failed(&whole) && finished_has(walk->progress, buf_str(&whole));
}

static void record_iteration(struct walk *walk, const struct frame *list)
{
	const struct frame *loop = list->parent;

	if (!may_record(walk, list) || has_launch_within(list->list))
		return;
	warn_unwritten(
		walk, loop->step->loop.parallel.value
			      ? finished_done(walk->progress, list->path)
			      : finished_iteration_done(walk->progress, loop->path, list->index));
}

static void advance_loop(struct walk *walk, struct frame *loop)
{
	const struct workflow_for *f = &loop->step->loop;
	uint64_t most = f->parallel.value ? LIMIT_RUN_PARALLEL : 1;

	while (loop->begun < f->count && loop->live < most && !loop->outcome.failed &&
		frame_may_begin(walk, loop)) {
		struct frame *list;

		if (iteration_is_done(walk, loop, loop->begun)) {
			loop->begun++;
			continue;
		}
		list = new_iteration(walk, loop, loop->begun);
		if (!list) {
			frame_fail_memory(loop);
			break;
		}
		loop->begun++;
		loop->live++;
		frame_push(walk, list);
	}
	if (loop->begun < f->count && !loop->outcome.failed && !frame_may_begin(walk, loop))
		frame_cut(walk, loop);
	if (!loop->live)
		frame_end(walk, loop);
}

/* ---- steps ---- */

/* Whether nothing has to be waited for any more. */
static bool depends(struct walk *walk, struct frame *frame)
{
	const struct workflow_texts *handles = &frame->step->depends_on;

	for (size_t i = 0; i < handles->n; i++) {
		const struct launch *launch = launch_find(frame, handles->items[i].value);

		if (launch && launch->frame && frame_may_begin(walk, frame)) {
			frame->waits = true;
			frame->next_waiting = walk->waiting;
			walk->waiting = frame;
			return false;
		}
		if (launch && !launch->frame && launch->outcome.failed && !frame->outcome.failed) {
			frame->outcome = launch->outcome;
			snprintf(frame->outcome.failure.text, sizeof(frame->outcome.failure.text),
				"'%s' depends on a launch that failed: %.300s", frame->name,
				launch->outcome.failure.text);
		}
	}
	return true;
}

static bool begin_list(struct walk *walk, struct frame *frame, const struct workflow_steps *steps,
	const char *name, const char *suffix, bool final)
{
	_cleanup_free_ char *whole_name = NULL, *path = NULL;
	struct frame *list;

	if (asprintf(&whole_name, "%s%s", frame->name, name) < 0 ||
		asprintf(&path, "%s%s", frame->path, suffix) < 0 ||
		!(list = frame_list(walk, frame, steps, whole_name, path))) {
		frame_fail_memory(frame);
		return false;
	}
	if (*suffix) {
		char code[16];

		list->unrecorded = true;
		list->final |= final;
		list->final_in_launch |= final;
		snprintf(code, sizeof(code), "%d", frame->error_code);
		if (frame_own_env(list) < 0 ||
			strlist_set(&list->own_env, "DEEPSQUARE_ERROR_CODE", code) < 0) {
			frame_free(list);
			frame_fail_memory(frame);
			return false;
		}
	}
	frame_push(walk, list);
	return true;
}

static bool begin_module(struct walk *walk, struct frame *frame)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	const struct workflow_step *step = frame->step;
	struct frame *list = frame_list(walk, frame, &step->steps, frame->name, frame->path);

	if (!list || frame_own_env(list) < 0 || frame_own_scope(list) < 0) {
		if (list)
			frame_free(list);
		frame_fail_memory(frame);
		return false;
	}
	for (size_t i = 0; i < step->use.env.n; i++) {
		const struct workflow_env *env = &step->use.env.items[i];

		if (strlist_set(&list->own_env, env->key, env->value.value) < 0) {
			frame_free(list);
			frame_fail_memory(frame);
			return false;
		}
	}
	if (step->use.export_env_as.value &&
		module_env_begin(&walk->run->layout, frame->path, &list->own_env_file, &err) < 0) {
		frame_free(list);
		frame_fail(frame, RUN_CLASS_NODE, &err);
		return false;
	}
	if (list->own_env_file) {
		if (walk_env_own(walk, list->own_env_file) < 0) {
			frame_free(list);
			frame_fail_memory(frame);
			return false;
		}
		list->env_file = list->own_env_file;
	}
	frame_push(walk, list);
	return true;
}

static bool begin_loop(struct walk *walk, struct frame *frame)
{
	struct frame *loop = frame_new(walk, frame, FRAME_LOOP, frame->name, frame->path);

	if (!loop) {
		frame_fail_memory(frame);
		return false;
	}
	loop->step = frame->step;
	frame_push(walk, loop);
	return true;
}

static void tell_step(struct walk *walk, const struct frame *frame)
{
	const struct frame *root = walk->root;
	const struct frame *top = frame;

	while (top->parent && top->parent != root)
		top = top->parent;
	if (root && top->parent == root && top->step)
		run_event(walk->run, RUN_EVENT_STEP, frame->name,
			(uint64_t)(top->step - root->list->items) + 1, root->list->n);
	else
		run_event(walk->run, RUN_EVENT_STEP, frame->name, 0, 0);
}

/* False: there is nothing to wait for. */
static bool begin_body(struct walk *walk, struct frame *frame)
{
	if (frame->parent == walk->root || frame->step->kind == WORKFLOW_STEP_RUN)
		tell_step(walk, frame);
	switch (frame->step->kind) {
	case WORKFLOW_STEP_RUN:
		return leaf_start(walk, frame, &frame->step->run);
	case WORKFLOW_STEP_GROUP:
		return begin_list(walk, frame, &frame->step->steps, "", "", false);
	case WORKFLOW_STEP_FOR:
		return begin_loop(walk, frame);
	case WORKFLOW_STEP_USE:
		return begin_module(walk, frame);
	case WORKFLOW_STEP_LAUNCH:
		if (!launch_begin(walk, frame))
			frame_fail_memory(frame);
		return false;
	default:
		return false;
	}
}

/* What `catch` and `finally` see. */
static int error_code_of(const struct outcome *outcome)
{
	const struct step_failure *failure = &outcome->failure;

	if (!outcome->failed)
		return 0;
	return failure->step_code ? failure->step_code : failure->exit_code;
}

/* A step says itself why it exits, but not that it was ended. */
static void tell_caught(struct walk *walk, const struct frame *frame)
{
	if (!frame->outcome.failure.step_code)
		run_say(walk->run, RUN_EVENT_WARNING, "%s; its `catch` follows",
			frame->outcome.failure.text);
}

/* From one phase to the next, until something is waited for. */
static void advance_step(struct walk *walk, struct frame *frame)
{
	const struct workflow_step *step = frame->step;

	if (frame->phase == PHASE_DEPENDS) {
		if (!depends(walk, frame))
			return;
		frame->phase = frame->outcome.failed ? PHASE_BODY_RUNS : PHASE_CONDITION;
	}
	if (frame->phase == PHASE_CONDITION) {
		frame->phase = PHASE_BODY;
		if (!frame_may_begin(walk, frame)) {
			frame->phase = PHASE_CLOSE; /* nothing of it was begun */
			frame_cut(walk, frame);
		} else if (step->condition.value) {
			frame->phase = PHASE_CONDITION_RUNS;
			if (condition_begin(walk, frame))
				return;
			frame->phase = PHASE_BODY_RUNS;
		}
	}
	if (frame->phase == PHASE_BODY) {
		frame->phase = PHASE_BODY_RUNS;
		if (begin_body(walk, frame))
			return;
	}
	if (frame->phase == PHASE_BODY_RUNS) {
		frame->error_code = error_code_of(&frame->outcome);
		frame->phase = PHASE_CATCH;
	}
	if (frame->phase == PHASE_CATCH) {
		frame->phase = PHASE_FINALLY;
		if (frame->outcome.failed && step->catch_steps.n && frame_may_begin(walk, frame)) {
			frame->phase = PHASE_CATCH_RUNS;
			tell_caught(walk, frame);
			if (begin_list(walk, frame, &step->catch_steps, " / catch", ".c", false))
				return;
		}
	}
	if (frame->phase == PHASE_CATCH_RUNS)
		frame->phase = PHASE_FINALLY;
	if (frame->phase == PHASE_FINALLY) {
		frame->phase = PHASE_CLOSE;
		if (step->finally_steps.n) {
			frame->phase = PHASE_FINALLY_RUNS;
			if (begin_list(walk, frame, &step->finally_steps, " / finally", ".f", true))
				return;
		}
	}
	frame->phase = PHASE_CLOSE;
	if (frame->own_scope && !scope_close(walk, frame->own_scope, frame))
		return;
	record_step(walk, frame);
	frame_end(walk, frame);
}

/* What became of something within a step. */
static void take_outcome(struct walk *walk, struct frame *frame, const struct outcome *outcome)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (frame->phase == PHASE_CATCH_RUNS)
		frame->outcome.failed = false;
	add_outcome(&frame->outcome, outcome);
	if (frame->phase == PHASE_BODY_RUNS && frame->step->kind == WORKFLOW_STEP_USE &&
		!outcome->failed && !was_stopped(walk, frame) &&
		module_env_export(&walk->run->layout, frame->path, &frame->step->use,
			frame->env_file, &err) < 0) {
		error_prefix(&err, "'%s'", frame->name);
		frame_fail(frame, RUN_CLASS_USER, &err);
	}
}

void frame_end(struct walk *walk, struct frame *frame)
{
	struct frame *parent = frame->parent;
	struct launch *launch = frame->launch;

	if (frame->own_env_file)
		walk_env_disown(walk, frame->own_env_file);
	if (!parent && launch) {
		if (may_record(walk, frame))
			warn_unwritten(walk, finished_done(walk->progress, frame->path));
		launch_ended(walk, launch, &frame->outcome);
	} else if (!parent) {
		walk->outcome = frame->outcome;
		walk->done = true;
		return; /* it goes with the walk */
	} else if (parent->kind == FRAME_LOOP) {
		record_iteration(walk, frame);
		parent->live--;
		add_outcome(&parent->outcome, &frame->outcome);
		frame_push(walk, parent);
	} else {
		if (parent->kind == FRAME_STEP)
			take_outcome(walk, parent, &frame->outcome);
		else
			add_outcome(&parent->outcome, &frame->outcome);
		frame_push(walk, parent);
	}
	frame_free(frame);
}

/* ---- the whole ---- */

/* Begins an execution that failed by itself once more, where the step asks for that. */
static bool restarts(struct walk *walk, struct frame *frame, const struct step_end *end)
{
	struct run *run = walk->run;
	const struct workflow_number *most = &frame->step->run.restarts;
	struct step_failure failure;

	if (frame->restarts >= most->value || walk->stopping || run->fenced || run->end.decided ||
		interrupts_reason(&run->interrupts) != INTERRUPT_NONE || frame->launch ||
		!step_end_explain(end, frame->name, run->id, &failure) ||
		retry_has_code(&run->workflow->retry,
			failure.step_code ? failure.step_code : failure.exit_code))
		return false;
	frame->restarts++;
	run_say(run, RUN_EVENT_WARNING, "%s; restart %d of %d", failure.text, frame->restarts,
		(int)most->value);
	return leaf_start(walk, frame, &frame->step->run);
}

/* An execution that ended: of the condition, or of the body. */
static void take_end(struct walk *walk, struct frame *frame, const struct step_end *end)
{
	bool told = (frame->told || (walk->noticed && walk->killed)) && !end->done;
	bool decided = false;

	frame->told = false;
	if (frame->phase == PHASE_CONDITION_RUNS) {
		condition_ended(walk, frame, end);
		decided = !frame->outcome.failed && end->code == CONDITION_NO;
	} else if (restarts(walk, frame, end)) {
		return;
	} else {
		frame->outcome.failed = step_end_explain(
			end, frame->name, walk->run->id, &frame->outcome.failure);
	}
	/* However it ended: it was told to. */
	if (told && !decided) {
		frame->outcome.told = frame->outcome.failed;
		frame_cut(walk, frame);
	}
	frame_push(walk, frame);
}

void walk_take_ended(struct walk *walk)
{
	struct frame *next;

	for (struct frame *f = walk->live; f; f = next) {
		struct step_end end;

		next = f->next_live;
		if (leaf_ended(walk, f, &end))
			take_end(walk, f, &end);
	}
	launch_check_deadlines(walk);
}

bool walk_advance(struct walk *walk)
{
	struct frame *frame = walk->ready;

	if (!frame || walk->done)
		return false;
	walk->ready = frame->next_ready;
	if (!walk->ready)
		walk->ready_end = &walk->ready;
	frame->ready = false;
	if (frame->kind == FRAME_LIST)
		advance_list(walk, frame);
	else if (frame->kind == FRAME_LOOP)
		advance_loop(walk, frame);
	else
		advance_step(walk, frame);
	return true;
}

int walk_begin(struct walk *walk, struct run *run, struct finished_steps *progress)
{
	*walk = (struct walk){.run = run, .progress = progress};
	walk->ready_end = &walk->ready;
	walk->root = frame_list(walk, NULL, &run->workflow->steps, "", "");
	if (!walk->root || frame_own_scope(walk->root) < 0) {
		walk_release(walk);
		return -1;
	}
	frame_push(walk, walk->root);
	return 0;
}

void walk_release(struct walk *walk)
{
	if (walk->root)
		frame_free(walk->root);
	walk->root = NULL;
	walk_env_release(walk);
}
