/* `penstock exec`, and its share on the nodes of a cluster. */
#ifndef CLI_EXEC_H
#define CLI_EXEC_H

#include <stdint.h>
#include <sys/types.h>

struct live_step;
struct penstock_error;
struct records_run;
struct strlist;

/* Becomes the command beside process `pid` of the step; returns only where it cannot. */
int exec_become(char **words, const struct live_step *step, pid_t pid, struct penstock_error *err);
/* As the command expects them. */
void exec_reset_signals(void);

/*
 * Becomes an srun that begins one more step in the job of the run, on the node of that task and beside what it has there. What it
 * starts is penstock: `EXEC_NODE_WORD DIR RANK WORD...`, DIR being the step's in the run's tmp/.
 */
int exec_on_cluster(const struct strlist *words, const char *home, const struct records_run *run,
	const struct live_step *step, int64_t rank, struct penstock_error *err);

#define EXEC_NODE_WORD "--slurm-exec"
/* main() of it: `argv` begins with DIR. */
int exec_node_main(char **argv);

#endif
