/* Main loop of the steps: waits for executions, requests and deadlines, and advances the walk. */
#include "run/walk/steps.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/process/process.h"
#include "base/str.h"
#include "run/owner/lease.h"
#include "run/walk/finished.h"
#include "run/config/times.h"
#include "run/notices/reaction.h"
#include "run/publish/publisher.h"
#include "run/step/host.h"
#include "run/step/run.h"
#include "run/walk/walk.h"

enum {
	STATUS_MS = 1000, /* interval at which the progress of the sync is recorded */
	/* interval of repeated signals, for leaders that did not handle the first */
	NOTICE_AGAIN_MS = 250,
};

/* State of the main loop. */
struct watch {
	struct attempt *attempt; /* borrowed, as are the next two */
	struct reaction *reaction;
	struct publisher *publisher;
	struct walk walk;
	unsigned news; /* last result of interrupts_news() whose events were handled */
	int requests; /* stop requests that were handled */
	/* serial of the last notice with `soon` that was passed to the steps; 0 if there is none */
	unsigned soon;
	bool noticed; /* the steps know of a notice */
	unsigned eased; /* number of withdrawals of merged notices that were handled */
	bool withdrawn; /* the notice was withdrawn */
	/* the steps that knew of the notice were killed at the end of their time */
	bool noticed_killed;
	int64_t grace_ms; /* grace period of the executions */
	int64_t kill_at_ms; /* 0 if no end was requested */
	int64_t noted_ms; /* time at which the state of the sync was last recorded */
	char *during; /* name of a step that was running when the end was requested; owned */
	struct pollfd *fds;
	size_t cap;
};

/* Returns the grace period of `penstock stop --grace`, which is in a file of the run's directory,
 * and removes the file. Without the file, returns $PENSTOCK_STOP_GRACE or the default. */
static int64_t grace_ms(const struct attempt *attempt)
{
	_cleanup_free_ char *path = run_path(attempt->home, attempt->id, RUN_FILE_GRACE);
	_cleanup_(buf_release) struct buf text = BUF_INIT(32);
	uint64_t value;

	if (path && fs_read(path, &text, NULL) == 0 && unlink(path) == 0 &&
		str_to_u64(buf_str(&text), 0, INT64_MAX / 2, &value))
		return (int64_t)value;
	return stop_grace_ms();
}

static void begin_grace_of(struct watch *watch, int64_t kill_at_ms)
{
	const struct frame *live = watch->walk.live;
	int64_t left = kill_at_ms - clock_monotonic_ms();

	if (watch->kill_at_ms && watch->kill_at_ms <= kill_at_ms)
		return;
	watch->grace_ms = left > 0 ? left : 0;
	watch->kill_at_ms = kill_at_ms;
	while (live && live->next_live) /* the oldest */
		live = live->next_live;
	if (live && !watch->during)
		watch->during = strdup(live->name);
}

static void begin_grace(struct watch *watch)
{
	if (!watch->kill_at_ms)
		begin_grace_of(watch, clock_monotonic_ms() + grace_ms(watch->attempt));
}

/* ---- notices ---- */

static void take_notice(struct watch *watch, const struct notice *notice)
{
	int64_t until = reaction_tasks_until(watch->reaction, notice);
	bool changed = watch->withdrawn || watch->eased != notice->eased;

	if (watch->noticed && !changed && until >= watch->kill_at_ms)
		return; /* nothing changed for the tasks */
	/* The deadline of a withdrawn notice no longer counts. */
	if (changed && !watch->noticed_killed &&
		interrupts_reason(&watch->reaction->interrupts) == INTERRUPT_PREEMPT)
		watch->kill_at_ms = 0;
	/* After a withdrawal the steps must be signalled again. */
	if (watch->noticed && watch->withdrawn)
		walk_notice_again(&watch->walk);
	/* A step that failed before the notice did not fail because of the notice. */
	if (!watch->noticed)
		walk_take_ended(&watch->walk);
	reaction_begin(watch->reaction, notice);
	walk_notice(&watch->walk, reaction_signal(watch->reaction));
	begin_grace_of(watch, until);
	if (!watch->noticed && watch->walk.n_live)
		run_say(&watch->attempt->voice, RUN_EVENT_MESSAGE,
			"asking the step to save and exit");
	watch->noticed = true;
	watch->withdrawn = false;
	watch->eased = notice->eased;
}

