/*
 * The directories of a run below $PENSTOCK_HOME, and those that runs share.
 *
 *	HOME/runs/ID/workflow		the workflow as it was run, without secrets
 *	HOME/runs/ID/lock		held by the supervisor for its life
 *	HOME/runs/ID/grace		what `penstock stop --grace` gives the step, in ms
 *	HOME/runs/ID/live/N		an execution of a step that lives: run/live.h
 *	HOME/runs/ID/ports		the numbers of $PORT_0, $PORT_1, …
 *	HOME/runs/ID/log/N		what attempt N printed
 *	HOME/runs/ID/context/N.diff	how the context that attempt N copied differed from its Git commit
 *	HOME/runs/ID/storage/		$STORAGE_PATH: input/, output/, env
 *	HOME/runs/ID/storage/work/	where steps start, where the workflow has a context
 *	HOME/runs/ID/state/		journals of staging and sync
 *	HOME/runs/ID/output.before-N/	what had not been uploaded when attempt N began anew
 *	HOME/runs/ID/published		the journal of sync, when the storage of its attempt is gone
 *	HOME/runs/ID/tmp/		snapshots of files that change while they are uploaded
 *	HOME/tmp/			$DEEPSQUARE_TMP: shared by this user's runs, survives them
 *	/var/tmp/penstock-world		$DEEPSQUARE_SHARED_WORLD_TMP: shared by all users
 */
#ifndef RUN_LAYOUT_H
#define RUN_LAYOUT_H

#include <stdbool.h>

#define RUN_ASIDE_PREFIX "output.before-"

struct penstock_error;

/* All owned, absolute. */
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
	char *began; /* the attempt that last began anew */
	char *held;  /* the last one that owned the run from here */
	char *superseded; /* another home's that came after what is in the storage; gone once that is restored */
	char *state;
	char *goes_on; /* there while an attempt that continues has not begun its steps */
	char *published;
	char *tmp;
	char *user_tmp;
	char *world_tmp;
};

/* Only names things. `attempt` chooses the log. */
int run_layout_init(struct run_layout *layout, const char *home, const char *id, int attempt,
	struct penstock_error *err);
void run_layout_release(struct run_layout *layout);

/* Creates what is missing, for the caller alone (0700). */
int run_layout_create(const struct run_layout *layout, struct penstock_error *err);

/* Removes the storage, journals and snapshots of earlier attempts; logs, the lock and what was published stay. */
int run_layout_wipe(const struct run_layout *layout, struct penstock_error *err);

#endif
