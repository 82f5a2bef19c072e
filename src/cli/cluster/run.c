/* Submits a run to Slurm, follows it and stops it. */
#include "cli/cluster/cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process/process.h"
#include "cli/print/follow.h"
#include "records/supervisor.h"
#include "records/layout.h"
#include "run/run.h"
#include "run/cluster/slurm.h"

enum {
	CHECK_MS = 200, /* between two checks of the log and the records */
	ASK_MS = 500, /* between the first two calls to Slurm; grows, to spare the controller */
	ASK_MAX_MS = 15000,
	PATIENCE_MS = 60000, /* timeout for a controller that does not respond */
	SETTLE_MS = 1000, /* time for a job's records to become visible after its end */
	SETTLE_FAR_MS = 15000, /* like SETTLE_MS, on a network file system */
};

/* Returns true if a process is running sbatch for the run. */
static bool is_submitting(const char *home, const char *id)
{
	_cleanup_free_ char *path = run_path(home, id, RUN_FILE_SLURM_LOCK);
	_cleanup_close_ int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	return fd >= 0 && fs_lock_held(fd);
}

/* ---- submitting ---- */

/*
 * Refuses to submit the run if a job of an earlier submission is pending or running. The run's
 * lock cannot show a pending job, because no process holds the lock yet. Also refuses if Slurm
 * does not answer. A job whose attempt has ended, or whose state is COMPLETING, is allowed: Slurm
 * may requeue the job, but the requeued job starts nothing, because the run has a later
 * submission.
 */
static int refuse_if_alive(const struct records_attempt *last, const char *home, const char *id,
	int *submissions, struct penstock_error *err)
{
	_cleanup_(slurm_job_release) struct slurm_job job = {0};
	struct slurm_status status = {0};
	int r = 0;

	if (slurm_job_read(&job, home, id, NULL) < 0)
		return 0;
	*submissions = job.submissions;
	/* If the run continued on this machine, the job may still be pending. */
	if (last->attempt >= job.attempt && run_state_is_over(last->state) &&
		!slurm_job_is_left(home, id))
		return 0;
	if (job.job[0])
		r = slurm_status_read(job.job, id, &status, err);
	if (r < 0)
		error_prefix(err,
			"cannot determine whether run '%s' is still running as Slurm job %s", id,
			job.job);
	else if (status.lives && strcmp(status.state, "COMPLETING") != 0)
		r = error_set(err, PENSTOCK_E_EXISTS,
			"cannot start run '%s': it is live (Slurm job %s, %s: %s); wait for it, or "
			"stop it with 'penstock stop %s'",
			id, job.job, status.state, status.reason, id);
	return r;
}

/* Refuses to overwrite output that has no other copy. The job would refuse to do so, too, but only
 * after Slurm has given nodes to the job. */
static int refuse_if_unflushed(const struct records_attempt *last,
	const struct run_options *options, const char *id, struct penstock_error *err)
{
	if (options->resume || options->fresh || !last->unflushed ||
		!run_state_is_over(last->state))
		return 0;
	return error_set(err, PENSTOCK_E_EXISTS,
		"cannot start run '%s' again: its output was not uploaded; 'penstock flush %s' "
		"uploads the output, --fresh starts over and leaves the output in '%s/runs/%s'",
		id, id, options->home, id);
}

static int submit(const struct run_options *options, const struct cluster *cluster, const char *id,
	struct slurm_job *job, struct penstock_error *err)
{
	_cleanup_free_ char *dir = run_path(options->home, id, RUN_FILE_DIR);
	_cleanup_free_ char *lock = run_path(options->home, id, RUN_FILE_LOCK);
	_cleanup_(records_attempt_release) struct records_attempt last = {0};
	_cleanup_close_ int fd = -1, turn = -1;
	int r = slurm_need("sbatch", err);

