/* `penstock exec`, and its part on the nodes of a cluster. */
#ifndef CLI_RUNS_EXEC_H
#define CLI_RUNS_EXEC_H

#include <stdint.h>
#include <sys/types.h>

struct live_step;
struct penstock_error;
struct records_run;
struct strlist;

/* Replaces this process with the command, next to process `pid` of the step. Returns only on
 * failure. */
int exec_become(char **words, const struct live_step *step, pid_t pid, struct penstock_error *err);
/* Restores the signal handling that the command expects. */
void exec_reset_signals(void);

/*
 * Replaces this process with an srun that starts one more step in the job of the run, on the node
 * of that task and sharing its resources. The step runs penstock: `EXEC_NODE_WORD DIR RANK
 * WORD...`, where DIR is the step's directory in the run's tmp/.
 */
int exec_on_cluster(const struct strlist *words, const char *home, const struct records_run *run,
	const struct live_step *step, int64_t rank, struct penstock_error *err);

#define EXEC_NODE_WORD "--slurm-exec"
/* main() of that penstock: `argv` begins with DIR. */
int exec_node_main(char **argv);

#endif
