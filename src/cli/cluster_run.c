/* Submitting a run to Slurm, following and ending it. */
#include "cli/cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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
#include "cli/logs_remote.h"
#include "records/supervisor.h"
#include "run/layout.h"
#include "run/run.h"
#include "run/slurm/slurm.h"
#include "base/banned.h"

enum {
	LOOK_MS = 200, /* at what grows */
	ASK_MS = 500,  /* Slurm, at first: longer each time, for its controller serves many */
	ASK_MAX_MS = 15000,
	PATIENCE_MS = 60000,   /* with a controller that does not answer */
	SETTLE_MS = 1000,      /* from the end of a job until its records must be seen here, */
	SETTLE_FAR_MS = 15000, /* and where they are on a network file system */
};

static int no_memory(char **out, struct penstock_error *err)
{
	*out = NULL;
	return error_memory(err);
}

/* Somebody runs sbatch for it just now. */
static bool is_submitting(const char *home, const char *id)
{
	_cleanup_free_ char *path = NULL;
	_cleanup_close_ int fd = -1;

	if (asprintf(&path, "%s/runs/%s/slurm.lock", home, id) < 0) {
		path = NULL;
		return false;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && fs_lock_held(fd);
}

/* ---- submitting ---- */

/*
 * A job of an earlier submission that still waits or runs; nobody holds the lock of one that waits. Where Slurm does not say, nothing
 * is submitted beside it. One that completes may be requeued, but not begin anything after a later submission.
 */
static int refuse_if_alive(
	const char *home, const char *id, int *submissions, struct penstock_error *err)
{
	struct slurm_job job = {0};
	struct slurm_status status = {0};
	int r = 0;

	if (slurm_job_read(&job, home, id, NULL) < 0)
		return 0;
	*submissions = job.submissions;
	if (job.job[0])
		r = slurm_status_read(job.job, id, &status, err);
	if (r < 0)
		error_prefix(
			err, "whether run %s is live as Slurm job %s cannot be told", id, job.job);
	else if (status.lives && strcmp(status.state, "COMPLETING") != 0)
		r = error_set(err, PENSTOCK_E_EXISTS,
			"run %s is live already (Slurm job %s, %s: %s); wait for it, or end it "
			"with "
			"'penstock stop %s'",
			id, job.job, status.state, status.reason, id);
	slurm_job_release(&job);
	return r;
}

/* Output that is nowhere else must not be begun over; the job itself would refuse, but only once it has its nodes. */
static int refuse_if_unflushed(
	const struct cluster_run *spec, const char *id, struct penstock_error *err)
{
	struct records_attempt last = {0};
	bool anew;

	if (records_last_attempt(spec->records, id, &last, NULL) < 0)
		return 0;
	anew = !spec->resume && (last.state == RUN_FAILED || last.state == RUN_STOPPED ||
					last.state == RUN_SUCCEEDED);
	anew = anew && last.unflushed && !spec->fresh;
	records_attempt_release(&last);
	if (!anew)
		return 0;
	return error_set(err, PENSTOCK_E_EXISTS,
		"run %s has output that was not uploaded; 'penstock flush %s' uploads it, --fresh "
		"leaves "
		"it behind in %s/runs/%s",
		id, id, spec->home, id);
}

static int record_queued(const struct cluster_run *spec, const char *id, struct slurm_job *job,
	struct penstock_error *err)
{
	int r = run_record_elsewhere(spec->workflow, spec->home, spec->records, id, spec->shown,
		spec->provenance, &job->attempt, err);

	if (r == 0)
		r = slurm_job_write(job, spec->home, id, err);
	return r;
}

static int submit(const struct cluster_run *spec, const char *id, struct slurm_job *job,
	struct penstock_error *err)
{
	_cleanup_free_ char *dir = NULL;
	_cleanup_free_ char *lock = NULL;
	_cleanup_close_ int fd = -1, turn = -1;
	int r = slurm_need("sbatch", err);

	if (r < 0)
		return r;
	if (asprintf(&dir, "%s/runs/%s", spec->home, id) < 0)
		return no_memory(&dir, err);
	if (asprintf(&lock, "%s/lock", dir) < 0)
		return no_memory(&lock, err);
	r = fs_mkdirs(dir, 0700, err);
	if (r == 0)
		turn = slurm_submission_lock(spec->home, id, err);
	if (r == 0 && turn < 0)
		r = turn;
	if (r == 0)
		r = supervisor_begin(lock, id, &fd, err);
	if (r == 0)
		r = refuse_if_alive(spec->home, id, &job->submissions, err);
	if (r == 0)
		r = refuse_if_unflushed(spec, id, err);
	if (r == 0)
		r = slurm_options(&(struct slurm_submission){.home = spec->home,
					  .id = id,
					  .workflow = spec->workflow,
					  .options = spec->options},
			&job->options, err);
	if (r == 0)
		r = slurm_job_set_node_dir(job, spec->node_dir, err);
	job->fresh = spec->fresh;
	job->resume = spec->resume;
	if (r == 0)
		r = record_queued(spec, id, job, err);
	if (r < 0)
		return r;
	close(take_fd(fd)); /* the job may begin at once, and takes it */
	r = slurm_submit(job, spec->home, id, err);
	if (r < 0)
		records_end(spec->records, id, job->attempt,
			&(struct records_end){.state = RUN_FAILED,
				.class = RUN_CLASS_NODE,
				.exit_code = CLI_EXIT_UNAVAILABLE,
				.message = err->message},
			NULL);
	return r;
}

int cluster_run(const struct cli *cli, const struct cluster_run *spec)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct slurm_job job = {0};
	char id[RECORDS_ID_SIZE];
	char number[SLURM_JOB_SIZE];
	int code = 0;
	int r = 0;

	if (spec->id)
		snprintf(id, sizeof(id), "%s", spec->id);
	else
		r = run_identity(spec->workflow, id, &err);
	if (r == 0)
		r = run_check_elsewhere(spec->workflow, &err);
	if (r == 0)
		r = slurm_check(spec->workflow, &err);
	if (r == 0)
		r = submit(spec, id, &job, &err);
	snprintf(number, sizeof(number), "%s", job.job);
	slurm_job_release(&job);
	if (r < 0) {
		bool live = err.code == PENSTOCK_E_EXISTS;
		bool mistakes = err.code == PENSTOCK_E_INVALID;

		code = cli_fail(cli, &err);
		return live ? CLI_EXIT_UNAVAILABLE : mistakes ? CLI_EXIT_WORKFLOW : code;
	}
	if (!cli_quiet(cli))
		log_info("run %s is Slurm job %s", id, number);
	if (spec->detach) {
		printf("%s\n", id);
		return 0;
	}
	r = cluster_follow(cli, spec->records, spec->home, id, -1, &code, &err);
	return r < 0 ? cli_fail(cli, &err) : code;
}

