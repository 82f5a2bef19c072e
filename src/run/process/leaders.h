/* Signals to the leader processes of tasks. */
#ifndef RUN_PROCESS_LEADERS_H
#define RUN_PROCESS_LEADERS_H

#include <sys/types.h>

/*
 * Sends the signal to the leader if the leader handles the signal. If the leader does not handle
 * the signal, and is a shell or another program that only starts programs, the children of the
 * leader get the signal by the same rule. No other process gets the signal, so that the signal
 * kills no process that does not handle it, and does not reach the helpers of a program (data
 * loaders). Returns the number of processes signalled.
 */
unsigned leaders_signal(pid_t leader, int signal);

#endif