	if (r == 0)
		r = run_check_same_file(options, id, err);
	if (r < 0)
		return r;
	if (!dir || !lock)
		return error_memory(err);
	r = fs_mkdirs(dir, 0700, err);
	if (r == 0)
		turn = slurm_submission_lock(options->home, id, err);
	if (r == 0 && turn < 0)
		r = turn;
	if (r == 0)
		r = supervisor_begin(lock, id, &fd, err);
	if (r == 0)
		records_last_attempt(options->records, id, &last, NULL);
	if (r == 0)
		r = refuse_if_alive(&last, options->home, id, &job->submissions, err);
	if (r == 0)
		r = refuse_if_unflushed(&last, options, id, err);
	if (r == 0)
		r = slurm_options(&(struct slurm_submission){.home = options->home,
					  .id = id,
					  .workflow = options->workflow,
					  .options = &cluster->options},
			&job->options, err);
	if (r == 0)
		r = slurm_job_set_node_dir(job, cluster->node_dir, err);
	job->fresh = options->fresh;
	job->resume = options->resume;
	job->keep_context = options->keep_context;
	if (r == 0)
		r = run_record_elsewhere(options, id, &job->attempt, err);
	if (r == 0)
		r = slurm_job_write(job, options->home, id, err);
	if (r < 0)
		return r;
	close(take_fd(fd)); /* release the lock: the job may start at once, and takes it */
	r = slurm_submit(job, options->home, id, err);
	if (r < 0)
		records_end(options->records, id, job->attempt,
			&(struct records_end){.state = RUN_FAILED,
				.class = RUN_CLASS_NODE,
				.exit_code = CLI_EXIT_UNAVAILABLE,
				.message = err->message},
			NULL);
	return r;
}

int cluster_run(
	const struct cli *cli, const struct run_options *options, const struct cluster *cluster)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(slurm_job_release) struct slurm_job job = {0};
	char id[RECORDS_ID_SIZE];
	int code = 0;
	int r = 0;

	if (options->id)
		snprintf(id, sizeof(id), "%s", options->id);
	else
		r = run_identity(options->workflow, id, &err);
	if (r == 0)
		r = run_check_elsewhere(options->workflow, &err);
	if (r == 0)
		r = slurm_check(options->workflow, &err);
	if (r == 0)
		r = submit(options, cluster, id, &job, &err);
	if (r < 0) {
		bool live = err.code == PENSTOCK_E_EXISTS;
		bool mistakes = err.code == PENSTOCK_E_INVALID;

		code = cli_fail(cli, &err);
		return live ? CLI_EXIT_UNAVAILABLE : mistakes ? CLI_EXIT_WORKFLOW : code;
	}
	if (!cli_quiet(cli))
		log_info("run %s is Slurm job %s", id, job.job);
	if (cli_has(cli, "detach")) {
		printf("%s\n", id);
		return 0;
	}
	r = cluster_follow(cli, options->records, options->home, id,
		&(struct follow){.fd = -1, .lines = -1}, &code, &err);
	return r < 0 ? cli_fail(cli, &err) : code;
}

/* ---- following ---- */

struct following {
	const struct cli *cli;
	struct records *records;
	const char *home, *id;
	int first_attempt; /* first attempt of the submission */
	int attempt; /* attempt whose log is followed; 0 before the first one */
	struct follow log;
	struct run_layout layout; /* layout of `attempt` */
	int signal_fd;
	char shown[192]; /* the last status that was reported */
	int64_t ask_at_ms; /* time of the next call to Slurm */
	int64_t ask_ms; /* interval after that call */
	int64_t settle_ms;
	/* time at which Slurm first reported the end of the job; 0 if Slurm has not reported it */
	int64_t ended_at_ms;
	int said_attempt; /* the last attempt that was seen as preempted; 0 before the first */
};

static void say_status(struct following *f, const char *job, const struct slurm_status *status)
{
	char text[192];

	snprintf(
		text, sizeof(text), "%s %s", job, status->pending ? status->reason : status->state);
	if (strcmp(text, f->shown) == 0 || cli_quiet(f->cli) || strcmp(status->reason, "None") == 0)
		return;
	snprintf(f->shown, sizeof(f->shown), "%s", text);
	if (status->pending)
		log_info("Slurm job %s is pending (%s)%s", job, status->reason,
			status->held ? "; 'scontrol release' releases it, if you have permission"
				     : "");
	else
		log_debug("Slurm job %s: %s on %s", job, status->state, status->nodes);
}

/* Sets `line` to ": " and the last line of the output that the batch script wrote outside of the
 * run's log, or to "" if the file is empty. */
