/*
 * An execution of a step on record for as long as it lives (run/live.h).
 *
 *	step_life_begin(&life, run, &step);	its groups are made, and nobody is in them
 *	step_life_started(&life, run, &step);	its tasks run
 *	step_life_over(&life, run);
 *	run_life_end(run);			after the last of the run
 *
 * What cannot be put on record fails nothing: `penstock exec` misses it, and the next attempt does if this one is killed,
 * unless it finds its processes by their environment. So a warning is given.
 */
#ifndef RUN_STEP_LIFE_H
#define RUN_STEP_LIFE_H

struct live_file;
struct live_step;
struct run;

struct step_life {
	struct live_file *file; /* NULL: it has none */
	unsigned long alone;	/* the serial of one with a file of its own; 0: it has none */
};

void step_life_begin(struct step_life *life, struct run *run, const struct live_step *step);
void step_life_started(struct step_life *life, struct run *run, const struct live_step *step);
void step_life_over(struct step_life *life, struct run *run);
void run_life_end(struct run *run);

#endif
