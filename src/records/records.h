/*
 * The records of runs on this machine: HOME/runs.db (SQLite).
 *
 *	_cleanup_(records_freep) struct records *records = NULL;
 *
 *	r = records_home(&home, err);
 *	if (r == 0)
 *		r = records_open(&records, home, err);
 *	if (r == 0)
 *		r = records_begin(records, &(struct records_begin){ .id = id, ... }, &attempt, err);
 *	if (r == 0)
 *		r = records_set_state(records, id, attempt, RUN_RUNNING, err);
 *	if (r == 0)
 *		r = records_end(records, id, attempt, &end, err);
 *
 * A run has an identity, and attempts that are numbered from 1. The supervisor of a run holds the
 * lock HOME/runs/ID/lock for its lifetime (supervisor.h): an attempt whose state is live while that
 * lock is free is reported as `lost`. Readers do not block writers (WAL, except on network file
 * systems). The records contain no secrets. A result struct owns its strings. Thread-safe.
 */
#ifndef RECORDS_RECORDS_H
#define RECORDS_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct penstock_error;
struct records;

#define RECORDS_ID_SIZE 13 /* 12 hexadecimal digits and NUL */
/* Returns true if `text` has the form of a whole id of a run. `text` may be NULL. */
bool records_is_id(const char *text);

/* The states of an attempt. A live state may be followed by any later state. An end is final, with
 * two exceptions: a flush may complete the end, and a run that waits to be resumed may be ended. */
enum run_state {
	RUN_QUEUED, /* recorded; waits for its resources */
	RUN_STAGING, /* the inputs are being fetched */
	RUN_RUNNING, /* the steps are running */
	RUN_FLUSHING, /* the output is being completed */
	RUN_SUCCEEDED, /* ended: every step exited with 0 and the output is complete */
	RUN_FAILED, /* ended: see its class */
	RUN_PREEMPTED, /* ended: the machine requested the end; the next attempt resumes the run */
	RUN_STOPPED, /* ended: the user requested the end */
	RUN_LOST, /* the supervisor disappeared; the next attempt resumes the run */
	RUN_MOVED, /* another machine has the run; shown, never recorded */
	RUN_STATE_COUNT_ /* not a state */
};
const char *run_state_name(enum run_state state);
/* Returns RUN_STATE_COUNT_ for NULL and for other names. */
enum run_state run_state_find(const char *name);
bool run_state_is_live(enum run_state state);
/* Returns true if the run has ended and is resumed only by its user. */
static inline bool run_state_is_over(enum run_state state)
{
	return state == RUN_SUCCEEDED || state == RUN_FAILED || state == RUN_STOPPED;
}

/* The reason why an attempt did not succeed. */
enum run_class {
	RUN_CLASS_NONE,
	RUN_CLASS_WORKFLOW, /* the file or an option is wrong */
	RUN_CLASS_INPUT, /* input data could not be fetched */
	RUN_CLASS_IMAGE, /* a container image could not be pulled */
	RUN_CLASS_OOM, /* out of memory */
	RUN_CLASS_USER, /* a step failed, or the user stopped the run */
	RUN_CLASS_OUTPUT, /* output could not be completed; `penstock flush` retries */
	RUN_CLASS_NODE, /* this machine failed: disk, memory, processes */
	RUN_CLASS_PREEMPTED, /* the machine requested the end */
	RUN_CLASS_TIMEOUT, /* the run or a step timed out */
	RUN_CLASS_COUNT_ /* not a class */
};
const char *run_class_name(enum run_class class);
/* Returns RUN_CLASS_NONE for NULL and for other names. */
enum run_class run_class_find(const char *name);

/*
 * Gets the absolute path of $PENSTOCK_HOME, else $XDG_DATA_HOME/penstock, else
 * ~/.local/share/penstock, and creates the directory (0700). Returns -PENSTOCK_E_INVALID if the
 * path is not UTF-8, the encoding of states and manifests that contain the path.
 */
int records_home(char **home, struct penstock_error *err);
/* Gets the id that distinguishes a home from all other homes, even from a home with the same path
 * on a machine of the same name: HOME/id, created if missing. */
#define RECORDS_HOME_ID_SIZE 33
int records_home_id(
	const char *home, char id[static RECORDS_HOME_ID_SIZE], struct penstock_error *err);

int records_open(struct records **out, const char *home, struct penstock_error *err);
void records_free(struct records *records);
void records_freep(struct records **records);

struct records_begin {
	const char *id;
	const char *name; /* may be NULL */
	const char *workflow; /* the path or URL as given by the user; paths are made absolute */
	const char *output; /* for display: "s3://bucket/path at https://…", or NULL */
	pid_t pid; /* pid of the supervisor; 0 if there is none yet */
	int steps_done; /* number of steps that earlier attempts of the run have finished */
	const char *provenance; /* JSON: versions, Git commit, inputs, overrides; or NULL */
};
/* Records a new attempt as queued. An earlier attempt with a live state becomes `lost`, because the
 * caller holds the lock of the run. */
int records_begin(struct records *records, const struct records_begin *begin, int *attempt,
	struct penstock_error *err);

/* Removes an attempt that was recorded without a supervisor and is still queued. The supervisor
 * then records the attempt again, with the same number. Does nothing if there is no such
 * attempt. */
int records_withdraw(
	struct records *records, const char *id, int attempt, struct penstock_error *err);

/* Removes an attempt that was recorded but must not begin, and the run if it has no other
 * attempt. */