static void last_words(const struct following *f, const char *job, char line[static 400])
{
	_cleanup_free_ char *dir = run_path(f->home, f->id, RUN_FILE_DIR);
	_cleanup_free_ char *path = dir ? str_printf("%s/slurm-%s.out", dir, job) : NULL;
	_cleanup_(buf_release) struct buf text = BUF_INIT(64 * KIB);
	const char *at;

	*line = '\0';
	if (!path || fs_read(path, &text, NULL) < 0)
		return;
	for (at = buf_str(&text); *at;) {
		size_t len = strcspn(at, "\n");

		if (len)
			snprintf(line, 400, ": %.*s", (int)(len < 390 ? len : 390), at);
		at += len + (at[len] == '\n');
	}
}

/* Records the end of a run whose Slurm job ended before the job's penstock recorded an end. */
static int record_gone(struct following *f, const struct slurm_job *job,
	const struct slurm_status *status, const struct records_attempt *last)
{
	bool begun = last->pid != 0;
	bool cancelled = str_starts(status->state, "CANCELLED");
	struct records_end end = {
		.state = begun	     ? RUN_LOST
			 : cancelled ? RUN_STOPPED
				     : RUN_FAILED,
		.class = cancelled ? RUN_CLASS_USER : RUN_CLASS_NODE,
		.exit_code = cancelled ? 130 : CLI_EXIT_UNAVAILABLE,
	};
	_cleanup_free_ char *message = NULL;
	char words[400];

	last_words(f, job->job, words);
	end.message = message = str_printf("Slurm job %s ended (%s)%s%s%s%s", job->job,
		status->known ? status->state : "no longer known to Slurm",
		*status->nodes ? " on " : "", status->nodes,
		begun		      ? "; the same command resumes the run"
		: cancelled || *words ? ""
				      : "; check that the nodes share PENSTOCK_HOME",
		words);
	records_end(f->records, f->id, last->attempt, &end, NULL);
	log_error("run %s %s: %s", f->id, run_state_name(end.state), message ? message : "");
	return end.exit_code;
}

/* Replaces a job that Slurm holds. If several processes follow the run, only one of them submits
 * the run again. The held job is cancelled last: after the new submission it can start nothing. */
static int replace_held(
	const struct following *f, struct slurm_job *job, struct penstock_error *err)
{
	char held[SLURM_JOB_SIZE];
	int r;

	snprintf(held, sizeof(held), "%s", job->job);
	r = slurm_submit_again(job, f->home, f->id, err);
	if (r != 0)
		return r < 0 ? r : 0;
	log_info("Slurm holds job %s because it was requeued too often; the run continues as job "
		 "%s",
		held, job->job);
	slurm_cancel(held, NULL);
	return 0;
}

/* Sets `*ended` if Slurm will not continue the run; `*code` is then the exit code of the run. */
static int ask_slurm(struct following *f, const struct records_attempt *last, bool *ended,
	int *code, struct penstock_error *err)
{
	int64_t now = clock_monotonic_ms();
	_cleanup_(slurm_job_release) struct slurm_job job = {0};
	struct slurm_status status = {0};
	int r;

	if (now < f->ask_at_ms)
		return 0;
	f->ask_at_ms = now + f->ask_ms;
	f->ask_ms = f->ask_ms * 3 / 2 < ASK_MAX_MS ? f->ask_ms * 3 / 2 : ASK_MAX_MS;
	r = slurm_job_read(&job, f->home, f->id, err);
	if (r < 0)
		return r;
	/* Retry later if the controller does not respond, because the job may be live, or if the
	 * run is still being submitted. */
	if (job.job[0] ? slurm_status_read(job.job, f->id, &status, NULL) < 0
		       : is_submitting(f->home, f->id))
		return 0;
	if (status.max_requeue) {
		r = replace_held(f, &job, err);
	} else if (status.lives) {
		f->ended_at_ms = 0;
		say_status(f, job.job, &status);
	} else if (!f->ended_at_ms) {
		f->ended_at_ms = now; /* the job's last writes may not be visible yet */
		f->ask_at_ms = now + ASK_MS;
		f->ask_ms = ASK_MS;
	} else if (last->state == RUN_PREEMPTED || now - f->ended_at_ms >= f->settle_ms) {
		*ended = true;
		*code = last->state == RUN_PREEMPTED ? last->exit_code
						     : record_gone(f, &job, &status, last);
	}
	return r;
}

/* Waits up to `wait_ms` for a signal, which ends the output of the log, but not the run. Returns
 * 128+n for signal n, or 0. */
