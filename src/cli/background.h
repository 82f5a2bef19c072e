/*
 * --detach: a child goes on without the terminal, once the run that it begins is on record.
 *
 *	child = background_fork(&end, err);
 *	if (child > 0)
 *		return background_wait(child, end);
 *	... run_execute() with `end` as ready_fd and background_leave_terminal() as on_ready
 */
#ifndef CLI_BACKGROUND_H
#define CLI_BACKGROUND_H

#include <sys/types.h>

struct penstock_error;

/* The child's id here and 0 there, each with its end of a pipe; negative: `err` says why there is none. */
pid_t background_fork(int *end, struct penstock_error *err);

/* Prints the id of the run that the child began. The exit code: the child's where it began none. */
int background_wait(pid_t child, int read_end);

/* In the child: away from the terminal. What it has to say goes to the log of the run. */
void background_leave_terminal(void);

/* Until it leaves again: where a run cannot be begun any more, the log of the one before it says why. */
void background_speak_in_log(const char *home, const char *id, int attempt);

/* Before there is a run, in the terminal: SIGINT and SIGHUP end the program, until interrupts_block_signals(). */
void background_user_may_end(void);

#endif
