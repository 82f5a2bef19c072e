/*
 * What lives of a run now, for other processes: a file below runs/ID/live for each execution of a step that lives.
 * `penstock exec` enters what it names; when the supervisor was killed, the next attempt ends what is left in its
 * control groups. So the groups are on record before anybody is in them.
 *
 *	live_files_new(&files, dir, err);
 *	live_begin(files, &step, &file, err);	with its groups
 *	live_started(file, &step, err);		with its tasks
 *	live_over(files, file);
 *	live_files_free(files);
 *
 *	live_each(dir, fn, cookie);
 */
#ifndef RUN_LIVE_H
#define RUN_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/str.h"

struct penstock_error;

struct live_step {
	unsigned long serial; /* within its attempt */
	char *name;	      /* for people */
	char *cwd;
	pid_t *pids; /* of the leaders, by rank */
	size_t n;
	struct strlist cgroups; /* directories */
	struct strlist
		enter; /* namespaces of the tasks that a command beside them joins; none: the machine's */
	/*
	 * Its tasks are on the nodes of a cluster, and `pids` is empty. Each of them has a file of its own there, of one task and
	 * with its node: live_write() and live_each() with the step's directory in the run's tmp/ and its rank as the serial.
	 */
	bool cluster;
	char *node; /* of such a task, as the cluster names it */
};
void live_step_release(struct live_step *step);

/*
 * `run_dir` is runs/ID. A file is used again by the next execution, as to make and remove one for each takes a disk's
 * file system a tenth of the time that a container needs to start.
 */
struct live_files;
struct live_file;
int live_files_new(struct live_files **out, const char *run_dir, struct penstock_error *err);
/* Removes them; all executions are over. */
void live_files_free(struct live_files *files);
int live_begin(struct live_files *files, const struct live_step *step, struct live_file **out,
	struct penstock_error *err);
int live_started(
	const struct live_file *file, const struct live_step *step, struct penstock_error *err);
void live_over(struct live_files *files, struct live_file *file);

/* All of it in a file that appears whole, also to other machines; `serial` is its name. */
int live_write(const char *run_dir, const struct live_step *step, struct penstock_error *err);
void live_remove(const char *run_dir, unsigned long serial);
/* Those of this machine and boot, in the order of their starts; fn returns non-zero to stop. */
void live_each(
	const char *run_dir, int (*fn)(void *cookie, const struct live_step *step), void *cookie);
/* Those whose tasks are on the nodes of a cluster, wherever this is. */
void live_each_of_cluster(
	const char *run_dir, int (*fn)(void *cookie, const struct live_step *step), void *cookie);
/* The node of a task of such a step; free() it. NULL: it has not begun, or is over. */
char *live_node(const char *step_dir, unsigned long rank);
/* Ends whatever is in the control groups of an attempt whose supervisor is gone, and forgets it. Returns how many
 * processes there were. */
int live_end(const char *run_dir);

#endif