/* Forgets a withdrawn notice. Returns false if the notice has ended steps or still may end them, or
 * if the steps must end because the lease is lost. */
static bool take_back_notice(struct watch *watch)
{
	if (watch->publisher->fenced || !interrupts_forget_notice(&watch->reaction->interrupts))
		return false;
	watch->noticed = watch->withdrawn = false;
	watch->eased = 0;
	watch->kill_at_ms = 0;
	watch->requests = 0;
	return true;
}

static void check_notices(struct watch *watch)
{
	struct notice notice;

	if (!interrupts_get_soon(&watch->reaction->interrupts, &notice))
		notice.serial = 0;
	if (notice.serial && notice.serial != watch->soon)
		reaction_begin(watch->reaction, &notice);
	else if (!notice.serial && watch->soon)
		reaction_take_back(watch->reaction, true);
	watch->soon = notice.serial;

	if (!interrupts_get_notice(&watch->reaction->interrupts, &notice))
		return;
	if (!notice.withdrawn) {
		take_notice(watch, &notice);
		return;
	}
	if (watch->noticed && !watch->withdrawn)
		reaction_take_back(watch->reaction, false);
	watch->withdrawn = true;
	if (!watch->noticed) /* the notice was withdrawn before the steps knew of it */
		take_back_notice(watch);
}

/* Called at the kill time. Resumes the run if the notice was withdrawn and no step has ended
 * because of it. */
static bool forget_notice(struct watch *watch)
{
	if (!watch->withdrawn || watch->walk.cut || watch->walk.killed || !take_back_notice(watch))
		return false;
	walk_forget_notice(&watch->walk);
	run_say(&watch->attempt->voice, RUN_EVENT_MESSAGE,
		"no step has ended because of the notice: the run continues");
	return true;
}

/* Handles notices and requests. The first request asks the steps to end, the second kills them. */
static void react(struct watch *watch)
{
	int requests;
	bool stops;

	/* Read the counter first, so that later events count as new. */
	watch->news = interrupts_news(&watch->reaction->interrupts);
	interrupts_clear_event(&watch->reaction->interrupts);
	check_notices(watch);
	requests = interrupts_count(&watch->reaction->interrupts);
	stops = interrupts_reason(&watch->reaction->interrupts) == INTERRUPT_STOP;
	if (requests >= 1 && watch->requests == 0 && stops) {
		begin_grace(watch);
		if (watch->walk.n_live)
			run_say(&watch->attempt->voice, RUN_EVENT_MESSAGE,
				"asking the step to end; a second request kills it");
		walk_stop(&watch->walk);
	}
	if (requests >= 2 && !watch->walk.killed)
		walk_kill(&watch->walk);
	watch->requests = requests;
}

/* Returns the milliseconds until the next deadline. */
static int next_timeout(const struct watch *watch)
{
	int64_t wait = watch->noticed ? NOTICE_AGAIN_MS : STATUS_MS;

	if (watch->kill_at_ms && !watch->walk.killed) {
		int64_t left = watch->kill_at_ms - clock_monotonic_ms();

		if (left < wait)
			wait = left;
	}
	return (int)walk_next_deadline(&watch->walk, wait > 0 ? wait : 0);
}

/* Waits for the end of an execution, a request or a deadline. Returns -1 if out of memory. */
static int wait_for_something(struct watch *watch)
{
	size_t n = 1;

	if (watch->walk.n_live + 1 > watch->cap) {
		size_t cap = 2 * (watch->walk.n_live + 1);
		struct pollfd *fds = reallocarray(watch->fds, cap, sizeof(*fds));

		if (!fds)
			return -1;
		watch->fds = fds;
		watch->cap = cap;
	}
	watch->fds[0] = (struct pollfd){watch->reaction->interrupts.event_fd, POLLIN, 0};
	for (const struct frame *f = watch->walk.live; f; f = f->next_live)
		watch->fds[n++] = (struct pollfd){step_run_fd(f->run), POLLIN, 0};
	poll(watch->fds, n, next_timeout(watch));
	return 0;
}

