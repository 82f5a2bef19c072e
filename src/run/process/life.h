/*
 * Record of an execution of a step for as long as it lives (run/process/live.h).
 *
 *	step_life_begin(&life, &run, &step);	// its groups exist and are empty
 *	step_life_started(&life, &run, &step);	// its tasks run
 *	step_life_end(&life, &run);
 *	run_life_end(&run);	// after the last execution of the run
 *
 * A failure to record is only a warning: `penstock exec` then misses the execution. If this process
 * is killed, the next attempt misses it as well, unless it finds the processes by their
 * environment.
 */
#ifndef RUN_PROCESS_LIFE_H
#define RUN_PROCESS_LIFE_H

struct live_file;
struct live_files;
struct live_step;

struct run_life {
	const char *dir; /* of the run; borrowed */
	struct live_files *files; /* NULL until an execution begins */
};

struct step_life {
	struct live_file *file; /* NULL if there is none */
	unsigned long alone; /* serial of an execution with a file of its own; 0 if there is none */
};

void step_life_begin(struct step_life *life, struct run_life *run, const struct live_step *step);
void step_life_started(struct step_life *life, struct run_life *run, const struct live_step *step);
void step_life_end(struct step_life *life, struct run_life *run);
void run_life_end(struct run_life *run);

#endif
