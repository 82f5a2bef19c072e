/*
 * What is known of runs on this machine: HOME/runs.db (SQLite).
 *
 *	_cleanup_(records_freep) struct records *records = NULL;
 *
 *	records_home(&home, err);
 *	records_open(&records, home, err);
 *	records_begin(records, &(struct records_begin){ .id = id, ... }, &attempt, err);
 *	records_set_state(records, id, attempt, RUN_RUNNING, err);
 *	records_end(records, id, attempt, &end, err);
 *
 * A run is an identity; it has attempts, numbered from 1. Its supervisor holds the lock
 * HOME/runs/ID/lock for its life (supervisor.h): an attempt whose state looks live while that lock is free is
 * reported as `lost`. Readers do not block writers (WAL, but for network file systems). No value in
 * here is a secret. All strings in result structs are owned by them. Thread-safe.
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

/* The states of an attempt. From each live state the later ones may follow; nothing follows an end. */
enum run_state {
	RUN_QUEUED,	 /* recorded; waits for its resources */
	RUN_STAGING,	 /* its inputs are being brought */
	RUN_RUNNING,	 /* its steps are being run */
	RUN_FLUSHING,	 /* its output is being completed */
	RUN_SUCCEEDED,	 /* ended: every step exited with 0 and the output is complete */
	RUN_FAILED,	 /* ended: see its class */
	RUN_PREEMPTED,	 /* ended: the machine asked; the next `run` continues it */
	RUN_STOPPED,	 /* ended: the user asked */
	RUN_LOST,	 /* its supervisor is gone without a word; the next `run` continues it */
	RUN_STATE_COUNT_ /* not a state */
};
const char *run_state_name(enum run_state state);
bool run_state_is_live(enum run_state state);

/* Why an attempt did not succeed. */
enum run_class {
	RUN_CLASS_NONE,
	RUN_CLASS_WORKFLOW,  /* the file or an option is wrong */
	RUN_CLASS_INPUT,     /* data could not be brought */
	RUN_CLASS_IMAGE,     /* a container image could not be brought */
	RUN_CLASS_OOM,	     /* memory ran out */
	RUN_CLASS_USER,	     /* a step failed, or the user stopped it */
	RUN_CLASS_OUTPUT,    /* output could not be completed; `penstock flush` retries */
	RUN_CLASS_NODE,	     /* this machine failed: disk, memory, processes */
	RUN_CLASS_PREEMPTED, /* the machine asked for an end */
	RUN_CLASS_TIMEOUT,   /* the run's or step's time was over */
	RUN_CLASS_COUNT_     /* not a class */
};
const char *run_class_name(enum run_class class);

/*
 * $PENSTOCK_HOME, else $XDG_DATA_HOME/penstock, else ~/.local/share/penstock; absolute, created 0700. PENSTOCK_E_INVALID: it is not
 * UTF-8, in which states and manifests that name it are written.
 */
int records_home(char **home, struct penstock_error *err);
/* What tells a home from all others, also from one of the same path on a machine of the same name: HOME/id, made where it is missing. */
#define RECORDS_HOME_ID_SIZE 33
int records_home_id(
	const char *home, char id[static RECORDS_HOME_ID_SIZE], struct penstock_error *err);

int records_open(struct records **out, const char *home, struct penstock_error *err);
void records_free(struct records *records);
void records_freep(struct records **records);

struct records_begin {
	const char *id;
	const char *name;     /* NULL: none */
	const char *workflow; /* the path or URL as the user gave it, absolute where it is a path */
	const char *output;   /* for people: "s3://bucket/path at https://…", or NULL */
	pid_t pid;	      /* the supervisor's; 0: it has none yet */
	int steps_done;	      /* finished by the attempts that this one continues */
	const char *provenance; /* JSON: versions, Git commit, inputs, overrides; or NULL */
};
/* Records a new attempt as queued. An earlier one that looks live becomes `lost`: the caller holds the lock. */
int records_begin(struct records *records, const struct records_begin *begin, int *attempt,
	struct penstock_error *err);

/*
 * Takes back an attempt that was recorded without a supervisor, and is still queued: who
 * carries it records it again, under the same number. Nothing happens where there is none.
 */
int records_withdraw(
	struct records *records, const char *id, int attempt, struct penstock_error *err);

/* PENSTOCK_E_INTERNAL: the state may not follow the present one. */
int records_set_state(struct records *records, const char *id, int attempt, enum run_state state,
	struct penstock_error *err);
