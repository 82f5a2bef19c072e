/* Signals to the leader processes of tasks. */
#ifndef RUN_PROCESS_LEADERS_H
#define RUN_PROCESS_LEADERS_H

#include <sys/types.h>

/*
 * Sends the signal to the leader, or to the child of a leader that is a shell, if that process
 * handles the signal. No other process gets the signal, so that it kills none, and a program's
 * helpers (data loaders) are left alone. Returns the number of processes signalled.
 */
unsigned leaders_signal(pid_t leader, int signal);

#endif
