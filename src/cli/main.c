#include <string.h>

#include "cli/commands.h"
#include "cli/history/names.h"
#include "cli/runs/exec.h"
#include "run/cluster/node_inputs.h"
#include "run/cluster/remote.h"

#define ROW(verb) &command_##verb,

int main(int argc, char **argv)
{
	/* Users do not type these words: penstock, srun and mpirun start processes with them. */
	if (argc == 2 && strcmp(argv[1], REMOTE_TASK_WORD) == 0)
		return remote_task_main();
	if (argc == 2 && strcmp(argv[1], REMOTE_RANK_WORD) == 0)
		return remote_rank_main();
	if (argc == 4 && strcmp(argv[1], NODE_INPUTS_SWEEP_WORD) == 0)
		return node_inputs_sweep(argv[2], argv[3]);
	if (argc > 4 && strcmp(argv[1], EXEC_NODE_WORD) == 0)
		return exec_node_main(argv + 2);
	cli_set_names(history_names);
	return cli_main(argc, argv, (const struct command *const[]){VERBS(ROW) NULL});
}
