#include "run/owner/lease.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/must.h"
#include "base/process/process.h"
#include "base/str.h"
#include "base/thread.h"
#include "run/owner/lease_internal.h"
#include "transfer/objects.h"

enum { POLL_MS = 20 };

/* Waits for a change of state or for the next renewal, which comes sooner after a failure. Returns
 * false if the thread must end. */
static bool wait_turn(struct lease *lease, bool failed, const char **state)
{
	int64_t until = clock_monotonic_ms() + (failed ? lease->term_ms / 12 : lease->term_ms / 3);

	LOCK_SCOPE(&lease->lock);
	while (!lease->stopping && !lease->dirty && clock_monotonic_ms() < until)
		clock_cond_wait_until_ms(&lease->wake, &lease->lock, until);
	lease->dirty = false;
	*state = lease->state;
	return !lease->stopping;
}

static void lose(struct lease *lease, const struct seen *other, bool output_only)
{
	const char *comma = other->since[0] ? ", since " : "";

	if (output_only)
		snprintf(lease->owner, sizeof(lease->owner),
			"run '%s' now owns the output of this run (on %s%s%s)", other->run,
			other->host, comma, other->since);
	else if (!other->etag[0])
		snprintf(lease->owner, sizeof(lease->owner),
			"run '%s' now belongs to another owner", lease->options.run_id);
	else
		snprintf(lease->owner, sizeof(lease->owner),
			"run '%s' is now attempt %d on %s (process %d, %s%s%s)",
			lease->options.run_id, other->attempt, other->host, (int)other->pid,
			other->state, comma, other->since);
	if (!output_only && other->etag[0]) {
		lease->owner_attempt = other->attempt;
		snprintf(lease->owner_host, sizeof(lease->owner_host), "%s", other->host);
		snprintf(lease->owner_state, sizeof(lease->owner_state), "%s", other->state);
	}
	atomic_store(&lease->held_until_ms, 0);
	pthread_mutex_lock(&lease->lock);
	lease->lost = true;
	lease->output_lost = output_only;
	pthread_mutex_unlock(&lease->lock);
	if (lease->options.lost)
		lease->options.lost(lease->options.cookie, lease->owner);
}

/* Renews the lease. Returns false if it is lost. The state is read before it is written, because a
 * store that ignores conditions would overwrite the new owner's state. */
static bool renew_once(struct lease *lease, const char *state, bool *failed)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum lease_output output = LEASE_OUTPUT_OURS;
	struct seen other = {0};
	int r = lease_still_ours(lease, &other, &err);
	bool lost = r == 0;

	if (r > 0)
		r = lease_write_state(lease, state, &err);
	/* Another owner changes the object only after this owner has not renewed the object for a
	 * whole term. */
	if (r == -(int)PENSTOCK_E_PRECONDITION) {
		lost = true;
		if (lease_load(lease, lease->key, &other, NULL) < 0)
			other.etag[0] = '\0';
	}
	if (!lost)
		output = lease_check_output(lease, &other);
	*failed = r < 0 || output == LEASE_OUTPUT_UNKNOWN;
	if (lost || output == LEASE_OUTPUT_LOST)
		lose(lease, &other, !lost);
	else if (r < 0)
		log_debug("cannot write the run's state now: %s", err.message);
	else if (!*failed)
		lease_hold(lease);
	free(other.home);
	return !lost && output != LEASE_OUTPUT_LOST;
}

static void *renew(void *cookie)
{
	struct lease *lease = cookie;
	bool failed = false;
	const char *state;

	while (wait_turn(lease, failed, &state)) {
		if (!renew_once(lease, state, &failed))
			return NULL;
	}
	return NULL;
}

/* Makes the next renewal start at once. */
static void renew_now(struct lease *lease)
{
	MUST_HOLD(&lease->lock);
	if (lease->dirty)
		return;
	lease->dirty = true;
	pthread_cond_signal(&lease->wake);
}

/* The gate, which the engine's thread calls often. Fails if another owner may have the run. */
static int may_send(void *cookie, struct penstock_error *err)
{
	struct lease *lease = cookie;

	if (clock_boottime_ms() < atomic_load(&lease->held_until_ms))
		return 0;
	LOCK_SCOPE(&lease->lock);
	if (lease->lost)
		return error_set(err, PENSTOCK_E_PRECONDITION, "%s", lease->owner);
	atomic_fetch_add(&lease->refusals, 1);
	/* The process was suspended, or the store did not reply for a long time: the next renewal
	 * shows if this process still owns the run. */
	renew_now(lease);
	return error_set(err, PENSTOCK_E_UNAVAILABLE,
		"the ownership of run '%s' was not renewed for %d s; nothing is published until it "
		"is renewed",
		lease->options.run_id, (int)(lease->term_ms * 5 / 6 / 1000));
}

/* Waits until a renewal has confirmed the ownership. Returns false if the ownership is lost or
 * *cancel is set. */
static bool wait_for_renewal(struct lease *lease, const atomic_int *cancel)
{
	if (clock_boottime_ms() >= atomic_load(&lease->held_until_ms)) {
		LOCK_SCOPE(&lease->lock);
		renew_now(lease);
	}
	while (!lease_is_lost(lease) && !atomic_load(cancel)) {
		if (clock_boottime_ms() < atomic_load(&lease->held_until_ms))
			return true;
		clock_sleep_ms(POLL_MS);
	}
	return false;
}

