#include <string.h>

#include "cli/commands.h"
#include "cli/runs/exec.h"
#include "run/cluster/node_inputs.h"
#include "run/cluster/remote.h"

/* In the order in which `penstock --help` shows them. */
static const struct command *const commands[] = {
	&command_run,
	&command_resume,
	&command_flush,
	&command_watch,
	&command_tag,
	&command_validate,
	&command_ps,
	&command_show,
	&command_logs,
	&command_stop,
	&command_preempt,
	&command_exec,
	&command_rm,
	&command_ls,
	&command_cat,
	&command_pull,
	&command_images,
	&command_put,
	&command_cp,
	&command_mv,
	&command_sync,
	&command_artifacts,
	&command_checkpoints,
	&command_batch,
	&command_stat,
	&command_du,
	&command_presign,
	&command_mb,
	&command_rb,
	&command_runners,
	&command_secret,
	&command_schema,
	&command_serve,
	&command_doctor,
	NULL,
};

int main(int argc, char **argv)
{
	/* A task of a step on a node of a cluster: srun starts it, not a user. */
	if (argc == 2 && strcmp(argv[1], REMOTE_TASK_WORD) == 0)
		return remote_task_main();
	if (argc == 2 && strcmp(argv[1], REMOTE_RANK_WORD) == 0)
		return remote_rank_main();
	if (argc == 4 && strcmp(argv[1], NODE_INPUTS_SWEEP_WORD) == 0)
		return node_inputs_sweep(argv[2], argv[3]);
	if (argc > 4 && strcmp(argv[1], EXEC_NODE_WORD) == 0)
		return exec_node_main(argv + 2);
	return cli_main(argc, argv, commands);
}
