/* Ending what the walk has begun: because somebody asked for it, or because the machine goes away. */
#include <signal.h>

#include "run/walk.h"
#include "base/banned.h"

void walk_notice(struct walk *walk, int signal)
{
	walk->stopping = walk->noticed = true;
	for (struct frame *f = walk->live; f; f = f->next_live) {
		if (f->final)
			continue;
		f->told = true;
		step_run_tell(f->run, signal);
	}
	walk_wake_waiting(walk);
}

void walk_kill_told(struct walk *walk)
{
	for (struct frame *f = walk->live; f; f = f->next_live) {
		if (f->told)
			leaf_kill(walk, f);
	}
}

void walk_forget_notice(struct walk *walk)
{
	walk->stopping = walk->noticed = false;
	for (struct frame *f = walk->live; f; f = f->next_live) {
		f->told = false;
		step_run_forget(f->run);
	}
}

void walk_tell_again(struct walk *walk)
{
	for (struct frame *f = walk->live; f; f = f->next_live)
		step_run_forget(f->run);
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
