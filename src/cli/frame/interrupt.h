/*
 * Ctrl-C for verbs that transfer data: the first SIGINT, SIGTERM or SIGHUP sets a flag, a second
 * signal ends the process. If SIGHUP was ignored when the process started, it stays ignored.
 */
#ifndef CLI_FRAME_INTERRUPT_H
#define CLI_FRAME_INTERRUPT_H

#include <stdatomic.h>

/* Installs handlers that set the flag. Returns the flag, which callers pass as `cancel` to
 * functions that transfer data. */
const atomic_int *cli_watch_signals(void);
/* Returns the flag without installing handlers. */
const atomic_int *cli_interrupt_flag(void);
/* Returns the number of the received signal, or 0. */
int cli_interrupted(void);

#endif
