/*
 * Runs as batch jobs of Slurm. Nothing here links with Slurm: its commands are run, with options that 20.11 and later
 * know, and what they print is read.
 *
 * On the machine where somebody says `penstock run --on slurm`:
 *	slurm_submit(&(struct slurm_submission){ .home = home, .id = id, ... }, &job, err);
 *	slurm_status_read(job.job, &status, err);    pending and why, running, gone
 *	slurm_signal(job.job, SIGINT, err);          as a signal to the supervisor; slurm_cancel() where there is none yet
 * In the batch job, whose script is penstock itself:
 *	slurm_allocation_enter(&allocation, home, id, err);   then run_execute() with options.slurm
 *	slurm_allocation_go_on(&allocation, err);             after a preemption: requeued, or submitted anew
 *
 * HOME/runs/ID/slurm keeps which job it is and how it was submitted, HOME/runs/ID/slurm-JOB.out what was printed beside the run's
 * own log. The home has to be on a file system that the nodes share.
 */
#ifndef RUN_SLURM_SLURM_H
#define RUN_SLURM_SLURM_H

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
 * Runs one and appends what it prints. PENSTOCK_E_UNAVAILABLE: it is not there (the message says what to do), or it failed:
 * the message is its own line. PENSTOCK_E_CANCELLED: it was killed. PENSTOCK_E_TIMEOUT: it did not end, and what it was told may
 * have been done. Variables that change what it prints or filters (SQUEUE_USERS, SLURM_TIME_FORMAT) are kept from it, and from
 * sbatch and srun what tells of a job around us.
 */
int slurm_command(const char *const *argv, struct buf *out, struct penstock_error *err);
/* Becomes it, with our standard streams and such an environment: returns only where it cannot. */
int slurm_become(const char *const *argv, struct penstock_error *err);
/* The same error where it is not on PATH at all. */
int slurm_need(const char *program, struct penstock_error *err);

/* ---- the record of a run's job ---- */

#define SLURM_JOB_SIZE 32 /* digits, and ";cluster" where there are several */

struct slurm_job {
	char job[SLURM_JOB_SIZE]; /* "" : it is being submitted, or that was not lived to see */
	int attempt;		  /* that was recorded with the submission */
	bool fresh, resume;	  /* as was asked for with it; only of its first start */
	/*
	 * The last submission, counted from 1 and written before sbatch is run. The script of each has its own number: a job of an
	 * earlier one, which somebody thought was gone, begins nothing.
	 */
	int submissions;
	char *node_dir; /* owned; a directory on a disk of each node, for inputs; NULL: they are read from the home */
	struct strlist options; /* of sbatch, after which the script follows */
};
/* PENSTOCK_E_NOT_FOUND: the run was never submitted. */
int slurm_job_read(
	struct slurm_job *job, const char *home, const char *id, struct penstock_error *err);
int slurm_job_write(
	const struct slurm_job *job, const char *home, const char *id, struct penstock_error *err);
void slurm_job_release(struct slurm_job *job);
/* $PENSTOCK_SLURM_NODE_DIR, else what the configuration says (may be NULL). Frees what is there. */
int slurm_job_set_node_dir(
	struct slurm_job *job, const char *configured, struct penstock_error *err);

/* ---- what Slurm knows of it ---- */

struct slurm_status {
	bool known;	  /* false: Slurm has forgotten it, which it does minutes after its end */
	bool lives;	  /* it is pending, or has begun and not ended */
	bool pending;	  /* it has no nodes (yet, or again) */
	bool held;	  /* it is pending, and will be until somebody releases it */
	bool max_requeue; /* it is held because it was requeued too often */
	char state[32];	  /* "PENDING", "RUNNING", … */
	char reason[128]; /* "Priority", "Resources", … */
	char nodes[256];  /* their list; "" : none */
	int64_t end_s;	  /* Unix time when it has to end; 0: not known */
};
/* `id` is the run's: a job that has got the number of one that is forgotten is not taken for it. */
int slurm_status_read(
	const char *job, const char *id, struct slurm_status *status, struct penstock_error *err);
/* The same from a line of squeue with SLURM_STATUS_FORMAT. False: it is none. */
#define SLURM_STATUS_FORMAT "--format=%T|%r|%N|%e|%o"
/* The same behind the number of the job and a bar. */
#define SLURM_LIST_FORMAT "--format=%i|%T|%r|%N|%e|%o"
bool slurm_status_parse(const char *line, const char *id, struct slurm_status *status);

/* To the supervisor of a job that has begun. */
int slurm_signal(const char *job, const char *signal, struct penstock_error *err);
/* Ends it, wherever it is. */
int slurm_cancel(const char *job, struct penstock_error *err);

/* ---- submitting ---- */

struct slurm_submission {
	const char *home, *id;
	const struct workflow *workflow;
	const struct strlist *options; /* of the user, behind ours */
};
/* What a cluster cannot do for a step: PENSTOCK_E_INVALID, with the override that does without. */
int slurm_check(const struct workflow *workflow, struct penstock_error *err);
/* The options of sbatch for it: ours, then the user's. */
int slurm_options(const struct slurm_submission *submission, struct strlist *options,
	struct penstock_error *err);
/* Until the descriptor is closed nobody else submits this run; waits for its turn. Negative: an error. */
int slurm_submission_lock(const char *home, const char *id, struct penstock_error *err);
/*
 * Submits the script of the run with `job->options`; `job->job` and its record say what it is now. The caller has the lock, and
 * has read or written the record since.
 */
int slurm_submit(
	struct slurm_job *job, const char *home, const char *id, struct penstock_error *err);
/* The same, unless somebody was quicker since `job` was read: then it is read anew, and 1 is the answer. */
int slurm_submit_again(
	struct slurm_job *job, const char *home, const char *id, struct penstock_error *err);

/* ---- within the job ---- */

struct slurm_allocation {
	char *home, *id; /* owned */
	struct slurm_job job;
	int n_nodes;
	int restarts;		 /* of this job by Slurm */
	int requeues;		 /* of these, after which it is submitted anew instead */
	int64_t end_s;		 /* Unix time when the job has to be over; 0: never */
	int kill_wait_s;	 /* from SIGTERM to SIGKILL; 0: not known */
	bool preemption_cancels; /* in this partition, instead of requeueing */
	int grace_s;		 /* of a preemption in this partition; 0: none */
	char *notice; /* a file in which the tasks say that Slurm wants them to end; owned */
	pthread_t watcher;
	int quit_fd; /* -1: nobody watches */
};
/* Reads where we are, and takes the run's record for this job. PENSTOCK_E_INVALID: this is no batch job of the run. */
int slurm_allocation_enter(struct slurm_allocation *allocation, const char *home, const char *id,
	struct penstock_error *err);
/* From now on what the tasks hear counts as a signal to this process. */
int slurm_allocation_watch(struct slurm_allocation *allocation, struct penstock_error *err);
/* What a signal to the batch job means, and how long there is. */
void slurm_describe(const struct slurm_allocation *allocation, int signal, struct notice *notice);
/* So that the job is run again: requeued where Slurm allows it, else submitted once more. The text is for people. */
int slurm_allocation_go_on(
	struct slurm_allocation *allocation, struct buf *text, struct penstock_error *err);
/* Removes what the tasks have left on the disks of the nodes. */
void slurm_allocation_sweep(const struct slurm_allocation *allocation);
void slurm_allocation_leave(struct slurm_allocation *allocation);

#endif
