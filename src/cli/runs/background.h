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

/* Like fork(), returns the child's process id in the parent and 0 in the child. Sets `*end` to the
 * caller's end of a pipe between the two. Returns a negative code on failure. */
pid_t background_fork(int *end, struct penstock_error *err);

/* Prints the id of the run that the child started, and returns 0. If the child started no run,
 * returns the child's exit code. */
int background_wait(pid_t child, int read_end);

/* In the child: leaves the terminal. Later messages go to the run's log. */
void background_leave_terminal(void);

/* Sends stderr to the log of attempt `attempt` of run `id`, which has ended, so that errors are not
 * lost if the next run cannot be started. background_leave_terminal() ends the redirection. */
void background_log_errors(const char *home, const char *id, int attempt);

/* Lets SIGINT and SIGHUP end the program until interrupts_block_signals(). For the time before a
 * run exists. */
void background_allow_interrupt(void);

#endif