static int wait_for_signal(struct following *f, int wait_ms)
{
	struct pollfd fd = {f->signal_fd, POLLIN, 0};
	struct signalfd_siginfo info;

	if (poll(&fd, 1, wait_ms) <= 0 ||
		read(f->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return 0;
	log_info("run %s continues; 'penstock logs -f %s' follows it again, 'penstock stop %s' "
		 "stops it",
		f->id, f->id, f->id);
	return 128 + (int)info.ssi_signo;
}

/* Returns true if the run's directory has no job file. `penstock rm` removes the directory before
 * the record. */
static bool was_removed(const struct following *f)
{
	_cleanup_free_ char *job = run_path(f->home, f->id, RUN_FILE_SLURM);

	return job && access(job, F_OK) < 0 && errno == ENOENT;
}

static int check(struct following *f, bool *ended, int *code, struct penstock_error *err)
{
	_cleanup_(records_attempt_release) struct records_attempt last = {0};
	int r = records_last_attempt(f->records, f->id, &last, NULL);

	if (r == -(int)PENSTOCK_E_NOT_FOUND && was_removed(f))
		return error_set(
			err, PENSTOCK_E_NOT_FOUND, "cannot follow run '%s': it was removed", f->id);
	/* While the job's penstock replaces the queued attempt, the records lack this attempt for a
	 * moment. */
	if (r < 0 || last.attempt < f->first_attempt)
		return 0;
	if (last.pid && last.attempt != f->attempt) {
		bool next = f->attempt != 0;

		if (next)
			r = follow_print(&f->log, err); /* the end of the previous attempt's log */
		follow_close(&f->log);
		run_layout_release(&f->layout);
		f->layout = (struct run_layout){0};
		f->attempt = last.attempt;
		if (r == 0)
			r = run_layout_init(&f->layout, f->home, f->id, last.attempt, err);
		f->log.path = f->layout.log;
		f->log.lines = next ? -1 : f->log.lines;
	}
	if (r == 0 && last.pid)
		r = follow_print(&f->log, err);
	/* A lost run looks live, too, while 'penstock rm' holds the lock of the run. */
	if (r < 0 || run_state_is_live(last.state)) {
		f->ask_ms = ASK_MS;
		f->ended_at_ms = 0;
	} else if (last.state == RUN_LOST || last.state == RUN_PREEMPTED) {
		if (last.state == RUN_PREEMPTED && f->said_attempt != last.attempt) {
			f->said_attempt = last.attempt;
			f->ask_ms = ASK_MS;
		}
		r = ask_slurm(f, &last, ended, code, err);
	} else {
		*ended = true;
		*code = last.exit_code;
		/* The log that was printed has the message, unless the attempt has no log, or its
		 * end was recorded after its penstock had exited. */
		if (last.message && (!last.pid || f->said_attempt == last.attempt))
			log_error("run %s %s: %s", f->id, run_state_name(last.state), last.message);
	}
	return r;
}

int cluster_follow(const struct cli *cli, struct records *records, const char *home, const char *id,
	const struct follow *how, int *code, struct penstock_error *err)
{
	struct following f = {
		.cli = cli,
		.records = records,
		.home = home,
		.id = id,
		.ask_ms = ASK_MS,
		.log = *how,
		.settle_ms = fs_is_network(home) ? SETTLE_FAR_MS : SETTLE_MS,
	};
	_cleanup_(slurm_job_release) struct slurm_job job = {0};
	bool ended = false;
	sigset_t set;
	int r = slurm_job_read(&job, home, id, err);

	if (r < 0)
		return r;
	f.first_attempt = job.attempt;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	if (!process_ignores(SIGHUP))
		sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	f.signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (f.signal_fd < 0)
		return error_errno(err, errno, "cannot watch for signals");
	while (r == 0 && !ended) {
		r = check(&f, &ended, code, err);
		if (r == 0 && !ended) {
			*code = wait_for_signal(&f, CHECK_MS);
			ended = *code != 0;
		}
	}
	follow_close(&f.log);
	run_layout_release(&f.layout);
	close(f.signal_fd);
	return r;
}

/* ---- ending ---- */

/* Stops a run that is not running: cancels its pending job, if there is one, and records the end of
 * the run. */
static int stop_waiting(struct records *records, const struct records_run *run, const char *job,
	struct penstock_error *err)
{
	_cleanup_free_ char *message = NULL;
	const char *when = run->last.pid ? "resumed" : "began";
	int r = *job ? slurm_cancel(job, err) : 0;

	if (r < 0)
		return r;
	message = *job ? str_printf("Slurm job %s was cancelled before it %s", job, when)
		       : strdup("the submission to Slurm did not finish");
	/* Ignore an error: if the job has started after all, its penstock has recorded another
	 * attempt or the end of this one. */
	records_end_waiting(records, run->id, run->last.attempt,
		&(struct records_end){.state = RUN_STOPPED,
			.class = RUN_CLASS_USER,
			.exit_code = 130,
			.message = message},
		NULL);
	return 0;
}

int cluster_stop(const struct cli *cli, struct records *records, const char *home,
	const struct records_run *run, int64_t grace_ms, struct penstock_error *err)
{
	int64_t insist_at = clock_monotonic_ms() + grace_ms;
	bool reported = false, asked = false, insisted = false;
	int64_t pause_ms = CHECK_MS;
	int64_t patient_until = clock_monotonic_ms() + PATIENCE_MS;

	for (;;) {
		_cleanup_(slurm_job_release) struct slurm_job job = {0};
		struct slurm_status status = {0};
		const char *number = job.job;
		int r = slurm_job_read(&job, home, run->id, err);

		if (r < 0)
			return r;
		if (!*number && !is_submitting(home, run->id))
			return stop_waiting(records, run, number, err);
		/* Retry while the controller is busy or the run is being submitted. */
		if (!*number || slurm_status_read(number, run->id, &status, err) < 0) {
			if (clock_monotonic_ms() >= patient_until)
				return *number ? -(int)PENSTOCK_E_UNAVAILABLE
					       : error_set(err, PENSTOCK_E_UNAVAILABLE,
							 "cannot stop run '%s': it is still being "
							 "submitted to Slurm",
							 run->id);
			penstock_error_release(err);
			clock_sleep_ms(pause_ms);
			continue;
		}
		patient_until = clock_monotonic_ms() + PATIENCE_MS;
		if (!status.lives || (asked && strcmp(status.state, "COMPLETING") == 0))
			return asked ? 0
				     : error_set(err, PENSTOCK_E_NOT_FOUND,
					       "cannot stop run '%s': it is not live", run->id);
		if (status.pending)
			return stop_waiting(records, run, number, err);
		/* Wait until the penstock of the job holds the lock: before that, the job would not
		 * receive the signal. */
		if (!asked && supervisor_lives(home, run->id)) {
			r = slurm_signal(number, "INT", err);
			asked = r == 0;
		} else if (asked && !records_before_flush(records, run->id)) {
			if (!reported && !cli_quiet(cli))
				log_info("completing the output");
			reported = true;
		} else if (asked && !insisted && clock_monotonic_ms() >= insist_at) {
			slurm_signal(number, "INT", NULL);
			insisted = true;
		}
		if (r < 0)
			return r;
		clock_sleep_ms(pause_ms);
		pause_ms = pause_ms * 3 / 2 < 5000 ? pause_ms * 3 / 2 : 5000;
	}
}

int cluster_hold(
	struct records *records, const char *home, const char *id, struct penstock_error *err)
{
	_cleanup_(records_attempt_release) struct records_attempt last = {0};
	_cleanup_close_ int turn = slurm_submission_lock(home, id, err);
	int submissions;
	int r = turn < 0 ? turn : records_last_attempt(records, id, &last, err);

	if (error_expected(r, PENSTOCK_E_NOT_FOUND, err))
		return take_fd(turn);
	if (r == 0)
		r = refuse_if_alive(&last, home, id, &submissions, err);
	return r < 0 ? r : take_fd(turn);
}

int cluster_cancel_left(const char *home, const char *id, struct penstock_error *err)
{
	_cleanup_(slurm_job_release) struct slurm_job job = {0};
	struct slurm_status status = {0};
	int r;

	if (!slurm_job_is_left(home, id) || slurm_job_read(&job, home, id, NULL) < 0 || !job.job[0])
		return 0;
	r = slurm_status_read(job.job, id, &status, err);
	if (r == 0 && status.pending)
		r = slurm_cancel(job.job, err);
	return r < 0 ? error_prefix(err, "cannot cancel Slurm job %s of run '%s'", job.job, id) : 0;
}
