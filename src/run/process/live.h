/*
 * The live processes of a run, for other processes: a file in runs/ID/live for each execution of a
 * step. `penstock exec` enters the namespaces of an execution; if the supervisor was killed, the
 * next attempt ends the processes in the recorded control groups. So the groups are recorded before
 * they contain processes.
 *
 *	live_files_new(&files, dir, err);
 *	live_begin(files, &step, &file, err);	// with its groups
 *	live_started(file, &step, err);	// with its tasks
 *	live_over(files, file);
 *	live_files_free(files);
 *
 *	live_each(dir, fn, cookie);
 */
#ifndef RUN_PROCESS_LIVE_H
#define RUN_PROCESS_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/str.h"

struct live_file;
struct live_files;
struct live_step;
struct penstock_error;

struct live_step {
	unsigned long serial; /* number of the execution within its attempt */
	char *name; /* for display */
	char *path; /* place in the tree of steps, as in run/walk/finished.h; "" if unknown */
	char *cwd;
	pid_t *pids; /* pids of the leaders, by rank */
	size_t n;
	struct strlist cgroups; /* directories */
	/* namespaces of the tasks, for a command to join; empty for tasks in the machine's
	 * namespaces */
	struct strlist enter;
	/*
	 * The tasks are on the nodes of a cluster, and `pids` is empty. Each task has its own file,
	 * which names its node. For these files, the `run_dir` of live_write() and live_each() is
	 * the step's directory in the run's tmp/, and the serial is the rank of the task.
	 */
	bool cluster;
	char *node; /* the cluster's name for the node of a task */
};
void live_step_release(struct live_step *step);

/* Creates the directory of the files; `run_dir` is runs/ID. A file is reused by the next execution,
 * because creating and removing a file for each execution takes a tenth of the time that a
 * container needs to start. */
int live_files_new(struct live_files **out, const char *run_dir, struct penstock_error *err);
/* Removes the files, after all executions have ended. */
void live_files_free(struct live_files *files);
int live_begin(struct live_files *files, const struct live_step *step, struct live_file **out,
	struct penstock_error *err);
int live_started(
	const struct live_file *file, const struct live_step *step, struct penstock_error *err);
void live_over(struct live_files *files, struct live_file *file);

/* Writes the whole record to a new file, so that other machines never see a part of it. The name of
 * the file is `step->serial`. */
int live_write(const char *run_dir, const struct live_step *step, struct penstock_error *err);
void live_remove(const char *run_dir, unsigned long serial);
/* Calls fn for the executions of this machine and boot, in the order of their starts; fn returns
 * non-zero to stop. */
void live_each(
	const char *run_dir, int (*fn)(void *cookie, const struct live_step *step), void *cookie);
/* Like live_each() for executions on the nodes of a cluster, from any machine. */
void live_each_of_cluster(
	const char *run_dir, int (*fn)(void *cookie, const struct live_step *step), void *cookie);
/* Returns the node of a task on a cluster; the caller frees it. Returns NULL if the task has not
 * started or has ended. */
char *live_node(const char *step_dir, unsigned long rank);
/* Kills all processes in the control groups of an attempt whose supervisor is gone, and removes the
 * attempt's records. Returns the number of processes. */
int live_end(const char *run_dir);

/*
 * Record of an execution of a step from its start to its end.
 *
 *	step_life_begin(&life, &run, &step);	// the groups exist and are empty
 *	step_life_started(&life, &run, &step);	// the tasks run
 *	step_life_end(&life, &run);
 *	run_life_end(&run);	// after the last execution of the run
 *
 * A failure to record is not an error: `penstock exec` then does not find the execution. If this
 * process is killed, the next attempt finds the processes of the execution only if their
 * environment names the run.
 */
struct run_life {
	const char *dir; /* runs/ID; borrowed */
	struct live_files *files; /* NULL until an execution begins */
};

struct step_life {
	struct live_file *file; /* NULL if no file could be created */
	unsigned long alone; /* serial of an execution with a file of its own; 0 if there is none */
};

void step_life_begin(struct step_life *life, struct run_life *run, const struct live_step *step);
void step_life_started(struct step_life *life, struct run_life *run, const struct live_step *step);
void step_life_end(struct step_life *life, struct run_life *run);
void run_life_end(struct run_life *run);

#endif
