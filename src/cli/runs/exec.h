/* The part of `penstock exec` on the nodes of a cluster. */
#ifndef CLI_RUNS_EXEC_H
#define CLI_RUNS_EXEC_H

#define EXEC_NODE_WORD "--slurm-exec"
/* main() of the penstock in a step of srun. `argv` has the step's directory in the run's tmp/, the
 * rank, and the words of the command. */
int exec_node_main(char **argv);

#endif
