/* Signals to the leader processes of tasks. */
#ifndef RUN_PROCESS_LEADERS_H
#define RUN_PROCESS_LEADERS_H

#include <sys/types.h>

/*
 * Sends the signal to the leader if that handles the signal. If it does not and is a shell, or
 * another program that only starts programs, its children get the signal by the same rule. No other
 * process gets the signal, so that the signal kills none, and a program's helpers (data loaders)
 * are left alone. Returns the number of processes signalled.
 */
unsigned leaders_signal(pid_t leader, int signal);

#endif