/* Kills the steps at the end of their time. After a notice, the steps of `finally` have more time
 * than the other steps. */
static void kill_overdue(struct watch *watch)
{
	struct notice notice;

	if (!watch->noticed || watch->noticed_killed ||
		!interrupts_get_notice(&watch->reaction->interrupts, &notice)) {
		walk_kill(&watch->walk);
		return;
	}
	watch->noticed_killed = true;
	watch->kill_at_ms = reaction_finally_until(watch->reaction, &notice);
	walk_kill_noticed(&watch->walk);
}

/* Warns before the kill. A program that got no signal knows of the notice only if it looks for the
 * file. */
static void warn_overdue(const struct watch *watch)
{
	const struct frame *deaf = watch->noticed ? watch->walk.live : NULL;
	const int signal = reaction_signal(watch->reaction);
	/* rounded: the grace began a moment ago */
	int64_t grace_s = (watch->grace_ms + 500) / 1000;

	while (deaf && (!signal || !deaf->noticed || step_run_signalled(deaf->run)))
		deaf = deaf->next_live;
	if (deaf)
		run_say(&watch->attempt->voice, RUN_EVENT_WARNING,
			"'%s' did not end within %" PRId64
			" s and is killed: it has no handler for SIG%s and ignores "
			"$PENSTOCK_PREEMPT_FILE; see penstock-workflow(5)",
			deaf->name, grace_s, sigabbrev_np(signal));
	else
		run_say(&watch->attempt->voice, RUN_EVENT_WARNING,
			"the step did not end within %" PRId64 " s and is killed", grace_s);
}

static void check_time(struct watch *watch)
{
	int64_t now_ms = clock_monotonic_ms();

	/* Repeat the notice: a program that was starting may handle the signal now. */
	if (watch->noticed && !watch->withdrawn && !watch->walk.killed)
		walk_notice(&watch->walk, reaction_signal(watch->reaction));
	if (watch->kill_at_ms && !watch->walk.killed && now_ms >= watch->kill_at_ms &&
		!forget_notice(watch)) {
		warn_overdue(watch);
		kill_overdue(watch);
	}
	if (now_ms - watch->noted_ms >= STATUS_MS) {
		publisher_record(watch->publisher);
		watch->noted_ms = now_ms;
	}
}

static int run_walk(struct watch *watch, struct penstock_error *err)
{
	watch->noted_ms = clock_monotonic_ms();
	for (;;) {
		/* A request that came while the end of a step was recorded is handled before the
		 * next step. */
		do {
			if (interrupts_news(&watch->reaction->interrupts) != watch->news)
				react(watch);
			if (!watch->publisher->fenced && lease_is_lost(watch->publisher->lease)) {
				/* Another owner has the run: this process may publish nothing
				 * any more, and the steps are useless. */
				begin_grace(watch);
				walk_stop(&watch->walk);
				publisher_fence(watch->publisher);
			}
		} while (walk_advance(&watch->walk));
		if (watch->walk.done)
			return 0;
		if (wait_for_something(watch) < 0) {
			walk_kill(&watch->walk);
			return error_memory(err);
		}
		check_time(watch);
		walk_take_ended(&watch->walk);
	}
}

