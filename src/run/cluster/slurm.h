/*
 * Runs as batch jobs of Slurm. Nothing here links with Slurm: its commands are run, with options
 * that Slurm 20.11 and later versions support, and their output is parsed.
 *
 * On the machine where the user runs `penstock run --on slurm`:
 *	slurm_submit(&job, home, id, err);
 *	slurm_status_read(job.job, id, &status, err);	// pending (with the reason), running, gone
 *	slurm_signal(job.job, "INT", err);	// signals the supervisor; use slurm_cancel()
 *							// before the job has started
 * In the batch job, whose script runs penstock:
 *	slurm_allocation_enter(&allocation, home, id, err);  then run_execute() with options.slurm
 *	slurm_allocation_requeue(&allocation, &text, err);	after a preemption: requeues or
 *								submits again
 *
 * HOME/runs/ID/slurm records the job and how it was submitted. HOME/runs/ID/slurm-JOB.out gets the
 * output of the job; the run's own log is another file. The home must be on a file system that the
 * nodes share.
 */
#ifndef RUN_CLUSTER_SLURM_H
#define RUN_CLUSTER_SLURM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "workflow/model.h"

struct buf;
struct notice;
struct penstock_error;

/* ---- Slurm's commands ---- */

/*
 * Runs a command and appends its output. Returns -PENSTOCK_E_UNAVAILABLE if the command is missing
 * (the message has a hint) or has failed (the message is the command's), -PENSTOCK_E_CANCELLED if
 * the command was killed, -PENSTOCK_E_TIMEOUT if it did not end in time: the command may still have
 * taken effect. The command gets no variables that change or filter the output (SQUEUE_USERS,
 * SLURM_TIME_FORMAT) and, except for sbatch, none with penstock's secrets; sbatch and srun also get
 * no variables of a surrounding job.
 */
int slurm_command(const char *const *argv, struct buf *out, struct penstock_error *err);
/* Executes the command in place of this process, with the same standard streams, and an environment
 * as for slurm_command(). Returns only on failure. */
int slurm_become(const char *const *argv, struct penstock_error *err);
/* Checks that the program is on PATH. Fails like slurm_command() if it is not. */
int slurm_need(const char *program, struct penstock_error *err);

/* Returns the number of GPUs in `gres`: 4 for "gpu:a100:4(S:0-1)", 2 for "gpu:2"; several kinds are
 * summed. */
int slurm_gpus_of(const char *gres);
/* Sets the CPUs and GPUs that every node of the default partition has at least, or every node if no
 * partition is the default; 0 if there is no node. */
int slurm_node_size(int *cpus, int *gpus, struct penstock_error *err);

/* ---- the record of a run's job ---- */

#define SLURM_JOB_SIZE 32 /* digits, and ";cluster" at a site with several clusters */

struct slurm_job {
	/* "" while the job is being submitted, or if the submission was interrupted */
	char job[SLURM_JOB_SIZE];
	int attempt; /* the attempt recorded with the submission */
	/* the user's options for the first start of the job */
	bool fresh, resume, keep_context;
	/* Number of the last submission, counted from 1 and written before sbatch is run. The
	 * script of each submission has its number, so that a job of an earlier submission, if it
	 * starts after all, does nothing. */
	int submissions;
	/* owned; a directory on a disk of each node, for copies of the inputs; NULL to read the
	 * inputs from the home */
	char *node_dir;
	struct strlist options; /* options of sbatch, which precede the script */
};
/* Reads the record. Returns -PENSTOCK_E_NOT_FOUND if the run was never submitted. */
int slurm_job_read(
	struct slurm_job *job, const char *home, const char *id, struct penstock_error *err);
int slurm_job_write(
	const struct slurm_job *job, const char *home, const char *id, struct penstock_error *err);
void slurm_job_release(struct slurm_job *job);
/* Records where the new attempt runs: on this machine if `left`, else in a job. Does nothing for a
 * run that was never submitted. */
int slurm_job_leave(const char *home, const char *id, bool left, struct penstock_error *err);
/* Returns true if an attempt on this machine began after the attempts of the job. */
bool slurm_job_is_left(const char *home, const char *id);
/* Sets `job->node_dir` to $PENSTOCK_SLURM_NODE_DIR, or else to `configured`, which may be NULL.
 * Frees the previous value. */
int slurm_job_set_node_dir(
	struct slurm_job *job, const char *configured, struct penstock_error *err);

/* ---- the state of the job in Slurm ---- */