/* ---- following ---- */

struct following {
	const struct cli *cli;
	struct records *records;
	const char *home, *id;
	int64_t lines;	   /* of the first log, from its end; -1: all */
	int first_attempt; /* of what was submitted */
	int attempt;	   /* whose log is open; 0: none */
	int log_fd;
	int signal_fd;
	char shown[192];   /* what was last said of the job */
	int64_t ask_at_ms; /* Slurm, next */
	int64_t ask_ms;	   /* and again after that */
	int64_t settle_ms;
	int64_t ended_at_ms; /* when Slurm first said that the job has ended; 0: it has not */
	int said_attempt;    /* whose end, which was not the run's, was told */
};

static int copy_log(struct following *f, struct penstock_error *err)
{
	return f->log_fd >= 0 ? logs_copy_rest(f->log_fd, err) : 0;
}

/* That of the attempt that is there now, after the rest of the one before. */
static int turn_to(struct following *f, int attempt, struct penstock_error *err)
{
	_cleanup_(run_layout_release) struct run_layout layout = {0};
	int r = 0;

	if (attempt != f->attempt) {
		r = copy_log(f, err);
		if (f->log_fd >= 0)
			close(f->log_fd);
		f->log_fd = -1;
		f->attempt = attempt;
	}
	if (r == 0 && f->log_fd < 0) {
		r = run_layout_init(&layout, f->home, f->id, attempt, err);
		if (r == 0)
			f->log_fd = open(layout.log, O_RDONLY | O_CLOEXEC);
		if (f->log_fd >= 0 && f->lines >= 0)
			r = logs_seek_to_last(f->log_fd, f->lines, err);
		if (f->log_fd >= 0)
			f->lines = -1;
	}
	return r == 0 ? copy_log(f, err) : r;
}

static void say_status(struct following *f, const char *job, const struct slurm_status *status)
{
	char text[192];

	snprintf(
		text, sizeof(text), "%s %s", job, status->pending ? status->reason : status->state);
	if (strcmp(text, f->shown) == 0 || cli_quiet(f->cli) || strcmp(status->reason, "None") == 0)
		return;
	snprintf(f->shown, sizeof(f->shown), "%s", text);
	if (status->pending)
		log_info("Slurm job %s waits (%s)%s", job, status->reason,
			status->held ? "; 'scontrol release' lets it go on, where you may" : "");
	else
		log_debug("Slurm job %s: %s on %s", job, status->state, status->nodes);
}

