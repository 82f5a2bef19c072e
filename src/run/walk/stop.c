/* Ending executions, because of a request or because the machine goes away. */
#include <inttypes.h>
#include <signal.h>

#include "base/clock.h"
#include "run/attempt/attempt.h"
#include "run/config/times.h"
#include "run/walk/walk.h"
#include "base/banned.h"

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
			leaf_kill(walk, f);
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
		leaf_kill(walk, f);
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
				leaf_kill(walk, other);
		}
	}
}
