#include "run/step_command.h"

#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "base/banned.h"

/* Returns how many words there are. */
static size_t put_mapping(struct host_command *out, const struct workflow_run *what)
{
	/* In a network of its own a caller without rights would be root, for that is who may make one. */
	bool mapped = what->map_uid.given || what->map_gid.given ||
		      (what->network != WORKFLOW_NETWORK_HOST && geteuid() != 0);
	const char **argv = out->argv;

	if (mapped) {
		snprintf(out->uid, sizeof(out->uid), "--map-user=%lld",
			what->map_uid.given ? (long long)what->map_uid.value
					    : (long long)geteuid());
		snprintf(out->gid, sizeof(out->gid), "--map-group=%lld",
			what->map_gid.given ? (long long)what->map_gid.value
					    : (long long)getegid());
		*argv++ = "/usr/bin/unshare";
		*argv++ = "--user";
		*argv++ = out->uid;
		*argv++ = out->gid;
		*argv++ = "--";
	}
	*argv = NULL;
	return (size_t)(argv - out->argv);
}

/* Within a user namespace where the step is to see itself as somebody else; to the rest of the machine it stays who
 * we are. */
void host_command(struct host_command *out, const struct workflow_run *what)
{
	const char **argv = out->argv + put_mapping(out, what);

	*argv++ = what->shell.value;
	*argv++ = "-c";
	*argv++ = what->command.value;
	*argv = NULL;
}

void host_command_mapping(struct host_command *out, const struct workflow_run *what)
{
	put_mapping(out, what);
}