static void decide_end(const struct watch *watch)
{
	struct attempt *attempt = watch->attempt;
	const struct outcome *outcome = &watch->walk.outcome;
	const struct step_failure *failure = &outcome->failure;
	struct notice notice = {0};
	enum interrupt_reason reason = interrupts_reason(&watch->reaction->interrupts);
	const char *during = watch->during ? watch->during : "the start of the next step";

	if (watch->publisher->fenced) {
		run_end(attempt, RUN_FAILED, RUN_CLASS_NODE, 69,
			"another owner has taken over this run during '%s': %s; the files written "
			"here stay in '%s'",
			during, lease_owner_now(watch->publisher->lease), attempt->layout.output);
	} else if (reason == INTERRUPT_PREEMPT && outcome->cut &&
		   (!outcome->failed || outcome->after_notice)) {
		interrupts_get_notice(&watch->reaction->interrupts, &notice);
		run_end(attempt, RUN_PREEMPTED, RUN_CLASS_PREEMPTED, 75,
			"preempted during '%s' (%s: %s); the same command continues the run",
			during, notice.source, notice.reason);
	} else if (reason == INTERRUPT_STOP) {
		run_end(attempt, RUN_STOPPED, RUN_CLASS_USER, 130,
			"stopped during '%s'; 'penstock resume %s' continues the run", during,
			attempt->id);
	} else if (outcome->failed) {
		attempt->end.step_code = attempt->end.decided ? attempt->end.step_code
							      : failure->step_code;
		run_end(attempt, RUN_FAILED, failure->class, failure->exit_code, "%s",
			failure->text);
	}
}

static int open_progress(
	struct attempt *attempt, struct finished_steps **out, struct penstock_error *err)
{
	_cleanup_free_ char *path = path_join(attempt->layout.state, "steps");
	bool here = attempt->continuing && access(attempt->layout.storage, F_OK) == 0;
	char boot[PROCESS_BOOT_ID_SIZE] = "";
	int r;

	if (!path)
		return error_memory(err);
	/* A crash of this machine does not damage files on a network file system, so its boot does
	 * not matter. */
	if (!fs_is_network(attempt->layout.storage))
		process_boot_id(boot);
	r = finished_open(out, path, here, boot, err);
	if (r < 0 || !here || finished_is_believed(*out))
		return r;
	if (attempt->steps_done) {
		run_say(&attempt->voice, RUN_EVENT_MESSAGE,
			"the machine restarted after steps had finished, and their files may be "
			"incomplete: the run starts at its first step");
		r = records_forget_steps(attempt->records, attempt->id, attempt->number, err);
	}
	attempt->steps_done = 0;
	if (r < 0)
		finished_free(take_pointer(*out));
	return r;
}

void run_settle_storage(const struct attempt *attempt, bool flushed)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *path = path_join(attempt->layout.state, "steps");

	/* Do nothing if the output was not sent: the next attempt would skip a finished step, and
	 * the step's output would be lost. */
	if (attempt->end.state != RUN_PREEMPTED || !flushed || !attempt->steps_began ||
		fs_is_network(attempt->layout.storage))
		return;
	if (!path || finished_settle(path, attempt->layout.storage, &err) < 0)
		log_warn("after a restart of the machine the run will start at its first step: %s",
			err.message ? err.message : "out of memory");
}

void run_steps(struct step_host *host, struct reaction *reaction, struct publisher *publisher)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct attempt *attempt = host->attempt;
	_cleanup_free_ char *grace = run_path(attempt->home, attempt->id, RUN_FILE_GRACE);
	struct watch watch = {.attempt = attempt, .reaction = reaction, .publisher = publisher};
	struct finished_steps *progress = NULL;
	int r;

	if (grace)
		unlink(grace); /* a request to an earlier attempt */
	interrupts_phase(&reaction->interrupts, PHASE_STEPS);
	r = open_progress(attempt, &progress, &err);
	if (r == 0 && walk_begin(&watch.walk, host, reaction, publisher, progress) < 0)
		r = error_memory(&err);
	if (r == 0) {
		r = run_walk(&watch, &err);
		publisher_record(publisher);
		walk_release(&watch.walk);
	}
	if (r < 0)
		reaction_end_error(reaction, RUN_CLASS_NODE, &err);
	else
		decide_end(&watch);
	step_host_end(host);
	finished_free(progress);
	free(watch.during);
	free(watch.fds);
}
