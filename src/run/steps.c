/* Running the steps of a workflow: the loop that waits for what the walk of the tree has begun. */
#include "run/run_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/process.h"
#include "base/str.h"
#include "run/lease.h"
#include "run/output.h"
#include "run/finished.h"
#include "run/reaction.h"
#include "run/step_group.h"
#include "run/step_life.h"
#include "run/step_run.h"
#include "run/walk.h"
#include "sync/sync.h"
#include "base/banned.h"

enum {
	STATUS_MS = 1000,    /* how often the sync's lag is recorded */
	TELL_AGAIN_MS = 250, /* those whom a notice has not reached */
	GRACE_MS =
		30000, /* from the request to end to the kill; what clouds give at a preemption */
};

void run_record_sync(struct run *run)
{
	struct sync_status status;

	if (!run->sync)
		return;
	sync_get_status(run->sync, &status);
	records_set_sync(run->options->records, run->id, run->attempt,
		&(struct records_sync){
			.lag_ms = status.lag_ms,
			.bytes_waiting = status.bytes_waiting,
			.files_waiting = status.files_waiting,
			.files_published = status.files_published,
			.bytes_published = status.bytes_published,
			.last_error = status.last_error,
		},
		NULL);
}

/* What the loop around what runs remembers. */
struct watch {
	struct run *run;
	struct walk walk;
	unsigned news;	    /* of the interrupts, seen */
	int requests;	    /* of these */
	unsigned soon;	    /* of the last that said "soon" and that the steps know; 0: none */
	bool noticed;	    /* a notice has come, and they know */
	unsigned eased;	    /* how often a part of it was withdrawn, as they know */
	bool withdrawn;	    /* it is not to come to anything */
	bool told_killed;   /* those who knew have had their time */
	int64_t grace_ms;   /* that all was given to end */
	int64_t kill_at_ms; /* 0: nobody asked it to end */
	int64_t noted_ms;   /* when the sync's lag was last recorded */
	char *during;	    /* what ran when the end was asked for; owned */
	struct pollfd *fds;
	size_t cap;
};

/* $PENSTOCK_STOP_GRACE seconds, or what `penstock stop --grace` has left in the run's directory. */
static int64_t grace_ms(const struct run *run)
{
	_cleanup_free_ char *path = path_join(run->layout.dir, "grace");
	_cleanup_(buf_release) struct buf text = BUF_INIT(32);
	const char *given = getenv("PENSTOCK_STOP_GRACE");
	uint64_t value;

	if (path && fs_read(path, &text, NULL) == 0 && unlink(path) == 0 &&
		str_to_u64(buf_str(&text), 0, INT64_MAX / 2, &value))
		return (int64_t)value;
	if (given && str_to_u64(given, 0, 7 * 24 * 3600, &value))
		return (int64_t)value * 1000;
	return GRACE_MS;
}

static void begin_grace_of(struct watch *watch, int64_t kill_at_ms)
{
	const struct frame *live = watch->walk.live;
	int64_t left = kill_at_ms - clock_monotonic_ms();

	if (watch->kill_at_ms && watch->kill_at_ms <= kill_at_ms)
		return;
	watch->grace_ms = left > 0 ? left : 0;
	watch->kill_at_ms = kill_at_ms;
	while (live && live->next_live) /* the first that was begun */
		live = live->next_live;
	if (live && !watch->during)
		watch->during = strdup(live->name);
}

static void begin_grace(struct watch *watch)
{
	if (!watch->kill_at_ms)
		begin_grace_of(watch, clock_monotonic_ms() + grace_ms(watch->run));
}

/* ---- notices ---- */

static void take_notice(struct watch *watch, const struct notice *notice)
{
	struct run *run = watch->run;
	int64_t until = reaction_tasks_until(run, notice);
	bool anew = watch->withdrawn || watch->eased != notice->eased;

	if (watch->noticed && !anew && until >= watch->kill_at_ms)
		return; /* nothing new for the tasks */
	/* The time that they had because of one that does not hold any more is not what they have now. */
	if (anew && !watch->told_killed && interrupts_reason(&run->interrupts) == INTERRUPT_PREEMPT)
		watch->kill_at_ms = 0;
	/* Who has heard that it is over has to hear that it is not. */
	if (watch->noticed && watch->withdrawn)
		walk_tell_again(&watch->walk);
	/* What has failed before anybody was told has failed by itself. */
	if (!watch->noticed)
		walk_take_ended(&watch->walk);
	reaction_begin(run, notice);
	walk_notice(&watch->walk, reaction_signal(run));
	begin_grace_of(watch, until);
	if (!watch->noticed && watch->walk.n_live)
		run_say(run, RUN_EVENT_MESSAGE, "asking the step to save and to end");
	watch->noticed = true;
	watch->withdrawn = false;
	watch->eased = notice->eased;
}

