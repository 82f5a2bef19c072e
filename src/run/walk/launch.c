/* Launches, and the scopes that end them. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "run/attempt/attempt.h"
#include "run/config/times.h"
#include "run/walk/walk.h"

bool launch_begin(struct walk *walk, struct frame *frame)
{
	struct launch *launch = calloc(1, sizeof(*launch));
	struct frame *list = NULL;

	if (launch)
		launch->name = strdup(frame->name);
	if (launch && launch->name)
		list = frame_list(frame, &frame->step->steps, frame->name, frame->path);
	if (!list || frame_own_env(list) < 0 || frame_own_scope(list) < 0 ||
		(frame->env_file && (!(list->own_env_file = strdup(frame->env_file)) ||
					    walk_env_own(walk, list->own_env_file) < 0))) {
		frame_free(list);
		launch_free(launch);
		return false;
	}
	launch->step = frame->step;
	launch->outer = frame->launch;
	launch->scope = frame->scope;
	launch->frame = list;
	launch->next = frame->scope->launches;
	frame->scope->launches = launch;
	/* A launch may outlive the step that started it. */
	list->parent = NULL;
	list->env_file = list->own_env_file;
	list->launch = launch;
	list->final_in_launch = false;
	frame_push(walk, list);
	return true;
}

struct launch *launch_find(const struct frame *frame, const char *handle)
{
	for (const struct scope *s = frame->scope; s; s = s->outer) {
		for (struct launch *l = s->launches; l; l = l->next) {
			if (l->step->launch.handle.value &&
				strcmp(l->step->launch.handle.value, handle) == 0)
				return l;
		}
	}
	return NULL;
}

/* Returns the pid of the launch's current execution; 0 if there is none. */
static pid_t pid_of(const struct walk *walk, const struct launch *launch)
{
	for (const struct frame *f = walk->live; f; f = f->next_live) {
		if (f->launch == launch)
			return step_run_pid(f->run);
	}
	return 0;
}

int launch_add_pids(const struct walk *walk, const struct frame *frame, struct strlist *env)
{
	for (const struct scope *s = frame->scope; s; s = s->outer) {
		for (const struct launch *l = s->launches; l; l = l->next) {
			const char *handle = l->step->launch.handle.value;
			pid_t pid = handle && l->frame && l != frame->launch ? pid_of(walk, l) : 0;
			char key[LIMIT_WORKFLOW_NAME + 8], value[16];

			if (!pid)
				continue;
			snprintf(key, sizeof(key), "PID_%s", handle);
			snprintf(value, sizeof(value), "%ld", (long)pid);
			if (strlist_set(env, key, value) < 0)
				return -1;
		}
	}
	return 0;
}

void launch_ended(struct walk *walk, struct launch *launch, const struct outcome *outcome)
{
	launch->frame = NULL;
	launch->outcome = *outcome;
	if (outcome->failed && !launch->stopping && !walk->stopping)
		run_say(&walk->attempt->voice, RUN_EVENT_WARNING, "launched: %s",
			outcome->failure.text);
	walk_wake_waiting(walk);
	if (launch->scope->closer)
		frame_push(walk, launch->scope->closer);
}

/* Moves a launch without a signal, which outlives its scope, to the scope of the whole run. */
static void move_out(struct launch **place, struct scope *root)
{
	struct launch *launch = *place;

	*place = launch->next;
	launch->next = root->launches;
	launch->scope = root;
	launch->outer = NULL;
	launch->frame->own_scope->outer = root;
	root->launches = launch;
}

static void end_launch(struct walk *walk, struct launch *launch, bool failed)
{
	int64_t signal = launch->step->launch.signal.value;

	if (launch->stopping || (walk->stopping && !launch->frame->final))
		return; /* the launch was signalled already */
	if (signal || failed) {
		launch->stopping = true;
		launch->kill_at_ms = clock_monotonic_ms() + launch_grace_ms();
		for (struct frame *f = walk->live; f; f = f->next_live) {
			if (f->launch == launch && !f->final_in_launch)
				step_run_signal(f->run, (signal ? (int)signal : SIGTERM));
		}
		walk_wake_waiting(walk); /* a step may depend on a launch that will be killed */
		return;
	}
	if (!launch->awaited)
		run_say(&walk->attempt->voice, RUN_EVENT_MESSAGE,
			"waiting for '%s': no signal is set to end it", launch->name);
	launch->awaited = true;
}

bool scope_close(struct walk *walk, struct scope *scope, struct frame *frame)
{
	struct scope *root = walk->root->own_scope;
	bool live = false;

	for (struct launch **place = &scope->launches; *place;) {
		struct launch *launch = *place;

		if (launch->frame && !launch->step->launch.signal.value && scope != root &&
			!launch->stopping) {
			move_out(place, root);
			continue;
		}
		if (launch->frame) {
			end_launch(walk, launch, frame->outcome.failed);
			live = true;
		}
		place = &launch->next;
	}
	/* If steps of a launch without a signal were not done because of a notice, the frame is
	 * cut, as for any other step. */
	for (const struct launch *l = scope->launches; l && !live; l = l->next) {
		if (l->outcome.cut && !l->step->launch.signal.value)
			frame_cut(walk, frame);
	}
	scope->closer = live ? frame : NULL;
	return !live;
}

int64_t walk_next_deadline(const struct walk *walk, int64_t wait)
{
	int64_t now_ms = clock_monotonic_ms();

	for (const struct frame *f = walk->live; f; f = f->next_live) {
		for (const struct launch *l = f->launch; l; l = l->outer) {
			if (l->stopping && !l->killed && l->kill_at_ms - now_ms < wait)
				wait = l->kill_at_ms - now_ms;
		}
	}
	return wait > 0 ? wait : 0;
}