struct slurm_status {
	bool known; /* false if Slurm has forgotten the job, minutes after its end */
	bool lives; /* the job is pending, or has started and not ended */
	bool pending; /* the job has no nodes (yet, or again) */
	/* the job stays pending: a person has to release it, unless `max_requeue` is set */
	bool held;
	bool max_requeue; /* the job is held because it was requeued too often */
	char state[32]; /* "PENDING", "RUNNING", … */
	char reason[128]; /* "Priority", "Resources", … */
	char nodes[256]; /* the host list of the job, or "" */
	int64_t end_s; /* Unix time of the job's end; 0 if unknown */
};
/* Reads the state of the run's job. `id` is the run's ID: the job of another run that reuses the
 * number of a forgotten job counts as unknown. */
int slurm_status_read(
	const char *job, const char *id, struct slurm_status *status, struct penstock_error *err);
/* Option of squeue for a line that slurm_status_parse() can parse. */
#define SLURM_STATUS_FORMAT "--format=%T|%r|%N|%e|%o"
/* Like SLURM_STATUS_FORMAT, after the number of the job and a bar. */
#define SLURM_LIST_FORMAT "--format=%i|%T|%r|%N|%e|%o"
/* Parses a line in SLURM_STATUS_FORMAT. Returns false if the line is invalid. */
bool slurm_status_parse(const char *line, const char *id, struct slurm_status *status);

/* Signals the supervisor of a job that has started. */
int slurm_signal(const char *job, const char *signal, struct penstock_error *err);
/* Ends the job in any state. */
int slurm_cancel(const char *job, struct penstock_error *err);

/* ---- submission ---- */

struct slurm_submission {
	const char *home, *id;
	const struct workflow *workflow;
	const struct strlist *options; /* the user's options, which follow penstock's */
};
/* Refuses, with PENSTOCK_E_INVALID, features that a cluster cannot provide (the message has the
 * override that removes them), and credentials that the batch job cannot read again. */
int slurm_check(const struct workflow *workflow, struct penstock_error *err);
/* Builds the options of sbatch: penstock's, then the user's. Returns -PENSTOCK_E_INVALID if an
 * option of the user is not allowed. */
int slurm_options(const struct slurm_submission *submission, struct strlist *options,
	struct penstock_error *err);
/* Takes the lock for submissions of this run, and waits if another process holds it. Returns a
 * descriptor that holds the lock until the descriptor is closed, or a negative code on error. */
int slurm_submission_lock(const char *home, const char *id, struct penstock_error *err);
/* Submits the script of the run with `job->options`, and updates `job->job` and the record. The
 * caller holds the lock, and has read or written the record since it took the lock. */
int slurm_submit(
	struct slurm_job *job, const char *home, const char *id, struct penstock_error *err);
/* Like slurm_submit(), but takes the lock itself. If the run was submitted since `job` was read,
 * only reads the record again and returns 1. */
int slurm_submit_again(
	struct slurm_job *job, const char *home, const char *id, struct penstock_error *err);

/* ---- within the job ---- */

struct slurm_allocation {
	char *home, *id; /* owned */
	struct slurm_job job;
	int n_nodes;
	int restarts; /* number of times that Slurm restarted this job */
	int requeues; /* number of restarts after which the job is submitted again instead */
	int64_t end_s; /* Unix time at which the job must end; 0 if unknown */
	int kill_wait_s; /* from SIGTERM to SIGKILL; 0 if unknown */
	/* preemption in this partition cancels jobs instead of requeueing them */
	bool preemption_cancels;
	int grace_s; /* grace time of a preemption in this partition; 0 if there is none */
	char *notice; /* a file to which the tasks write when Slurm asks them to end; owned */
	pthread_t watcher;
	int quit_fd; /* -1 if there is no watcher */
};
/* Reads the job's environment, and claims the run's record for this job. Returns
 * -PENSTOCK_E_INVALID outside of a job, -PENSTOCK_E_NOT_FOUND if the run was never submitted,
 * -PENSTOCK_E_EXISTS if a later submission replaces this job. */
int slurm_allocation_enter(struct slurm_allocation *allocation, const char *home, const char *id,
	struct penstock_error *err);
/* Starts a thread that signals this process when a task gets a notice. */
int slurm_allocation_watch(struct slurm_allocation *allocation, struct penstock_error *err);
/* Describes a signal to the batch job, and the time that is left. */
void slurm_describe(const struct slurm_allocation *allocation, int signal, struct notice *notice);
/* Makes the job run again: requeues the job if Slurm allows a requeue, else submits it again.
 * Leaves the decision to Slurm if Slurm has ended the job. The text is for display. */
int slurm_allocation_requeue(
	struct slurm_allocation *allocation, struct buf *text, struct penstock_error *err);
/* Removes the copies of inputs on the disks of the nodes. */
void slurm_allocation_sweep(const struct slurm_allocation *allocation);
void slurm_allocation_leave(struct slurm_allocation *allocation);

#endif