/* The last line that the batch script left outside of the run's log; "" : none. */
static void last_words(const struct following *f, const char *job, char line[static 400])
{
	_cleanup_free_ char *path = NULL;
	_cleanup_(buf_release) struct buf text = BUF_INIT(64 * KIB);
	const char *at;

	*line = '\0';
	if (asprintf(&path, "%s/runs/%s/slurm-%s.out", f->home, f->id, job) < 0) {
		path = NULL;
		return;
	}
	if (fs_read(path, &text, NULL) < 0)
		return;
	for (at = buf_str(&text); *at;) {
		size_t len = strcspn(at, "\n");

		if (len)
			snprintf(line, 400, ": %.*s", (int)(len < 390 ? len : 390), at);
		at += len + (at[len] == '\n');
	}
}

/* Slurm has ended it, and its penstock could say nothing: what is known goes on record. */
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
	if (asprintf(&message, "Slurm job %s ended (%s)%s%s%s%s", job->job,
		    status->known ? status->state : "Slurm does not know it any more",
		    *status->nodes ? " on " : "", status->nodes,
		    begun		  ? "; the same command continues it"
		    : cancelled || *words ? ""
					  : "; if PENSTOCK_HOME is not on a file system that the "
					    "nodes share, that is "
					    "why",
		    words) < 0)
		message = NULL;
	end.message = message;
	records_end(f->records, f->id, last->attempt, &end, NULL);
	log_error("run %s %s: %s", f->id, run_state_name(end.state), message ? message : "");
	return end.exit_code;
}

/* Of several who follow it one submits it; only then the held one goes, which would begin nothing any more. */
static int replace_held(
	const struct following *f, struct slurm_job *job, struct penstock_error *err)
{
	char held[SLURM_JOB_SIZE];
	int r;

	snprintf(held, sizeof(held), "%s", job->job);
	r = slurm_submit_again(job, f->home, f->id, err);
	if (r != 0)
		return r < 0 ? r : 0;
	log_info("Slurm holds job %s because it was requeued too often; the run goes on as job %s",
		held, job->job);
	slurm_cancel(held, NULL);
	return 0;
}

/* Whether Slurm will go on with it; where not, `*code` is how it ended. */
static int ask_slurm(struct following *f, const struct records_attempt *last, bool *over, int *code,
	struct penstock_error *err)
{
	int64_t now = clock_monotonic_ms();
	struct slurm_job job = {0};
	struct slurm_status status = {0};
	int r;

	if (now < f->ask_at_ms)
		return 0;
	f->ask_at_ms = now + f->ask_ms;
	f->ask_ms = f->ask_ms * 3 / 2 < ASK_MAX_MS ? f->ask_ms * 3 / 2 : ASK_MAX_MS;
	r = slurm_job_read(&job, f->home, f->id, err);
	if (r < 0)
		return r;
	/* A controller that does not answer for a while is no reason to say anything of the job. */
	if (job.job[0] ? slurm_status_read(job.job, f->id, &status, NULL) < 0
		       : is_submitting(f->home, f->id)) {
		slurm_job_release(&job);
		return 0;
	}
	if (status.max_requeue) {
		r = replace_held(f, &job, err);
	} else if (status.lives) {
		f->ended_at_ms = 0;
		say_status(f, job.job, &status);
	} else if (!f->ended_at_ms) {
		f->ended_at_ms = now; /* what it wrote last may not be seen here yet */
		f->ask_at_ms = now + ASK_MS;
		f->ask_ms = ASK_MS;
	} else if (last->state == RUN_PREEMPTED || now - f->ended_at_ms >= f->settle_ms) {
		*over = true;
		*code = last->state == RUN_PREEMPTED ? last->exit_code
						     : record_gone(f, &job, &status, last);
	}
	slurm_job_release(&job);
	return r;
}

