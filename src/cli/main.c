#include "cli/commands.h"

/* In the order in which `penstock --help` shows them. */
static const struct command *const commands[] = {
	&command_ps,
