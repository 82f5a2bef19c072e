/* Launches, and the scopes that they end with. */
#include <ctype.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "run/run_internal.h"
#include "run/walk.h"
#include "base/banned.h"

enum { LAUNCH_GRACE_MS = 30000 };

/* $PENSTOCK_LAUNCH_GRACE, in seconds. */
static int64_t launch_grace_ms(void)
{
	const char *given = getenv("PENSTOCK_LAUNCH_GRACE");
	uint64_t seconds;

	if (given && str_to_u64(given, 0, 7 * 24 * 3600, &seconds))
		return (int64_t)seconds * 1000;
	return LAUNCH_GRACE_MS;
}

static void launch_free(struct launch *launch)
{
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

bool launch_begin(struct walk *walk, struct frame *frame)
{
	struct launch *launch = calloc(1, sizeof(*launch));
	struct frame *list = NULL;

	if (launch)
		launch->name = strdup(frame->name);
	if (launch && launch->name)
		list = frame_list(walk, frame, &frame->step->steps, frame->name, frame->path);
	if (!list || frame_own_env(list) < 0 || frame_own_scope(list) < 0 ||
		(frame->env_file && (!(list->own_env_file = strdup(frame->env_file)) ||
					    walk_env_own(walk, list->own_env_file) < 0))) {
		if (list)
			frame_free(list);
		if (launch)
			launch_free(launch);
		return false;
	}
	launch->step = frame->step;
	launch->outer = frame->launch;
	launch->scope = frame->scope;
	launch->frame = list;
	launch->next = frame->scope->launches;
	frame->scope->launches = launch;
	/* It may outlive what it was launched by. */
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

/* What it runs now; 0: nothing. */
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
		run_say(walk->run, RUN_EVENT_WARNING, "launched: %s", outcome->failure.text);
	walk_wake_waiting(walk);
	if (launch->scope->closer)
		frame_push(walk, launch->scope->closer);
}

static void signal_launch(struct walk *walk, struct launch *launch, int signal)
{
	launch->stopping = true;
	launch->kill_at_ms = clock_monotonic_ms() + launch_grace_ms();
	for (struct frame *f = walk->live; f; f = f->next_live) {
		if (f->launch == launch && !f->final_in_launch)
			step_run_signal(f->run, signal);
	}
	walk_wake_waiting(walk); /* perhaps for what will not end */
}

/* It asked to be left alone: it belongs to the whole run from now on. */
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
		return; /* it was told already */
	if (signal || failed) {
		signal_launch(walk, launch, signal ? (int)signal : SIGTERM);
		return;
	}
	if (!launch->awaited)
		run_say(walk->run, RUN_EVENT_MESSAGE,
			"waiting for '%s', which was launched to be left alone", launch->name);
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
	/* What was launched to be left alone is work of the run as any other. */
	for (const struct launch *l = scope->launches; l && !live; l = l->next) {
		if (l->outcome.cut && !l->step->launch.signal.value)
			frame_cut(walk, frame);
	}
	scope->closer = live ? frame : NULL;
	return !live;
}

static bool is_part_of(const struct frame *frame, const struct launch *launch)
{
	for (const struct launch *l = frame->launch; l; l = l->outer) {
		if (l == launch)
			return true;
	}
	return false;
}

/* The launch of the frame that is to be killed by now. */
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
		run_say(walk->run, RUN_EVENT_WARNING,
			"'%s' did not end within %" PRId64 " s and is killed", launch->name,
			launch_grace_ms() / 1000);
		for (struct frame *other = walk->live; other; other = other->next_live) {
			if (is_part_of(other, launch))
				leaf_kill(walk, other);
		}
	}
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