/* A signal that ends the following, not the run; 0: none. */
static int leave(struct following *f, int wait_ms)
{
	struct pollfd fd = {f->signal_fd, POLLIN, 0};
	struct signalfd_siginfo info;

	if (poll(&fd, 1, wait_ms) <= 0 ||
		read(f->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return 0;
	log_info("run %s goes on without this: 'penstock logs -f %s' follows it again, 'penstock "
		 "stop %s' "
		 "ends it",
		f->id, f->id, f->id);
	return 128 + (int)info.ssi_signo;
}

static int look(struct following *f, bool *over, int *code, struct penstock_error *err)
{
	struct records_attempt last = {0};
	int r = records_last_attempt(f->records, f->id, &last, NULL);

	if (r < 0) /* withdrawn, and recorded anew in a moment */
		return 0;
	if (last.attempt < f->first_attempt) { /* likewise */
		records_attempt_release(&last);
		return 0;
	}
	if (last.pid)
		r = turn_to(f, last.attempt, err);
	if (r < 0 || (run_state_is_live(last.state) && last.pid)) {
		f->ask_ms = ASK_MS;
		f->ended_at_ms = 0;
	} else if (last.state == RUN_LOST || last.state == RUN_PREEMPTED) {
		if (last.state == RUN_PREEMPTED && f->said_attempt != last.attempt) {
			f->said_attempt = last.attempt;
			f->ask_ms = ASK_MS;
		}
		r = ask_slurm(f, &last, over, code, err);
	} else {
		*over = true;
		*code = last.exit_code;
		/* The log has it, where there is one, and it was not ended after that. */
		if (last.message && (!last.pid || f->said_attempt == last.attempt))
			log_error("run %s %s: %s", f->id, run_state_name(last.state), last.message);
	}
	records_attempt_release(&last);
	return r;
}

int cluster_follow(const struct cli *cli, struct records *records, const char *home, const char *id,
	int64_t lines, int *code, struct penstock_error *err)
{
	struct following f = {
		.cli = cli,
		.records = records,
		.home = home,
		.id = id,
		.log_fd = -1,
		.ask_ms = ASK_MS,
		.lines = lines,
		.settle_ms = fs_is_network(home) ? SETTLE_FAR_MS : SETTLE_MS,
	};
	struct slurm_job job = {0};
	bool over = false;
	sigset_t set;
	int r = slurm_job_read(&job, home, id, err);

	f.first_attempt = job.attempt;
	slurm_job_release(&job);
	if (r < 0)
		return r;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	f.signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (f.signal_fd < 0)
		return error_errno(err, errno, "cannot watch for signals");
	while (r == 0 && !over) {
		r = look(&f, &over, code, err);
		if (r == 0 && !over) {
			*code = leave(&f, LOOK_MS);
			over = *code != 0;
		}
	}
	if (f.log_fd >= 0)
		close(f.log_fd);
	close(f.signal_fd);
	return r;
}

/* ---- ending ---- */

/* One that has no nodes is taken out of the line; nothing of it runs. */
static int stop_waiting(struct records *records, const struct records_run *run, const char *job,
	struct penstock_error *err)
{
	_cleanup_free_ char *message = NULL;
	const char *when = run->last.pid ? "went on" : "began";
	int r = *job ? slurm_cancel(job, err) : 0;

	if (r < 0)
		return r;
	if (*job ? asprintf(&message, "Slurm job %s was cancelled before it %s", job, when) < 0
		 : asprintf(&message, "its submission to Slurm did not end") < 0)
		message = NULL;
	/* Where it has begun all the same, its penstock was told to end, and says how it did. */
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
	bool told = false, asked = false, insisted = false;
	int64_t pause_ms = LOOK_MS;
	int64_t patient_until = clock_monotonic_ms() + PATIENCE_MS;

	for (;;) {
		struct slurm_job job = {0};
		struct slurm_status status = {0};
		char number[SLURM_JOB_SIZE];
		int r = slurm_job_read(&job, home, run->id, err);

		snprintf(number, sizeof(number), "%s", job.job);
		slurm_job_release(&job);
		if (r < 0)
			return r;
		if (!*number && !is_submitting(home, run->id))
			return stop_waiting(records, run, number, err);
		/* A controller that is busy for a while is asked again. */
		if (!*number || slurm_status_read(number, run->id, &status, err) < 0) {
			if (clock_monotonic_ms() >= patient_until)
				return *number ? -(int)PENSTOCK_E_UNAVAILABLE
					       : error_set(err, PENSTOCK_E_UNAVAILABLE,
							 "run %s is still being submitted to Slurm",
							 run->id);
			penstock_error_release(err);
			clock_sleep_ms(pause_ms);
			continue;
		}
		patient_until = clock_monotonic_ms() + PATIENCE_MS;
		if (!status.lives || (asked && strcmp(status.state, "COMPLETING") == 0))
			return asked ? 0
				     : error_set(err, PENSTOCK_E_NOT_FOUND, "run %s is not live",
					       run->id);
		if (status.pending)
			return stop_waiting(records, run, number, err);
		/* Before its penstock holds the lock nobody would hear it. */
		if (!asked && supervisor_lives(home, run->id)) {
			r = slurm_signal(number, "INT", err);
			asked = r == 0;
		} else if (asked && !records_before_flush(records, run->id)) {
			if (!told && !cli_quiet(cli))
				log_info("its output is being completed");
			told = true;
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
