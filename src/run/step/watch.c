/* Watching an execution: timeouts, hangs and memory. */
#include "run/step/execution.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "run/config/times.h"
#include "run/process/cgroups.h"
#include "run/process/usage.h"
#include "run/report/output.h"

enum {
	HANG_CHECKS = 8, /* samples within the hang timeout */
	HANG_CHECK_MIN_MS = 20,
	HANG_CHECK_MAX_MS = 5000,
	HANG_CPU_PERCENT = 1, /* a smaller share of one CPU counts as idle */
};

void step_set_times(struct step_run *step)
{
	const struct workflow_timeouts *own = &step->what->timeouts;
	const struct workflow_timeouts *job = &step->host->attempt->workflow->timeouts;
	int64_t now = clock_monotonic_ms();

	if (job->timeout.given && !step->host->times.deadline_ms)
		step->host->times.deadline_ms = now + job->timeout.value;
	if (own->timeout.given) {
		step->timeout_at_ms = now + own->timeout.value;
		step->timeout_ms = own->timeout.value;
		step->timeout_kind = STEP_TIMEOUT;
	}
	if (step->host->times.deadline_ms) {
		/* The first execution that begins after the deadline is ended at once; executions
		 * that clean up after the deadline have the grace period. */
		int64_t at = step->host->times.overdue_until_ms ? step->host->times.overdue_until_ms
								: step->host->times.deadline_ms;

		if (!step->timeout_at_ms || at < step->timeout_at_ms) {
			step->timeout_at_ms = at;
			step->timeout_ms = job->timeout.value;
			step->timeout_kind = STEP_RUN_TIMEOUT;
		}
	}
	step->hang_ms = own->hang.given ? own->hang.value : job->hang.given ? job->hang.value : 0;
	step->active_at_ms = now;
	step->check_every_ms = step->hang_ms / HANG_CHECKS;
	if (step->check_every_ms < HANG_CHECK_MIN_MS)
		step->check_every_ms = HANG_CHECK_MIN_MS;
	if (step->check_every_ms > HANG_CHECK_MAX_MS)
		step->check_every_ms = HANG_CHECK_MAX_MS;
	step->check_at_ms = step->hang_ms ? now + step->check_every_ms : 0;
	step->memory_check_ms = step->group.watch_memory ? now + STEP_MEMORY_CHECK_MS : 0;
	step_sample_begin(step, now);
}

static void nearer(int64_t *due, int64_t at)
{
	if (at && (!*due || at < *due))
		*due = at;
}

void step_set_timer(const struct step_run *step)
{
	struct itimerspec spec = {0};
	int64_t due = 0;

	nearer(&due, step->timeout_at_ms);
	nearer(&due, step->check_at_ms);
	nearer(&due, step->memory_check_ms);
	nearer(&due, step->sample_at_ms);
	nearer(&due, step->killed ? 0 : step->kill_at_ms);
	spec.it_value.tv_sec = due / 1000;
	spec.it_value.tv_nsec = due % 1000 * NS_PER_MS;
	timerfd_settime(step->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

/* ---- ending an execution ---- */

void step_signal_all(struct step_run *step, int signal)
{
	for (size_t i = 0; i < step->n_started; i++) {
		if (!step->tasks[i].ended)
			step->executor->signal(step->tasks[i].task, signal);
	}
}

static void kill_tasks(struct step_run *step)
{
	step->killed = true;
	step->end.killed |= step->n_ended < step->n;
	if (step->host->kill_coming)
		step->host->kill_coming(step->host->cookie);
	cgroup_kill(step->group.cgroup);
	for (size_t i = 0; i < step->n_started; i++)
		step->executor->kill(step->tasks[i].task);
}

void step_stop(struct step_run *step, enum step_stop why, int64_t after_ms)
{
	if (step->end.stop != STEP_NOT_STOPPED)
		return;
	step->end.stop = why;
	step->end.stop_ms = after_ms;
	step->kill_at_ms = clock_monotonic_ms() + stop_grace_ms();
	step->timeout_at_ms = step->check_at_ms = 0;
	if (why == STEP_RUN_TIMEOUT && !step->host->times.overdue_until_ms)
		step->host->times.overdue_until_ms = step->kill_at_ms + stop_grace_ms();
	if (why != STEP_PEER_FAILED)
		run_say(&step->host->attempt->voice, RUN_EVENT_MESSAGE, "asking '%s' to end",
			step->name);
	step_signal_all(step, SIGTERM);
}

/* ---- use of resources ---- */

/* Checks for activity since the last check; less than a hundredth of a CPU does not count. */
static void check_hang(struct step_run *step, int64_t now)
{
	uint64_t printed = 0;
	uint64_t least = (uint64_t)step->check_every_ms * HANG_CPU_PERCENT / 100;
	uint64_t cpu_ms;
	bool active;

	step->check_at_ms = now + step->check_every_ms;
	for (size_t i = 0; i < step->n_started; i++)
		printed += output_task_bytes(step->tasks[i].output);
	step_use(step, &cpu_ms, NULL);
	/* A smaller sum means that a process has ended. */
	active = printed != step->printed || cpu_ms < step->cpu_ms || cpu_ms - step->cpu_ms > least;
	step->printed = printed;
	step->cpu_ms = cpu_ms;
	if (active)
		step->active_at_ms = now;
	else if (now - step->active_at_ms >= step->hang_ms)
		step_stop(step, STEP_HUNG, step->hang_ms);
}

/* Used without a control group. Compares the resident memory of all processes with the limit. The
 * exact sum (PSS) is slow, so it is read only if the first sum is above the limit. */
static void check_memory(struct step_run *step, int64_t now)
{
	_cleanup_free_ pid_t *leaders = calloc(step->n, sizeof(*leaders));
	struct usage usage;
	uint64_t pss;
	size_t n;

	step->memory_check_ms = now + STEP_MEMORY_CHECK_MS;
	if (!leaders)
		return;
	n = step_leaders(step, leaders);
	usage_read(leaders, n, &usage);
	if (usage.rss <= step->group.memory_limit)
		return;
	pss = usage_pss(leaders, n);
	if (pss > step->end.memory_peak)
		step->end.memory_peak = pss;
	if (pss <= step->group.memory_limit)
		return;
	if (step->end.stop == STEP_NOT_STOPPED)
		step->end.stop = STEP_OVER_MEMORY;
	step->end.oom = step->end.stop == STEP_OVER_MEMORY;
	kill_tasks(step);
}

void step_check_times(struct step_run *step)
{
	int64_t now = clock_monotonic_ms();
	uint64_t ticks;

	if (read(step->timer_fd, &ticks, sizeof(ticks)) < 0 && errno != EAGAIN)
		return;
	if (step->timeout_at_ms && now >= step->timeout_at_ms)
		step_stop(step, step->timeout_kind, step->timeout_ms);
	if (step->check_at_ms && now >= step->check_at_ms)
		check_hang(step, now);
	if (step->memory_check_ms && now >= step->memory_check_ms)
		check_memory(step, now);
	if (step->sample_at_ms && now >= step->sample_at_ms)
		step_sample(step, now);
	if (step->kill_at_ms && !step->killed && now >= step->kill_at_ms) {
		run_say(&step->host->attempt->voice, RUN_EVENT_WARNING,
			"'%s' did not end within %" PRId64 " s and is killed", step->name,
			stop_grace_ms() / 1000);
		kill_tasks(step);
	}
	step_set_timer(step);
}
