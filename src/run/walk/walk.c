#include "run/walk/walk.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "run/owner/lease.h"
#include "run/walk/finished.h"
#include "run/publish/publisher.h"
#include "run/step/host.h"
#include "run/attempt/attempt.h"
#include "workflow/workflow.h"

/* Merges outcomes. A failure from before the notice stays a failure. */
static void add_outcome(struct outcome *to, const struct outcome *from)
{
	bool cut = to->cut || from->cut;

	if (from->failed && (!to->failed || (to->after_notice && !from->after_notice)))
		*to = *from;
	to->cut = cut;
}

/* Like frame_is_stopping(), but false for a frame that finished completely in spite of a notice. */
static bool was_stopped(const struct walk *walk, const struct frame *frame)
{
	if (frame->launch && frame->launch->stopping && !frame->final_in_launch)
		return true;
	return walk->stopping && !frame->final && (!walk->noticed || frame->outcome.cut);
}

/* ---- finished steps and iterations ---- */

static bool has_launch_within(const struct workflow_steps *steps);

/* Returns true if launches of the step belong to the scope around it and may have to be launched
 * again. */
static bool has_launch(const struct workflow_step *step)
{
	bool open = !step->catch_steps.n && !step->finally_steps.n;

	if (step->kind == WORKFLOW_STEP_LAUNCH)
		return true;
	return open &&
	       (step->kind == WORKFLOW_STEP_GROUP ||
		       (step->kind == WORKFLOW_STEP_FOR && !step->loop.parallel.value)) &&
	       has_launch_within(&step->steps);
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
	run_say(&walk->attempt->voice, RUN_EVENT_WARNING,
		"cannot record finished steps, so a resumed run may repeat them");
}

static bool may_record(const struct walk *walk, const struct frame *frame)
{
	return !frame->unrecorded && !frame->outcome.failed && !walk->killed &&
	       !walk->publisher->fenced && !was_stopped(walk, frame);
}

static void record_step(struct walk *walk, struct frame *frame)
{
	const struct frame *list = frame->parent;
	size_t i = (size_t)(frame->step - list->list->items);

	if (!may_record(walk, frame))
		return;
	if (list == walk->root) {
		if (walk->steps_done <= i)
			walk->steps_done = i + 1;
		lease_set_steps(walk->publisher->lease, walk->steps_done);
		/* A top-level step that is not recorded is run again. */
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		struct attempt *a = walk->attempt;
		int r = records_step_done(a->records, a->id, a->number, (int)i, frame->name, &err);

		if (r == -(int)PENSTOCK_E_NO_SPACE && attempt_free_space(a)) {
			penstock_error_release(&err);
			r = records_step_done(
				a->records, a->id, a->number, (int)i, frame->name, &err);
		}
		if (r < 0)
			run_say(&a->voice, RUN_EVENT_WARNING,
				"cannot record that '%s' is finished, so a resumed run repeats it: %s",
				frame->name, err.message);
	}
	/* Record nothing here for a launch, which frame_end() records when its steps have finished,
	 * and for the last step of an iteration, which record_iteration() covers. */
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
	return list == walk->root && i < walk->attempt->steps_done && !has_launch(step);
}

/* ---- lists ---- */

