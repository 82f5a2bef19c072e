/* The batch job of a run: its identity, the notices of its tasks, and its restart. */
#include "run/cluster/slurm.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/thread.h"
#include "run/notices/notice.h"
#include "records/layout.h"

enum {
	POLL_MS = 500,
	MAX_REQUEUE = 5, /* Slurm's default */
	TIME_LIMIT_S = 180, /* a signal this close to the end of the job announces the end */
};

static int number_of(const char *name)
{
	const char *text = str_env(name);
	uint64_t value;

	return text && str_to_u64(text, 0, INT32_MAX, &value) ? (int)value : 0;
}

/* Finds the end time of the job, which the tasks get as $PENSTOCK_DEADLINE. Slurm before 23.02 does
 * not set $SLURM_JOB_END_TIME, so squeue is run. */
static void find_end(struct slurm_allocation *allocation, const char *job)
{
	const char *given = str_env("SLURM_JOB_END_TIME");
	struct slurm_status status = {0};
	char text[24];

	if (given) {
		allocation->end_s = strtoll(given, NULL, 10);
		return;
	}
	if (slurm_status_read(job, allocation->id, &status, NULL) < 0 || !status.end_s)
		return;
	snprintf(text, sizeof(text), "%lld", (long long)status.end_s);
	allocation->end_s = status.end_s;
	setenv("SLURM_JOB_END_TIME", text, 1);
}

/* Returns the positive number after `key` and "=" in the output of scontrol, or 0. */
static int seconds_of(const char *text, const char *key)
{
	const char *found = strstr(text, key);
	int value;

	found = found ? strchr(found, '=') : NULL;
	return found && sscanf(found, "= %d", &value) == 1 && value > 0 ? value : 0;
}

void slurm_describe(const struct slurm_allocation *allocation, int signal, struct notice *notice)
{
	int64_t left_s = allocation->end_s - clock_wall_ns() / NS_PER_S;

	if (allocation->end_s && left_s < TIME_LIMIT_S) {
		notice_set(notice, "slurm", "the time limit of the job");
		notice_set_lead(notice, (left_s > 1 ? left_s : 1) * 1000);
	} else if (signal == SIGTERM) { /* SIGKILL is next */
		notice_set(notice, "slurm", "the job is being ended");
		if (allocation->kill_wait_s)
			notice_set_lead(notice, (int64_t)allocation->kill_wait_s * 1000);
	} else {
		notice_set(notice, "slurm", "preemption");
		if (allocation->grace_s)
			notice_set_lead(notice, (int64_t)allocation->grace_s * 1000);
	}
}

/* Checks that the record belongs to this job, or assigns it to this job: the job may have started
 * before the reply of sbatch was recorded. */
static int take_record(
	struct slurm_allocation *allocation, const char *job, struct penstock_error *err)
{
	struct slurm_job *record = &allocation->job;
	int submission = number_of("PENSTOCK_SLURM_SUBMISSION");
	size_t len = strcspn(record->job, ";");

	if (submission && submission != record->submissions)
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot start run '%s' in job %s: it was submitted again (job %s)",
			allocation->id, job, *record->job ? record->job : "not yet known");
	if (strlen(job) == len && strncmp(record->job, job, len) == 0) {
		record->job[len] = '\0'; /* within the job its cluster is the default */
		return 0;
	}
	snprintf(record->job, sizeof(record->job), "%s", job);
	return slurm_job_write(record, allocation->home, allocation->id, err);
}

int slurm_allocation_enter(struct slurm_allocation *allocation, const char *home, const char *id,
	struct penstock_error *err)
{
	const char *job = str_env("SLURM_JOB_ID");
	int r;

	*allocation = (struct slurm_allocation){.quit_fd = -1};
	if (!job || strlen(job) >= SLURM_JOB_SIZE)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot use --in-allocation: $SLURM_JOB_ID is not set; the option is for "
			"the batch job of 'penstock run --on slurm'");
	r = slurm_job_read(&allocation->job, home, id, err);
	if (r < 0)
		return error_prefix(err, "cannot read the Slurm job of run '%s'", id);
	allocation->home = strdup(home);
	allocation->id = strdup(id);
	allocation->n_nodes = number_of("SLURM_JOB_NUM_NODES");
	if (allocation->n_nodes < 1)
		allocation->n_nodes = 1;
	allocation->restarts = number_of("SLURM_RESTART_COUNT");
	allocation->notice = run_path(home, id, RUN_FILE_SLURM_NOTICE);
	if (!allocation->home || !allocation->id || !allocation->notice)
		return error_memory(err);
	r = take_record(allocation, job, err);
	if (r < 0)
		return r;
	find_end(allocation, job);
	/* Read the grace periods and the number of requeues that the site allows. */
	_cleanup_(buf_release) struct buf config = BUF_INIT(LIMIT_SLURM_REPLY),
					  partition = BUF_INIT(LIMIT_SLURM_REPLY);
	const char *name = str_env("SLURM_JOB_PARTITION");
	const char *given = str_env("PENSTOCK_SLURM_REQUEUES");
	uint64_t wanted;

	slurm_command((const char *const[]){"scontrol", "show", "config", NULL}, &config, NULL);
	if (name)
		slurm_command((const char *const[]){"scontrol", "show", "partition", name, NULL},
			&partition, NULL);
	allocation->kill_wait_s = seconds_of(buf_str(&config), "KillWait");
	allocation->grace_s = seconds_of(buf_str(&partition), "GraceTime");
	allocation->preemption_cancels = strstr(buf_str(&partition), "PreemptMode=CANCEL") != NULL;
	allocation->requeues = seconds_of(buf_str(&config), "MaxBatchRequeue");
	allocation->requeues = (allocation->requeues ? allocation->requeues : MAX_REQUEUE) - 1;
	if (given && str_to_u64(given, 0, INT32_MAX, &wanted))
		allocation->requeues = (int)wanted;
	return 0;
}

