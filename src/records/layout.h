/*
 * The directories of a run below $PENSTOCK_HOME, and the directories that runs share.
 *
 *	HOME/runs/ID/workflow		the workflow as it was run, without secrets
 *	HOME/runs/ID/source		how the file of the workflow was read, without secrets
 *	HOME/runs/ID/lock		held by the supervisor for its lifetime
 *	HOME/runs/ID/elsewhere		the last known state of the run on another machine
 *	HOME/runs/ID/grace		the grace period of `penstock stop --grace`, in ms
 *	HOME/runs/ID/live/N		a living execution of a step: run/process/live.h
 *	HOME/runs/ID/tracked/		metrics of the run at MLflow: run/tracking/mirror.h
 *	HOME/runs/ID/ports		the numbers of $PORT_0, $PORT_1, …
 *	HOME/runs/ID/log/N		the output of attempt N
 *	HOME/runs/ID/log/N.times	times at which log/N grew: run_log_times()
 *	HOME/runs/ID/log/N.usage	use of resources by attempt N: run/report/usage_file.h
 *	HOME/runs/ID/context/N.diff	difference between the context that attempt N copied and its
 *					Git commit
 *	HOME/runs/ID/storage/		$STORAGE_PATH: input/, output/, env
 *	HOME/runs/ID/storage/work/	working directory of steps if the workflow has a context
 *	HOME/runs/ID/state/		journals of staging and sync
 *	HOME/runs/ID/output.before-N/	files not yet uploaded when attempt N started over
 *	HOME/runs/ID/published	the journal of sync of an attempt whose storage is gone, or that
 *				starts over
 *	HOME/runs/ID/tmp/		snapshots of files that change while they are uploaded
 *	HOME/tmp/			$DEEPSQUARE_TMP: shared by this user's runs, survives them
 *	/var/tmp/penstock-world		$DEEPSQUARE_SHARED_WORLD_TMP: shared by all users
 */
#ifndef RECORDS_LAYOUT_H
#define RECORDS_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#define RUN_ASIDE_PREFIX "output.before-"
/* Prefix below the output in a bucket; the id of the run follows. */
#define RUN_STATE_ROOT	      ".penstock/runs/"
#define RUN_STATE_PREFIX_SIZE 48

struct penstock_error;

/* Files of a run that other commands read or write without the rest of the layout. */
enum run_file {
	RUN_FILE_DIR, /* the directory itself */
	RUN_FILE_LOCK,
	RUN_FILE_WORKFLOW,
	RUN_FILE_SOURCE, /* the way the file of the workflow was read, for `resume` */
	RUN_FILE_GRACE, /* the grace period of `penstock stop --grace` */
	RUN_FILE_PORTS,
	RUN_FILE_NOTICE, /* the last notice, for `ps` and `show` */
	RUN_FILE_PREEMPT, /* the request of `penstock preempt` */
	RUN_FILE_LEFT_ALONE, /* exists while the run must not restart by itself */
	RUN_FILE_ELSEWHERE, /* the last known state of an attempt on another machine */
	RUN_FILE_SLURM, /* the Slurm job and its settings */
	RUN_FILE_SLURM_LOCK,
	RUN_FILE_SLURM_SCRIPT,
	RUN_FILE_SLURM_NOTICE,
	RUN_FILE_SLURM_LEFT, /* exists while the last attempt was not run by the Slurm job */
	RUN_FILE_TRACKED, /* directory with the metrics of the run at MLflow */
	RUN_FILE_COUNT_
};
/* Returns the name below the run's directory, "" for RUN_FILE_DIR. */
const char *run_file_name(enum run_file file);
/* Returns "HOME/runs/ID/NAME", which the caller frees, or NULL if out of memory. */
char *run_path(const char *home, const char *id, enum run_file file);
/* Writes ".penstock/runs/ID", the prefix of the run's own objects below its output. */
void run_state_prefix(const char *id, char out[static RUN_STATE_PREFIX_SIZE]);

/* Absolute paths, owned by the struct. */
struct run_layout {
	char *dir;
	char *workflow;
	char *lock;
	char *log;
	char *storage;
	char *input;
	char *output;
	char *env_file;
	char *work;
	char *began; /* file with the number of the last attempt that started over */
	char *held; /* file with the number of the last attempt of this home that owned the run */
	/* exists while another home has newer output than the storage; removed once that output is
	 * restored */
	char *superseded;
	char *state;
	/* file that exists while a resumed attempt has not started its steps, or a retry is
	 * pending */
	char *goes_on;
	char *published;
	char *tmp;
	char *user_tmp;
	char *world_tmp;
};

/* Returns the path of the file with the times of a log, or NULL if out of memory. The caller frees
 * the path. The file has a line "OFFSET MS" for each second in which the log grew from the size
 * OFFSET. */
char *run_log_times(const char *log);
/* Returns the path of the file with the usage of the attempt that has this log, or NULL if out of
 * memory. The caller frees the path. */
char *run_log_usage(const char *log);
/* Renames the .times and .usage files of `log` to those of the log `to`, or removes them if `to` is
 * NULL. Missing files are not an error. */
void run_log_move_rest(const char *log, const char *to);

/* Computes the paths, and creates nothing. `attempt` selects the log. */
int run_layout_init(struct run_layout *layout, const char *home, const char *id, int attempt,
	struct penstock_error *err);
void run_layout_release(struct run_layout *layout);

/* Returns the attempt number in a file such as `began`, or 0 if there is none. */
int run_layout_read_attempt(const char *path);

/* Creates missing directories except `work`: `world_tmp` for all users (01777), the other
 * directories for this user alone (0700). Returns -PENSTOCK_E_INVALID if a step has replaced a
 * directory. */
int run_layout_create(const struct run_layout *layout, struct penstock_error *err);

/* Removes the storage, journals and snapshots of earlier attempts; keeps logs, the lock and the
 * record of published files. */
int run_layout_wipe(const struct run_layout *layout, struct penstock_error *err);

#endif
