/*
 * A task on another node: srun starts penstock itself there (`penstock --slurm-task`), which reads
 * the description of the task from its standard input, runs the task by the executor for processes
 * or containers, and obeys the commands that follow the description.
 *
 *	one line of JSON	the task: words, environment, directory, container
 *	"signal N"		signals the leader
 *	"notify N"		signals the leader once it handles the signal: a notice
 *	"kill", or end of file	ends all processes of the task
 *
 * The supervisor writes this input, and srun passes it to every task. If the supervisor dies, the
 * input ends, and so do the tasks. The result is written to DIR/end.RANK: "code signal oom when",
 * `when` in nanoseconds since 1970.
 */
#ifndef RUN_CLUSTER_REMOTE_H
#define RUN_CLUSTER_REMOTE_H

#include <stddef.h>
#include <stdint.h>

#include "run/task/executor.h"

struct buf;
struct penstock_error;

#define REMOTE_TASK_WORD "--slurm-task"

/*
 * A rank of a step in containers started by the machine's MPI launcher works in the same way. The
 * rank gets its description from the environment, obeys the signals that the launcher passes on,
 * and ends with the launcher.
 */
#define REMOTE_RANK_WORD     "--mpi-task"
#define REMOTE_RANK_VARIABLE "PENSTOCK_MPI_TASK"

/* Placeholders in the environment for values that only the node knows: "RANK=@penstock:RANK@". */
#define REMOTE_RANK		"@penstock:RANK@"
#define REMOTE_LOCAL_RANK	"@penstock:LOCAL_RANK@"
#define REMOTE_LOCAL_WORLD_SIZE "@penstock:LOCAL_WORLD_SIZE@"
#define REMOTE_NODE_RANK	"@penstock:NODE_RANK@"
#define REMOTE_NODES		"@penstock:NODES@"
#define REMOTE_MASTER_ADDR	"@penstock:MASTER_ADDR@"
/* Placeholder for the endpoint of temporary keys: each node has its own. */
#define REMOTE_KEYS_URI "@penstock:KEYS_URI@"

/* Appends the task's description, which is one line, to `line`. */
int remote_describe(const struct task_spec *spec, struct buf *line, struct penstock_error *err);
/* Like remote_describe() for a rank, which gets an equal share of `gpus`. */
int remote_describe_rank(const struct task_spec *spec, const int *gpus, size_t n_gpus,
	struct buf *text, struct penstock_error *err);
/* Reads DIR/end.RANK. Returns false if the file is missing or invalid. */
bool remote_read_end(const char *dir, size_t rank, struct task_end *end, int64_t *when_ns);

/* main() for REMOTE_TASK_WORD and for REMOTE_RANK_WORD. */
int remote_task_main(void);
int remote_rank_main(void);

#endif