/* ---- notices of the tasks ---- */

/* Returns true if the file has contents. Opens the file each time, because network file systems
 * revalidate a file when it is opened. */
static bool has_notice(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	char byte;

	return fd >= 0 && read(fd, &byte, 1) == 1;
}

static void *watch(void *cookie)
{
	const struct slurm_allocation *allocation = cookie;
	struct pollfd quit = {allocation->quit_fd, POLLIN, 0};

	while (poll(&quit, 1, POLL_MS) == 0) {
		if (!has_notice(allocation->notice))
			continue;
		kill(getpid(), SIGUSR1);
		break;
	}
	return NULL;
}

int slurm_allocation_watch(struct slurm_allocation *allocation, struct penstock_error *err)
{
	int r = fs_write_atomic(allocation->notice, "", 0, 0600, err);

	if (r < 0)
		return r;
	allocation->quit_fd = eventfd(0, EFD_CLOEXEC);
	if (allocation->quit_fd < 0)
		return error_errno(err, errno, "cannot watch the tasks");
	r = thread_start(&allocation->watcher, "slurm", watch, allocation, err);
	if (r < 0)
		close(take_fd(allocation->quit_fd));
	return r;
}

static void stop_watching(struct slurm_allocation *allocation)
{
	uint64_t one = 1;

	if (allocation->quit_fd < 0)
		return;
	if (write(allocation->quit_fd, &one, sizeof(one)) == (ssize_t)sizeof(one))
		pthread_join(allocation->watcher, NULL);
	close(take_fd(allocation->quit_fd));
}

void slurm_allocation_leave(struct slurm_allocation *allocation)
{
	stop_watching(allocation);
	slurm_job_release(&allocation->job);
	free(allocation->home);
	free(allocation->id);
	free(allocation->notice);
}

/* ---- running the job again ---- */

static int requeue(struct slurm_allocation *allocation, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_SLURM_REPLY);
	struct slurm_status status;
	int r = slurm_command(
		(const char *const[]){"scontrol", "requeue", allocation->job.job, NULL}, &out, err);

	/* Requeueing ends this job, possibly before scontrol, which is a process of the job, has
	 * finished. */
	if (r == -(int)PENSTOCK_E_CANCELLED)
		return 0;
	if (r < 0 && slurm_status_read(allocation->job.job, allocation->id, &status, NULL) == 0 &&
		(status.pending || strcmp(status.state, "COMPLETING") == 0))
		return 0;
	return r;
}

/* Returns true if the job was preempted on a partition where preemption cancels jobs: Slurm then
 * never requeues the job. While the job completes, squeue does not show such a preemption. */
static bool was_cancelled_by_preemption(const struct slurm_allocation *allocation)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_SLURM_REPLY);
	const char *when;

	if (!allocation->preemption_cancels ||
		slurm_command(
			(const char *const[]){"scontrol", "show", "job", allocation->job.job, NULL},
			&text, NULL) < 0)
		return false;
	when = strstr(buf_str(&text), " PreemptTime=");
	return when && isdigit((unsigned char)when[strlen(" PreemptTime=")]);
}

/* Returns true if Slurm has ended the job for good (it was cancelled) or requeues the job, even if
 * squeue does not report that yet. Returns false after the time limit and after a preemption that
 * cancels jobs: then penstock itself must continue the run. */
static bool is_decided(const struct slurm_allocation *allocation)
{
	struct slurm_status status;

	if (slurm_status_read(allocation->job.job, allocation->id, &status, NULL) < 0 ||
		!status.known)
		return false;
	if (allocation->end_s && clock_wall_ns() / NS_PER_S >= allocation->end_s)
		return false;
	if (!status.pending && !status.lives && strcmp(status.state, "PREEMPTED") == 0)
		return !allocation->preemption_cancels;
	return status.pending || ((!status.lives || strcmp(status.state, "COMPLETING") == 0) &&
					 !was_cancelled_by_preemption(allocation));
}

int slurm_allocation_requeue(
	struct slurm_allocation *allocation, struct buf *text, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	char before[SLURM_JOB_SIZE];
	int r;

	stop_watching(allocation);
	if (is_decided(allocation)) {
		buf_printf(text, "Slurm has ended job %s, and requeues it unless it was cancelled",
			allocation->job.job);
		return 0;
	}
	if (allocation->restarts < allocation->requeues &&
		!was_cancelled_by_preemption(allocation)) {
		r = requeue(allocation, &e);
		if (r == 0) {
			buf_printf(text, "Slurm job %s was requeued", allocation->job.job);
			return 0;
		}
		log_info("%s; submitting the run again instead", e.message);
	}
	snprintf(before, sizeof(before), "%s", allocation->job.job);
	r = slurm_submit_again(&allocation->job, allocation->home, allocation->id, err);
	if (r >= 0)
		buf_printf(text, "Slurm job %s continues as job %s", before, allocation->job.job);
	return r < 0 ? r : 0;
}