int lease_perform(struct lease *lease, const atomic_int *cancel,
	int (*fn)(void *cookie, struct penstock_error *err), void *cookie,
	struct penstock_error *err)
{
	for (;;) {
		_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
		unsigned long refusals;
		int r;

		if (!wait_for_renewal(lease, cancel))
			return lease_is_lost(lease)
				       ? error_set(err, PENSTOCK_E_EXISTS, "%s",
						 lease_owner_now(lease))
				       : error_set(err, PENSTOCK_E_CANCELLED,
						 "ended while the ownership was renewed");
		refusals = atomic_load(&lease->refusals);
		r = fn(cookie, &e);
		if (r != -(int)PENSTOCK_E_UNAVAILABLE || refusals == atomic_load(&lease->refusals))
			return r < 0 ? error_move(err, &e) : r;
	}
}

int lease_attempt(const struct lease *lease)
{
	return lease->options.attempt;
}

const struct http_gate *lease_gate(const struct lease *lease)
{
	return &lease->gate;
}

const char *lease_owner_now(const struct lease *lease)
{
	return lease->owner;
}

void lease_set(struct lease *lease, const char *state)
{
	if (!lease)
		return;
	LOCK_SCOPE(&lease->lock);
	lease->state = state;
	lease->dirty = true;
	pthread_cond_signal(&lease->wake);
}

void lease_set_steps(struct lease *lease, size_t done)
{
	if (lease)
		atomic_store(&lease->steps_done, (int)done);
}

void lease_set_sync(struct lease *lease, const struct records_sync *sync)
{
	if (!lease)
		return;
	LOCK_SCOPE(&lease->lock);
	lease->sync = *sync;
	lease->sync.last_error = NULL;
	lease->has_sync = true;
}

bool lease_is_lost(struct lease *lease)
{
	if (!lease)
		return false;
	LOCK_SCOPE(&lease->lock);
	return lease->lost;
}

bool lease_moved_to(struct lease *lease, struct lease_found *found)
{
	if (!lease_is_lost(lease) || !lease->owner_attempt)
		return false;
	found->attempt = lease->owner_attempt;
	snprintf(found->host, sizeof(found->host), "%s", lease->owner_host);
	snprintf(found->state, sizeof(found->state), "%s", lease->owner_state);
	return true;
}

/* Returns the term. $PENSTOCK_LEASE_TERM sets the term in seconds, for slow stores and machines,
 * and for tests. */
static int64_t term_ms(void)
{
	const char *given = getenv("PENSTOCK_LEASE_TERM");
	uint64_t seconds;

	if (given && str_to_u64(given, LEASE_TERM_MIN_S, LEASE_TERM_MAX_S, &seconds))
		return (int64_t)seconds * 1000;
	return LEASE_TERM_MS;
}

static void lease_free(struct lease *lease)
{
	pthread_mutex_destroy(&lease->lock);
	pthread_cond_destroy(&lease->wake);
	free(lease->key);
	free(lease->output_key);
	json_decref(lease->earlier);
	free(lease);
}

int lease_take(struct lease **out, const struct lease_options *options, struct lease_found *found,
	struct penstock_error *err)
{
	struct lease *lease = calloc(1, sizeof(*lease));
	struct process_info self = {0};
	struct utsname system;
	int r;

	if (!lease)
		return error_memory(err);
	pthread_mutex_init(&lease->lock, NULL);
	clock_cond_init(&lease->wake);
	lease->state = "staging";
	lease->term_ms = term_ms();
	lease->gate = (struct http_gate){may_send, lease};
	/* Machines are distinguished by the boot ID of their kernel; $PENSTOCK_MACHINE
	 * distinguishes machines that share a kernel. */
	const char *given = getenv("PENSTOCK_MACHINE");

	if (given && *given)
		snprintf(lease->boot_id, sizeof(lease->boot_id), "%.*s", PROCESS_BOOT_ID_SIZE - 1,
			given);
	else
		process_boot_id(lease->boot_id);
	if (readlink("/proc/self/ns/pid", lease->pid_ns, sizeof(lease->pid_ns) - 1) < 0)
		lease->pid_ns[0] = '\0';
	process_info(getpid(), &self);
	lease->start_ticks = self.start_ticks;
	clock_format_rfc3339(clock_wall_ns(), lease->since);
	uname(&system);
	snprintf(lease->host, sizeof(lease->host), "%.64s", system.nodename);
	lease->options = *options;
	snprintf(lease->home_id, sizeof(lease->home_id), "%s", options->home_id);
	lease->options.home_id = lease->home_id;
	lease->key = str_printf("%s%s/state.json", options->prefix, options->state_prefix);
	lease->output_key = str_printf("%s.penstock/owner.json", options->prefix);
	r = lease->key && lease->output_key ? lease_take_state(lease, found, err)
					    : error_memory(err);
	if (r == 0) {
		r = thread_start(&lease->thread, "lease", renew, lease, err);
		if (r < 0)
			lease_give_back(lease, found);
	}
	if (r < 0) {
		lease_free(lease);
		return r;
	}
	*out = lease;
	return 0;
}

int lease_release(struct lease *lease, const struct lease_end *end, struct penstock_error *err)
{
	int r = 0;

	if (!lease)
		return 0;
	pthread_mutex_lock(&lease->lock);
	lease->stopping = true;
	pthread_cond_signal(&lease->wake);
	pthread_mutex_unlock(&lease->lock);
	pthread_join(lease->thread, NULL);
	lease->end = *end;
	if (!lease->lost || lease->output_lost) {
		struct seen other = {0};
		r = lease_still_ours(lease, &other, err);
		if (r == 0)
			r = error_set(err, PENSTOCK_E_PRECONDITION,
				"cannot write the state of run '%s': another owner has it",
				lease->options.run_id);
		else if (r > 0)
			r = lease_write_state(lease, end->state, err);
		free(other.home);
	}
	if (lease->lost && r == 0)
		r = error_set(err, PENSTOCK_E_PRECONDITION, "%s", lease->owner);
	lease_free(lease);
	return r;
}
