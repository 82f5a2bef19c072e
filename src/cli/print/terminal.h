/*
 * Messages for a terminal that does not read, because of Ctrl-S or a connection that hangs. The
 * program must not wait for such a terminal.
 *
 *	#include "base/log.h"
 *
 *	terminal_never_blocks();
 *	log_info("…");	// waits two seconds at most
 *
 * Text is lost after such a wait, until the terminal reads again. The messages of a run are also in
 * its log.
 */
#ifndef CLI_PRINT_TERMINAL_H
#define CLI_PRINT_TERMINAL_H

/* Does nothing unless stderr is a terminal. If out of memory, leaves stderr unchanged. */
void terminal_never_blocks(void);

#endif
