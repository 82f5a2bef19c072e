#include "run/retry.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "records/supervisor.h"
#include "run/owner/lease.h"
#include "run/internal.h"
#include "workflow/workflow.h"

static unsigned class_bit(enum run_class class)
{
	static const unsigned bits[RUN_CLASS_COUNT_] = {
		[RUN_CLASS_INPUT] = WORKFLOW_RETRY_INPUT,
		[RUN_CLASS_IMAGE] = WORKFLOW_RETRY_IMAGE,
		[RUN_CLASS_OOM] = WORKFLOW_RETRY_OOM,
		[RUN_CLASS_USER] = WORKFLOW_RETRY_USER,
		[RUN_CLASS_OUTPUT] = WORKFLOW_RETRY_OUTPUT,
		[RUN_CLASS_NODE] = WORKFLOW_RETRY_NODE,
		[RUN_CLASS_TIMEOUT] = WORKFLOW_RETRY_TIMEOUT,
	};

	return bits[class];
}

int64_t retry_pause_ms(int64_t backoff_ms, unsigned n, uint32_t random)
{
	int64_t pause = backoff_ms;

	while (--n > 0 && pause < LIMIT_RETRY_PAUSE_MS)
		pause *= 2;
	if (pause > LIMIT_RETRY_PAUSE_MS)
		pause = backoff_ms > LIMIT_RETRY_PAUSE_MS ? backoff_ms : LIMIT_RETRY_PAUSE_MS;
	return pause * 4 / 5 + pause * 2 / 5 * (int64_t)(random >> 16) / 65535;
}

/* Returns the number of retries since the run started from scratch or a user continued it. */
static unsigned retries_so_far(const struct run *run, const char *path)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(16);
	uint64_t n;

	if ((run->options->resume || run->after_failure) && !run->options->retrying &&
		!run->options->due)
		return 0;
	return fs_read(path, &text, NULL) == 0 &&
			       str_to_u64(buf_str(&text), 0, LIMIT_WORKFLOW_RETRIES, &n)
		       ? (unsigned)n
		       : 0;
}

static bool should_retry(const struct run *run)
{
	const struct workflow_retry *retry = &run->attempt.workflow->retry;
	const struct run_end *end = &run->attempt.end;

	if (!retry->max.value || end->state != RUN_FAILED || run->publisher.fenced ||
		lease_is_lost(run->publisher.lease) ||
		interrupts_reason(&run->reaction.interrupts) != INTERRUPT_NONE)
		return false;
	return (retry->classes & class_bit(end->class)) ||
	       workflow_retry_has_code(retry, end->step_code ? end->step_code : end->exit_code);
}

int64_t run_plan_retry(struct run *run)
{
	_cleanup_free_ char *path = path_join(run->attempt.layout.state, "retries");
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	const struct workflow_retry *retry = &run->attempt.workflow->retry;
	char text[16];
	uint32_t random = 0;
	unsigned n;
	int64_t pause;

	if (!path || !should_retry(run))
		return -1;
	n = retries_so_far(run, path) + 1;
	if (n > retry->max.value) {
		run_say(&run->attempt.voice, RUN_EVENT_WARNING, "failed after %u retr%s", n - 1,
			n == 2 ? "y" : "ies");
		return -1;
	}
	snprintf(text, sizeof(text), "%u", n);
	/* Count the retry before the file `goes_on` is written: the file announces the retry. */
	if (fs_write_atomic(path, text, strlen(text), 0600, &err) < 0 ||
		fs_write_atomic(run->attempt.layout.goes_on, "", 0, 0600, &err) < 0) {
		run_say(&run->attempt.voice, RUN_EVENT_WARNING, "cannot retry: %s", err.message);
		return -1;
	}
	if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
		random = (uint32_t)clock_monotonic_ns();
	pause = retry_pause_ms(retry->backoff.value, n, random);
	run_say(&run->attempt.voice, RUN_EVENT_WARNING, "%s; retry %u of %d in %.1f s",
		run->attempt.end.message ? run->attempt.end.message : "failed", n,
		(int)retry->max.value, (double)pause / 1000);
	return pause;
}

int run_wait_for_retry(struct run *run, struct penstock_error *err)
{
	int64_t until = clock_monotonic_ms() + run->options->wait_ms;
	struct pollfd event = {run->reaction.interrupts.event_fd, POLLIN, 0};

	for (;;) {
		int64_t left = until - clock_monotonic_ms();

		/* Requests to save, and notices that were withdrawn already, do not end the
		 * wait. */
		interrupts_clear_event(&run->reaction.interrupts);
		interrupts_forget_notice(&run->reaction.interrupts);
		if (interrupts_reason(&run->reaction.interrupts) != INTERRUPT_NONE)
			return error_set(
				err, PENSTOCK_E_CANCELLED, "ended before the next attempt");
		if (left <= 0)
			return 0;
		poll(&event, 1, left < 1000 ? (int)left : 1000);
	}
}

/* A run that is retried counts as failed until its next attempt is recorded, and its lock is free
 * for a moment. So the wait fails after OTHERS_FREE polls in a row have found the lock free. */
enum { OTHERS_POLL_MS = 250, OTHERS_FREE = 8 };

static int wait_for_other(struct run *run, const char *id, struct penstock_error *err)
{
	struct pollfd event = {run->reaction.interrupts.event_fd, POLLIN, 0};
	int free_times = 0;

	for (bool said = false;; said = true) {
		_cleanup_(records_run_release) struct records_run other = {0};
		bool lives = supervisor_lives(run->attempt.home, id);
		int r;

		interrupts_clear_event(&run->reaction.interrupts);
		r = records_find(run->attempt.records, id, &other, err);

		if (r < 0 || other.last.state == RUN_SUCCEEDED)
			return r;
		free_times = lives ? 0 : free_times + 1;
		if (free_times == OTHERS_FREE)
			return error_set(err, PENSTOCK_E_NOT_FOUND,
				"cannot use the output of run '%s': its state is %s, not "
				"succeeded; start it first with 'penstock run'",
				other.name ? other.name : id, run_state_name(other.last.state));
		if (interrupts_reason(&run->reaction.interrupts) != INTERRUPT_NONE)
			return error_set(err, PENSTOCK_E_CANCELLED,
				"ended while waiting for the runs whose output is an input");
		if (!said)
			run_say(&run->attempt.voice, RUN_EVENT_MESSAGE,
				"waiting for run %s (%s), whose output is an input",
				other.name ? other.name : id, id);
		poll(&event, 1, OTHERS_POLL_MS);
	}
}

int run_wait_for_others(struct run *run, struct penstock_error *err)
{
	int r = 0;

	for (const char *const *id = run->options->after; id && *id && r == 0; id++)
		r = wait_for_other(run, *id, err);
	return r;
}
