/*
 * Lists the names of runs and tags that a user may type, for the completion.
 *
 *	cli_set_names(history_names);	// in main()
 */
#ifndef CLI_HISTORY_NAMES_H
#define CLI_HISTORY_NAMES_H

#include "cli/command.h"

/* A function for cli_set_names(). Lists nothing if there is no home yet. */
void history_names(enum cli_names kind, cli_name_fn *fn, void *cookie);

#endif