int records_set_provenance(struct records *records, const char *id, int attempt,
	const char *provenance, struct penstock_error *err);

struct records_sync {
	int64_t lag_ms; /* age of the oldest unpublished change; 0: none */
	uint64_t bytes_waiting;
	uint64_t files_waiting;
	uint64_t files_published;
	uint64_t bytes_published;
	const char *last_error; /* may be NULL */
};
int records_set_sync(struct records *records, const char *id, int attempt,
	const struct records_sync *sync, struct penstock_error *err);

/* Steps are numbered from 0. */
int records_step_done(struct records *records, const char *id, int attempt, int step,
	const char *name, struct penstock_error *err);

/* Of an attempt that has no steps on record yet: attempts are counted over all machines, and `to` is not taken. */
int records_renumber(
	struct records *records, const char *id, int attempt, int to, struct penstock_error *err);
/* It goes on with none of the steps that earlier attempts have finished. */
int records_forget_steps(
	struct records *records, const char *id, int attempt, struct penstock_error *err);

struct records_end {
	enum run_state state;
	enum run_class class;
	int exit_code;	     /* of penstock */
	int step_code;	     /* of the step, where penstock shows another; else 0 */
	bool unflushed;	     /* output is left behind for `penstock flush` */
	const char *message; /* NULL where all is well */
	/* With `unflushed`: how the run had ended but for that. */
	enum run_state flushed_state;
	enum run_class flushed_class;
	int flushed_exit_code;
};
int records_end(struct records *records, const char *id, int attempt, const struct records_end *end,
	struct penstock_error *err);
/*
 * The same of a run that was to go on by itself, and is ended while it waits for that: its last attempt may have ended as
 * preempted or lost. What that left behind for `penstock flush` stays so, whatever `end` says.
 */
int records_end_waiting(struct records *records, const char *id, int attempt,
	const struct records_end *end, struct penstock_error *err);

struct records_attempt {
	int attempt;
	enum run_state state; /* as recorded, or RUN_LOST (see the head of this file) */
	enum run_class class;
	int exit_code;
	int step_code;
	bool unflushed;
	enum run_state flushed_state;
	enum run_class flushed_class;
	int flushed_exit_code;
	int steps_done; /* leading steps that are finished, also by earlier attempts it continues */
	int64_t started_ns; /* wall clock */
	int64_t ended_ns;   /* 0: not yet */
	pid_t pid;
	char *message;	  /* NULL: none */
	char *provenance; /* NULL: none */
	int64_t sync_lag_ms;
	uint64_t sync_bytes_waiting;
	uint64_t sync_files_published;
	uint64_t sync_bytes_published;
	char *sync_error;   /* NULL: none */
	int64_t sync_at_ns; /* when these were written; 0: never */
};
void records_attempt_release(struct records_attempt *attempt);

/* Another owner took the run over while it ran: what it wrote since is only where it wrote it. */
static inline bool records_was_fenced(const struct records_attempt *attempt)
{
	return attempt->class == RUN_CLASS_NODE && attempt->exit_code == 69;
}

struct records_run {
	char id[RECORDS_ID_SIZE];
	char *name; /* NULL: none */
	char *workflow;
	char *output; /* NULL: none */
	int64_t created_ns;
	struct records_attempt last;
};
void records_run_release(struct records_run *run);

/* PENSTOCK_E_NOT_FOUND: no such run. */
int records_last_attempt(struct records *records, const char *id, struct records_attempt *out,
	struct penstock_error *err);
/* Whether the steps of its last attempt may still be running. */
bool records_before_flush(struct records *records, const char *id);

/*
 * An id, the unique beginning of one (4 digits or more), or a name (the newest of that name).
 * PENSTOCK_E_NOT_FOUND: none. PENSTOCK_E_INVALID: several begin so.
 */
int records_find(struct records *records, const char *word, struct records_run *out,
	struct penstock_error *err);

/* Newest first, by the start of the last attempt. fn returns non-zero to stop. */
int records_list(struct records *records, int (*fn)(void *cookie, const struct records_run *run),
	void *cookie, struct penstock_error *err);
/* The attempts of a run, oldest first. */
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

/* Forgets a run whose state is not live. The directories are the caller's. */
int records_remove(struct records *records, const char *id, struct penstock_error *err);

#endif
