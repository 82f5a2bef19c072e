/* How a command of this machine is begun, for steps without a container. */
#ifndef RUN_STEP_COMMAND_H
#define RUN_STEP_COMMAND_H

#include "workflow/model.h"

struct host_command {
	const char *argv[9]; /* NULL-terminated */
	char uid[40], gid[40];
};

/* The shell and its command, whoever the step is to see itself as. Borrows from the workflow and from itself. */
void host_command(struct host_command *out, const struct workflow_run *what);
/* Only what is put before another command for that: maybe nothing. */
void host_command_mapping(struct host_command *out, const struct workflow_run *what);

#endif