/* As if it had never been. False: it has come to something, or still may. */
static bool take_back_notice(struct watch *watch)
{
	if (!interrupts_forget_notice(&watch->run->interrupts))
		return false;
	watch->noticed = watch->withdrawn = false;
	watch->eased = 0;
	watch->kill_at_ms = 0;
	watch->requests = 0;
	return true;
}

static void look_for_notices(struct watch *watch)
{
	struct run *run = watch->run;
	struct notice notice;

	if (!interrupts_get_soon(&run->interrupts, &notice))
		notice.serial = 0;
	if (notice.serial && notice.serial != watch->soon)
		reaction_begin(run, &notice);
	else if (!notice.serial && watch->soon)
		reaction_take_back(run, true);
	watch->soon = notice.serial;

	if (!interrupts_get_notice(&run->interrupts, &notice))
		return;
	if (!notice.withdrawn) {
		take_notice(watch, &notice);
		return;
	}
	if (watch->noticed && !watch->withdrawn)
		reaction_take_back(run, false);
	watch->withdrawn = true;
	if (!watch->noticed) /* it came and went before anybody was told */
		take_back_notice(watch);
}

/* The tasks had their time to end because of a notice that was withdrawn, and none has. */
static bool forget_notice(struct watch *watch)
{
	if (!watch->withdrawn || watch->walk.cut || watch->walk.killed || !take_back_notice(watch))
		return false;
	walk_forget_notice(&watch->walk);
	run_say(watch->run, RUN_EVENT_MESSAGE,
		"nothing has ended because of the notice: the run goes on");
	return true;
}

/* The first request asks what runs to end, the second ends it. */
static void react(struct watch *watch)
{
	struct run *run = watch->run;
	int requests;
	bool stops;

	/* First: what comes after this is news again. */
	watch->news = interrupts_news(&run->interrupts);
	interrupts_clear_event(&run->interrupts);
	look_for_notices(watch);
	requests = interrupts_count(&run->interrupts);
	stops = interrupts_reason(&run->interrupts) == INTERRUPT_STOP;
	if (requests >= 1 && watch->requests == 0 && stops) {
		begin_grace(watch);
		if (watch->walk.n_live)
			run_say(run, RUN_EVENT_MESSAGE,
				"asking the step to end (once more kills it)");
		walk_stop(&watch->walk);
	}
	if (requests >= 2 && !watch->walk.killed)
		walk_kill(&watch->walk);
	watch->requests = requests;
}

/* Another owner goes on with this run: nothing of ours may be published any more, and the steps are in vain. */
static void fence(struct watch *watch)
{
	struct run *run = watch->run;

	run->fenced = true;
	sync_free(take_pointer(run->sync));
	begin_grace(watch);
	walk_stop(&watch->walk);
}

/* Milliseconds until something is due. */
static int next_timeout(const struct watch *watch)
{
	int64_t wait = watch->noticed ? TELL_AGAIN_MS : STATUS_MS;

	if (watch->kill_at_ms && !watch->walk.killed) {
		int64_t left = watch->kill_at_ms - clock_monotonic_ms();

		if (left < wait)
			wait = left;
	}
	return (int)walk_next_deadline(&watch->walk, wait > 0 ? wait : 0);
}

/* Waits for an end, a request or a deadline; -1: no memory. */
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
	watch->fds[0] = (struct pollfd){watch->run->interrupts.event_fd, POLLIN, 0};
	for (const struct frame *f = watch->walk.live; f; f = f->next_live)
		watch->fds[n++] = (struct pollfd){step_run_fd(f->run), POLLIN, 0};
	poll(watch->fds, n, next_timeout(watch));
	return 0;
}

/* What is within `finally` had no time yet where others took all of it. */
static void kill_overdue(struct watch *watch)
{
	struct notice notice;

	if (!watch->noticed || watch->told_killed ||
		!interrupts_get_notice(&watch->run->interrupts, &notice)) {
		walk_kill(&watch->walk);
		return;
	}
	watch->told_killed = true;
	watch->kill_at_ms = reaction_finally_until(watch->run, &notice);
	walk_kill_told(&watch->walk);
}

static void look_at_the_time(struct watch *watch)
{
	int64_t now_ms = clock_monotonic_ms();

	/* A program that was still starting handles the signal now. */
	if (watch->noticed && !watch->withdrawn && !watch->walk.killed)
		walk_notice(&watch->walk, reaction_signal(watch->run));
	if (watch->kill_at_ms && !watch->walk.killed && now_ms >= watch->kill_at_ms &&
		!forget_notice(watch)) {
		run_say(watch->run, RUN_EVENT_WARNING,
			"the step did not end within %" PRId64 " s and is killed",
			(watch->grace_ms + 500) / 1000); /* less the moment before it began */
		kill_overdue(watch);
	}
	if (now_ms - watch->noted_ms >= STATUS_MS) {
		run_record_sync(watch->run);
		watch->noted_ms = now_ms;
	}
}

