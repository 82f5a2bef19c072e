/*
 * A task on another node: what srun starts there is penstock itself (`penstock --slurm-task`), which reads what to run from its
 * standard input, runs it by the executor for processes or containers, and obeys what comes after it.
 *
 *	one line of JSON	the task: words, environment, directory, container
 *	"signal N"		the leader is told
 *	"tell N"		the same, once it handles the signal: a notice
 *	"kill", or the end	everything of it is ended
 *
 * Whoever started it is at the other end, and srun hands every task the same. So a supervisor that dies takes its tasks with it.
 * How it ended is written to DIR/end.RANK: "code signal oom when", `when` in nanoseconds since 1970.
 */
#ifndef RUN_EXECUTORS_REMOTE_H
#define RUN_EXECUTORS_REMOTE_H

#include <stddef.h>
#include <stdint.h>

#include "run/executor.h"

struct buf;
struct penstock_error;

#define REMOTE_TASK_WORD "--slurm-task"

/*
 * A rank of a step in containers is the same where the machine's MPI launcher started it: it finds what to run in its
 * environment, obeys the signals that the launcher passes on, and ends with it.
 */
#define REMOTE_RANK_WORD     "--mpi-task"
#define REMOTE_RANK_VARIABLE "PENSTOCK_MPI_TASK"

/* What stands in the environment for what only the node knows: "RANK=@penstock:RANK@". */
#define REMOTE_RANK		"@penstock:RANK@"
#define REMOTE_LOCAL_RANK	"@penstock:LOCAL_RANK@"
#define REMOTE_LOCAL_WORLD_SIZE "@penstock:LOCAL_WORLD_SIZE@"
#define REMOTE_NODE_RANK	"@penstock:NODE_RANK@"
#define REMOTE_MASTER_ADDR	"@penstock:MASTER_ADDR@"

/* Appends the line. */
int remote_describe(const struct task_spec *spec, struct buf *line, struct penstock_error *err);
/* The same for a rank, whose GPUs are an equal part of these. */
int remote_describe_rank(const struct task_spec *spec, const int *gpus, size_t n_gpus,
	struct buf *text, struct penstock_error *err);
/* False: there is no such file, or nothing of the kind in it. */
bool remote_read_end(const char *dir, size_t rank, struct task_end *end, int64_t *when_ns);

/* main() of them. */
int remote_task_main(void);
int remote_rank_main(void);

#endif
