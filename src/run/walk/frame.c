/* Makes, pushes, fails and frees frames of the walk. */
#include "run/walk/walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "run/attempt/attempt.h"
#include "run/publish/publisher.h"

void launch_free(struct launch *launch)
{
	if (!launch)
		return;
	free(launch->name);
	free(launch);
}

void scope_free(struct scope *scope)
{
	struct launch *next;

	if (!scope)
		return;
	for (struct launch *l = scope->launches; l; l = next) {
		next = l->next;
		launch_free(l);
	}
	free(scope);
}

void frame_push(struct walk *walk, struct frame *frame)
{
	if (frame->ready)
		return;
	frame->ready = true;
	frame->next_ready = NULL;
	*walk->ready_end = frame;
	walk->ready_end = &frame->next_ready;
}

void frame_wait(struct walk *walk, struct frame *frame)
{
	frame->waits = true;
	frame->next_waiting = walk->waiting;
	walk->waiting = frame;
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
	if (!frame)
		return;
	scope_free(frame->own_scope);
	strlist_release(&frame->own_env);
	free(frame->own_env_file);
	free(frame->name);
	free(frame->path);
	free(frame);
}

struct frame *frame_new(
	struct frame *parent, enum frame_kind kind, const char *name, const char *path)
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

struct frame *frame_list(
	struct frame *parent, const struct workflow_steps *list, const char *name, const char *path)
{
	struct frame *frame = frame_new(parent, FRAME_LIST, name, path);

	if (frame)
		frame->list = list;
	return frame;
}

int frame_own_env(struct frame *frame)
{
	const struct strlist *from = frame->env;

	frame->env = &frame->own_env;
	return from ? strlist_add_all(&frame->own_env, (const char *const *)from->items) : 0;
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

/* Records that the frame was cut, if a notice is the reason. */
void frame_cut(struct walk *walk, struct frame *frame)
{
	if (!walk->noticed)
		return;
	walk->cut = frame->outcome.cut = true;
}

bool frame_is_stopping(const struct walk *walk, const struct frame *frame)
{
	return (walk->stopping && !frame->final) ||
	       (frame->launch && frame->launch->stopping && !frame->final_in_launch);
}

bool frame_may_begin(const struct walk *walk, const struct frame *frame)
{
	if (walk->killed || walk->publisher->fenced || (frame->launch && frame->launch->killed))
		return false;
	return !frame_is_stopping(walk, frame);
}