static int run_walk(struct watch *watch, struct penstock_error *err)
{
	struct run *run = watch->run;

	watch->noted_ms = clock_monotonic_ms();
	for (;;) {
		/* What was asked for while the end of one step was recorded comes before the next. */
		do {
			if (interrupts_news(&run->interrupts) != watch->news)
				react(watch);
			if (!run->fenced && lease_is_lost(run->lease))
				fence(watch);
		} while (walk_advance(&watch->walk));
		if (watch->walk.done)
			return 0;
		if (wait_for_something(watch) < 0) {
			walk_kill(&watch->walk);
			return error_memory(err);
		}
		look_at_the_time(watch);
		walk_take_ended(&watch->walk);
	}
}

static void judge(struct run *run, const struct watch *watch)
{
	const struct outcome *outcome = &watch->walk.outcome;
	const struct step_failure *failure = &outcome->failure;
	struct notice notice = {0};
	enum interrupt_reason reason = interrupts_reason(&run->interrupts);
	const char *during = watch->during ? watch->during : "the change of steps";

	if (run->fenced) {
		run_end(run, RUN_FAILED, RUN_CLASS_NODE, 69,
			"another owner has taken this run over during '%s': %s; what was written "
			"here "
			"stays in %s",
			during, lease_owner_now(run->lease), run->layout.output);
	} else if (reason == INTERRUPT_PREEMPT && outcome->cut &&
		   (!outcome->failed || outcome->told)) {
		interrupts_get_notice(&run->interrupts, &notice);
		run_end(run, RUN_PREEMPTED, RUN_CLASS_PREEMPTED, 75,
			"told to end during '%s' (%s: %s); the same command continues it", during,
			notice.source, notice.reason);
	} else if (reason == INTERRUPT_STOP) {
		run_end(run, RUN_STOPPED, RUN_CLASS_USER, 130,
			"stopped during '%s'; 'penstock resume %s' continues it", during, run->id);
	} else if (outcome->failed) {
		run->end.step_code = run->end.decided ? run->end.step_code : failure->step_code;
		run_end(run, RUN_FAILED, failure->class, failure->exit_code, "%s", failure->text);
	}
}

static int open_progress(struct run *run, struct finished_steps **out, struct penstock_error *err)
{
	_cleanup_free_ char *path = path_join(run->layout.state, "steps");
	bool here = run->continuing && access(run->layout.storage, F_OK) == 0;
	char boot[PROCESS_BOOT_ID_SIZE] = "";
	int r;

	if (!path)
		return error_memory(err);
	/* What is behind a network does not go with this machine. */
	if (!fs_is_network(run->layout.storage))
		process_boot_id(boot);
	r = finished_open(out, path, here, boot, err);
	if (r < 0 || !here || finished_is_believed(*out))
		return r;
	if (run->steps_done) {
		run_say(run, RUN_EVENT_MESSAGE,
			"the machine stopped since steps were finished, and what they left may not "
			"be whole: the run starts at its first step");
		r = records_forget_steps(run->options->records, run->id, run->attempt, err);
	}
	run->steps_done = 0;
	if (r < 0)
		finished_free(take_pointer(*out));
	return r;
}

void run_settle_storage(const struct run *run, bool flushed)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *path = path_join(run->layout.state, "steps");

	/* Where output was not sent, a step that is finished would not bring it again. */
	if (run->end.state != RUN_PREEMPTED || !flushed || !run->steps_began ||
		fs_is_network(run->layout.storage))
		return;
	if (!path || finished_settle(path, run->layout.storage, &err) < 0)
		log_warn("after a stop of the machine the run will start at its first step: %s",
			err.message ? err.message : "out of memory");
}

void run_steps(struct run *run)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *grace = path_join(run->layout.dir, "grace");
	struct watch watch = {.run = run};
	struct finished_steps *progress = NULL;
	int r;

	if (grace)
		unlink(grace); /* of a request that an earlier attempt did not come to */
	interrupts_phase(&run->interrupts, PHASE_STEPS);
	r = open_progress(run, &progress, &err);
	if (r == 0 && walk_begin(&watch.walk, run, progress) < 0)
		r = error_memory(&err);
	if (r == 0) {
		r = run_walk(&watch, &err);
		run_record_sync(run);
		walk_release(&watch.walk);
	}
	if (r < 0)
		run_end_error(run, RUN_CLASS_NODE, &err);
	else
		judge(run, &watch);
	executor_container_finish();
	run_group_end(run);
	run_life_end(run);
	finished_free(progress);
	free(watch.during);
	free(watch.fds);
}
