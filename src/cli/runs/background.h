/*
 * --detach: a child process continues without the terminal as soon as its run is recorded.
 *
 *	child = background_fork(&end, err);
 *	if (child > 0)
 *		return background_wait(child, end);
 *	... run_execute() with `end` as ready_fd and background_leave_terminal() as on_ready
 */
#ifndef CLI_RUNS_BACKGROUND_H
#define CLI_RUNS_BACKGROUND_H

#include <sys/types.h>

struct penstock_error;

/* Returns the child's id in the parent and 0 in the child, each with its end of a pipe. Returns a
 * negative code on failure. */
pid_t background_fork(int *end, struct penstock_error *err);

/* Prints the id of the run that the child started. Returns the exit code: the child's if it started
 * no run. */
int background_wait(pid_t child, int read_end);

/* In the child: leaves the terminal. Later messages go to the run's log. */
void background_leave_terminal(void);

/* Sends the errors of this process to the log of attempt `attempt` of run `id`, until the process
 * leaves the terminal again. Used if the next run cannot be started. */
void background_log_errors(const char *home, const char *id, int attempt);

/* Lets SIGINT and SIGHUP end the program while there is no run, until
 * interrupts_block_signals(). */
void background_allow_interrupt(void);

#endif