int records_drop(struct records *records, const char *id, int attempt, struct penstock_error *err);

/* Sets a live state. Returns -PENSTOCK_E_INTERNAL if the state may not follow the current state. */
int records_set_state(struct records *records, const char *id, int attempt, enum run_state state,
	struct penstock_error *err);
int records_set_provenance(struct records *records, const char *id, int attempt,
	const char *provenance, struct penstock_error *err);

struct records_sync {
	int64_t lag_ms; /* age of the oldest unpublished change; 0 if all changes are published */
	uint64_t bytes_waiting;
	uint64_t files_published;
	uint64_t bytes_published;
	const char *last_error; /* may be NULL */
};
int records_set_sync(struct records *records, const char *id, int attempt,
	const struct records_sync *sync, struct penstock_error *err);

/* Records that a step has finished. Steps are numbered from 0. */
int records_step_done(struct records *records, const char *id, int attempt, int step,
	const char *name, struct penstock_error *err);

/* Changes the number of an attempt without recorded steps, because attempts are counted across all
 * machines. `to` must be free. */
int records_renumber(
	struct records *records, const char *id, int attempt, int to, struct penstock_error *err);
/* Records that the attempt reuses no steps finished by earlier attempts. */
int records_forget_steps(
	struct records *records, const char *id, int attempt, struct penstock_error *err);

struct records_end {
	enum run_state state;
	enum run_class class;
	int exit_code; /* exit code of penstock */
	int step_code; /* exit code of the step, if penstock exits with another code; else 0 */
	bool unflushed; /* output is left for `penstock flush` */
	const char *message; /* NULL on success */
	/* If `unflushed` is set: the result of the run once its output is complete. */
	enum run_state flushed_state;
	enum run_class flushed_class;
	int flushed_exit_code;
};
int records_end(struct records *records, const char *id, int attempt, const struct records_end *end,
	struct penstock_error *err);
/* Like records_end() for a run that is ended while it waits to be resumed: the last attempt of the
 * run may have ended as preempted or lost. Output that the attempt left for `penstock flush` stays
 * recorded. */
int records_end_waiting(struct records *records, const char *id, int attempt,
	const struct records_end *end, struct penstock_error *err);

struct records_attempt {
	int attempt;
	enum run_state state; /* as recorded, or RUN_LOST (see the top of this file) */
	enum run_class class;
	int exit_code;
	int step_code;
	bool unflushed;
	enum run_state flushed_state;
	enum run_class flushed_class;
	int flushed_exit_code;
	/* leading steps that are finished, including those of earlier attempts */
	int steps_done;
	/* wall clock: time at which the attempt left the queue; before that, time at which it
	 * joined the queue */
	int64_t started_ns;
	int64_t ended_ns; /* 0 if the attempt has not ended */
	/* time of the last report of an attempt that is lost or is on another machine; 0 if
	 * unknown */
	int64_t heard_ns;
	pid_t pid;
	char *message; /* may be NULL */
	char *provenance; /* may be NULL */
	int64_t sync_lag_ms;
	uint64_t sync_bytes_waiting;
	uint64_t sync_files_published;
	uint64_t sync_bytes_published;
	char *sync_error; /* may be NULL */
	int64_t sync_at_ns; /* time of the sync values; 0 if there are none */
};
void records_attempt_release(struct records_attempt *attempt);

/* Returns true if another owner took over the run while it ran: later output of this attempt is
 * only on this machine. */
static inline bool records_was_fenced(const struct records_attempt *attempt)
{
	return attempt->class == RUN_CLASS_NODE && attempt->exit_code == 69;
}

struct records_run {
	char id[RECORDS_ID_SIZE];
	char *name; /* may be NULL */
	char *workflow;
	char *output; /* may be NULL */
	int64_t created_ns;
	struct records_attempt last;
};
void records_run_release(struct records_run *run);

/* Returns -PENSTOCK_E_NOT_FOUND if there is no such run. */
int records_last_attempt(struct records *records, const char *id, struct records_attempt *out,
	struct penstock_error *err);
/* Returns true if the last attempt has not reached its flush, so that its steps may be running. */
bool records_before_flush(struct records *records, const char *id);

/*
 * Finds a run by its id, by a unique prefix of it (4 digits or more), or by its name (the newest of
 * that name). Returns -PENSTOCK_E_NOT_FOUND if there is no match, -PENSTOCK_E_INVALID if the prefix
 * is ambiguous.
 */
int records_find(struct records *records, const char *word, struct records_run *out,
	struct penstock_error *err);

/* Lists runs, the one with the newest attempt first. Attempts are in the order in which they were
 * recorded, because the clock may have been set back. fn returns non-zero to stop. */
int records_list(struct records *records, int (*fn)(void *cookie, const struct records_run *run),
	void *cookie, struct penstock_error *err);
/* Lists the attempts of a run, oldest first. */
int records_attempts(struct records *records, const char *id,
	int (*fn)(void *cookie, const struct records_attempt *attempt), void *cookie,
	struct penstock_error *err);
struct records_step {
	int attempt;
	int step;
	const char *name;
	int64_t ended_ns;
};
int records_steps(struct records *records, const char *id,
	int (*fn)(void *cookie, const struct records_step *step), void *cookie,
	struct penstock_error *err);

/* Removes a run, which must not be live. The caller removes its directories. */
int records_remove(struct records *records, const char *id, struct penstock_error *err);

#endif