/* Begins the next unfinished step of the list. Returns false if there is none. */
static bool begin_step(struct walk *walk, struct frame *list)
{
	while (list->next < list->list->n) {
		size_t i = list->next++;
		const struct workflow_step *step = &list->list->items[i];
		_cleanup_free_ char *path = str_printf(
			"%s%s%zu", list->path, *list->path ? "." : "", i);
		_cleanup_free_ char *name = str_printf(
			"%s%s%s", list->name, *list->name ? " / " : "", step->label);
		struct frame *frame;

		if (!path || !name) {
			frame_fail_memory(list);
			return false;
		}
		if (is_done(walk, list, i, path)) {
			if (list == walk->root)
				run_say(&walk->attempt->voice, RUN_EVENT_MESSAGE,
					"'%s' was finished by an earlier attempt", name);
			continue;
		}
		frame = frame_new(list, FRAME_STEP, name, path);
		if (frame)
			frame->step = step;
		if (!frame || ((step->catch_steps.n || step->finally_steps.n) &&
				      frame_own_scope(frame) < 0)) {
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

static struct frame *new_iteration(struct frame *loop, uint64_t i)
{
	const struct workflow_for *f = &loop->step->loop;
	const struct workflow_text *item = f->has_items ? &f->items.items[i] : NULL;
	_cleanup_free_ char *index = str_printf(
		"%lld", f->begin.value + (long long)i * f->increment.value);
	_cleanup_free_ char *name = str_printf(
		"%s [%.40s]", loop->name, item ? workflow_shown(item) : index);
	_cleanup_free_ char *path = str_printf("%s.i%" PRIu64, loop->path, i);
	struct frame *list;

	if (!index || !name || !path)
		return NULL;
	str_make_utf8(name); /* the item may be cut within a character */
	list = frame_list(loop, &loop->step->steps, name, path);
	if (!list)
		return NULL;
	list->index = i;
	if (frame_own_env(list) < 0 ||
		strlist_set(&list->own_env, item ? "item" : "index", item ? item->value : index) <
			0 ||
		(f->parallel.value && frame_own_scope(list) < 0)) {
		frame_free(list);
		return NULL;
	}
	return list;
}

static bool iteration_is_done(struct walk *walk, const struct frame *loop, uint64_t i)
{
	_cleanup_free_ char *path = str_printf("%s.i%" PRIu64, loop->path, i);

	if (loop->unrecorded || has_launch_within(&loop->step->steps))
		return false;
	if (!loop->step->loop.parallel.value)
		return i < finished_iterations(walk->progress, loop->path);
	return path && finished_has(walk->progress, path);
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
		list = new_iteration(loop, loop->begun);
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

/* Returns true if all launches that the step depends on have ended, or if the step may not
 * begin. */
static bool depends(struct walk *walk, struct frame *frame)
{
	const struct workflow_texts *handles = &frame->step->depends_on;

	for (size_t i = 0; i < handles->n; i++) {
		const struct launch *launch = launch_find(frame, handles->items[i].value);

		if (launch && launch->frame && frame_may_begin(walk, frame)) {
			frame_wait(walk, frame);
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
	_cleanup_free_ char *whole_name = str_printf("%s%s", frame->name, name);
	_cleanup_free_ char *path = str_printf("%s%s", frame->path, suffix);
	struct frame *list = whole_name && path ? frame_list(frame, steps, whole_name, path) : NULL;
	char code[16];

	snprintf(code, sizeof(code), "%d", frame->error_code);
	if (!list || (*suffix && (frame_own_env(list) < 0 ||
					 strlist_set(&list->own_env, "DEEPSQUARE_ERROR_CODE",
						 code) < 0))) {
		frame_free(list);
		frame_fail_memory(frame);
		return false;
	}
	list->unrecorded |= *suffix != '\0';
	list->final |= final;
	list->final_in_launch |= final;
	frame_push(walk, list);
	return true;
}

static bool begin_module(struct walk *walk, struct frame *frame)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	const struct workflow_step *step = frame->step;
	struct frame *list = frame_list(frame, &step->steps, frame->name, frame->path);
	bool ok = list && frame_own_env(list) == 0 && frame_own_scope(list) == 0;

	for (size_t i = 0; ok && i < step->use.env.n; i++) {
		const struct workflow_env *env = &step->use.env.items[i];

		ok = strlist_set(&list->own_env, env->key, env->value.value) == 0;
	}
	if (!ok)
		error_memory(&err);
	else if (step->use.export_env_as.value &&
		 module_env_begin(&walk->attempt->layout, frame->path, &list->own_env_file, &err) ==
			 0 &&
		 walk_env_own(walk, list->own_env_file) < 0)
		error_memory(&err);
	if (!list || err.code) {
		frame_free(list);
		frame_fail(frame, RUN_CLASS_NODE, &err);
		return false;
	}
	if (list->own_env_file)
		list->env_file = list->own_env_file;
	frame_push(walk, list);
	return true;
}

/* Begins the body of a step. Returns false if there is nothing to wait for. */
static bool begin_body(struct walk *walk, struct frame *frame)
{
	struct frame *loop;

	if (frame->parent == walk->root || frame->step->kind == WORKFLOW_STEP_RUN) {
		const struct frame *root = walk->root;
		const struct frame *top = frame;
		bool counts;

		while (top->parent && top->parent != root)
			top = top->parent;
		counts = root && top->parent == root && top->kind == FRAME_STEP;
		run_event(&walk->attempt->voice, RUN_EVENT_STEP, frame->name,
			counts ? (uint64_t)(top->step - root->list->items) + 1 : 0,
			counts ? root->list->n : 0);
	}
	switch (frame->step->kind) {
	case WORKFLOW_STEP_RUN:
		return leaf_start(walk, frame, &frame->step->run);
	case WORKFLOW_STEP_GROUP:
		return begin_list(walk, frame, &frame->step->steps, "", "", false);
	case WORKFLOW_STEP_FOR:
		loop = frame_new(frame, FRAME_LOOP, frame->name, frame->path);
		if (!loop) {
			frame_fail_memory(frame);
			return false;
		}
		loop->step = frame->step;
		frame_push(walk, loop);
		return true;
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

/* Advances from phase to phase until the step has to wait. */
static void advance_step(struct walk *walk, struct frame *frame)
{
	const struct workflow_step *step = frame->step;
	const struct step_failure *failure = &frame->outcome.failure;

	if (frame->phase == PHASE_DEPENDS) {
		if (!depends(walk, frame))
			return;
		frame->phase = frame->outcome.failed ? PHASE_BODY_RUNS : PHASE_CONDITION;
	}
	if ((frame->phase == PHASE_CONDITION && step->condition.value) ||
		(frame->phase <= PHASE_BODY && step->kind == WORKFLOW_STEP_RUN)) {
		if (frame_may_begin(walk, frame) && !leaf_has_room(walk, frame)) {
			frame_wait(walk, frame);
			return;
		}
	}
	if (frame->phase == PHASE_CONDITION) {
		frame->phase = PHASE_BODY;
		if (!frame_may_begin(walk, frame)) {
			frame->phase = PHASE_CLOSE; /* no part of the step was started */
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
		/* `catch` and `finally` get this code. */
		frame->error_code = !frame->outcome.failed ? 0
				    : failure->step_code   ? failure->step_code
							   : failure->exit_code;
		frame->phase = PHASE_CATCH;
	}
	if (frame->phase == PHASE_CATCH) {
		frame->phase = PHASE_FINALLY;
		if (frame->outcome.failed && step->catch_steps.n && frame_may_begin(walk, frame)) {
			frame->phase = PHASE_CATCH_RUNS;
			/* A step prints why it exits, but not that it was killed. */
			if (!failure->step_code)
				run_say(&walk->attempt->voice, RUN_EVENT_WARNING,
					"%s; its `catch` follows", failure->text);
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
		return; /* freed with the walk */
	} else if (parent->kind == FRAME_LOOP) {
		record_iteration(walk, frame);
		parent->live--;
		add_outcome(&parent->outcome, &frame->outcome);
		frame_push(walk, parent);
	} else {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		bool is_step = parent->kind == FRAME_STEP;

		if (is_step && parent->phase == PHASE_CATCH_RUNS)
			parent->outcome.failed = false;
		add_outcome(&parent->outcome, &frame->outcome);
		if (is_step && parent->phase == PHASE_BODY_RUNS &&
			parent->step->kind == WORKFLOW_STEP_USE && !frame->outcome.failed &&
			!was_stopped(walk, parent) &&
			module_env_export(&walk->attempt->layout, parent->path, &parent->step->use,
				parent->env_file, &err) < 0) {
			error_prefix(&err, "'%s'", parent->name);
			frame_fail(parent, RUN_CLASS_USER, &err);
		}
		frame_push(walk, parent);
	}
	frame_free(frame);
}

/* ---- the walk ---- */

/* Restarts a failed execution if the step asks for it. */
static bool restarts(struct walk *walk, struct frame *frame, const struct step_end *end)
{
	const struct attempt *attempt = walk->attempt;
	const struct workflow_number *most = &frame->step->run.restarts;
	struct step_failure failure;

	if (frame->restarts >= most->value || walk->stopping || walk->publisher->fenced ||
		attempt->end.decided ||
		interrupts_reason(&walk->reaction->interrupts) != INTERRUPT_NONE || frame->launch ||
		!step_end_explain(end, frame->name, attempt->id, &failure) ||
		workflow_retry_has_code(&attempt->workflow->retry,
			failure.step_code ? failure.step_code : failure.exit_code))
		return false;
	frame->restarts++;
	run_say(&attempt->voice, RUN_EVENT_WARNING, "%s; restart %d of %d", failure.text,
		frame->restarts, (int)most->value);
	return leaf_start(walk, frame, &frame->step->run);
}

/* Reports an execution that no signal reached: it may have finished, or may have saved because it
 * found the preempt file. */
static void say_unfinished(const struct walk *walk, const struct frame *frame)
{
	run_say(&walk->attempt->voice, RUN_EVENT_MESSAGE,
		"'%s' exited with 0 after the notice, so the next attempt runs it again; a step "
		"that has finished creates $PENSTOCK_DONE_FILE before it exits",
		frame->name);
}

/* Handles the end of an execution: of the condition or of the body. */
static void take_end(struct walk *walk, struct frame *frame, const struct step_end *end)
{
	bool noticed = (frame->noticed || (walk->noticed && walk->killed)) && !end->done;
	bool condition = frame->phase == PHASE_CONDITION_RUNS;
	bool decided = false;

	frame->noticed = false;
	if (condition) {
		condition_ended(walk, frame, end);
		decided = !frame->outcome.failed && end->code == CONDITION_NO;
	} else if (restarts(walk, frame, end)) {
		return;
	} else {
		frame->outcome.failed = step_end_explain(
			end, frame->name, walk->attempt->id, &frame->outcome.failure);
	}
	/* The execution was asked to end, so any end of it counts as a result of the notice. */
	if (noticed && !decided) {
		frame->outcome.after_notice = frame->outcome.failed;
		frame_cut(walk, frame);
		if (!condition && !frame->outcome.failed && !end->signalled)
			say_unfinished(walk, frame);
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

int walk_begin(struct walk *walk, struct step_host *host, struct reaction *reaction,
	struct publisher *publisher, struct finished_steps *progress)
{
	*walk = (struct walk){
		.attempt = host->attempt,
		.reaction = reaction,
		.publisher = publisher,
		.host = host,
		.progress = progress,
		.steps_done = host->attempt->steps_done,
	};
	lease_set_steps(publisher->lease, walk->steps_done);
	walk->ready_end = &walk->ready;
	walk->root = frame_list(NULL, &walk->attempt->workflow->steps, "", "");
	if (!walk->root || frame_own_scope(walk->root) < 0) {
		walk_release(walk);
		return -1;
	}
	frame_push(walk, walk->root);
	return 0;
}

void walk_release(struct walk *walk)
{
	frame_free(take_pointer(walk->root));
	walk_env_release(walk);
}
