#include "run/lease.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process.h"
#include "base/str.h"
#include "run/lease_internal.h"
#include "transfer/objects.h"
#include "base/banned.h"

enum { WATCH_MS = 1000, LOOK_MS = 20, TERM_MIN_S = 1, TERM_MAX_S = 600 };

/* ---- the object ---- */

static char *compose(struct lease *lease, const char *state)
{
	char now[CLOCK_RFC3339_SIZE];
	char *text;
	json_t *root;

	clock_format_rfc3339(clock_wall_ns(), now);
	root = json_pack(
		"{s:i, s:s, s:s*, s:i, s:i, s:s, s:s*, s:i, s:{s:s, s:s, s:s, s:I, s:I, s:s, "
		"s:s, s:s}, s:{s:i, s:I}, s:s}",
		"format", LEASE_FORMAT, "run", lease->options.run_id, "name", lease->options.name,
		"attempt", lease->options.attempt, "began", lease->began, "state", state, "class",
		lease->class, "exit_code", lease->exit_code, "owner", "host", lease->host,
		"boot_id", lease->boot_id, "pid_ns", lease->pid_ns, "pid", (json_int_t)getpid(),
		"start_ticks", (json_int_t)lease->start_ticks, "home", lease->options.home,
		"home_id", lease->options.home_id, "since", lease->since, "lease", "term_ms",
		(int)lease->term_ms, "beat", (json_int_t)lease->beat, "updated", now);
	text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
	json_decref(root);
	return text;
}

static int write_text(struct lease *lease, const char *text, size_t len, struct penstock_error *err)
{
	struct object_put_options options = {
		.content_type = "application/json",
		.if_match = lease->etag[0] ? lease->etag : NULL,
		.if_none_match = !lease->etag[0],
		.ungated = true,
	};
	struct object_info info = {0};
	int64_t asked_ms = clock_boottime_ms();
	int r = object_put(lease->options.client, lease->options.bucket, lease->key, text, len,
		&options, &info, err);

	if (r < 0)
		return r;
	snprintf(lease->etag, sizeof(lease->etag), "%s", info.etag);
	object_info_release(&info);
	lease->asked_ms = asked_ms;
	return 0;
}

static int write_once(struct lease *lease, const char *state, struct penstock_error *err)
{
	_cleanup_free_ char *text = NULL;

	lease->beat++;
	text = compose(lease, state);
	return text ? write_text(lease, text, strlen(text), err) : error_memory(err);
}

/*
 * Opens the gate, when the last write counts and the output is found to be ours after it. Whoever contends saw that write
 * at the earliest when it was asked for, and watches for a whole term.
 */
static void hold(struct lease *lease)
{
	atomic_store(&lease->held_until_ms, lease->asked_ms + lease->term_ms * 5 / 6);
}

static void copy_string(char *out, size_t size, const json_t *value)
{
	snprintf(out, size, "%s", json_is_string(value) ? json_string_value(value) : "");
}

/* False: it is not of a format that is known here; `seen->format` is 0 where it has none. */
static bool parse(const struct buf *text, struct seen *seen)
{
	json_t *root = json_loadb(buf_str(text), text->len, 0, NULL);
	json_int_t attempt = json_integer_value(json_object_get(root, "attempt"));
	json_int_t began = json_integer_value(json_object_get(root, "began"));
	const json_t *owner = json_object_get(root, "owner");
	const json_t *home = json_object_get(owner, "home");

	seen->format = json_integer_value(json_object_get(root, "format"));
	copy_string(seen->run, sizeof(seen->run), json_object_get(root, "run"));
	copy_string(seen->state, sizeof(seen->state), json_object_get(root, "state"));
	copy_string(seen->since, sizeof(seen->since), json_object_get(owner, "since"));
	copy_string(seen->host, sizeof(seen->host), json_object_get(owner, "host"));
	copy_string(seen->boot_id, sizeof(seen->boot_id), json_object_get(owner, "boot_id"));
	copy_string(seen->pid_ns, sizeof(seen->pid_ns), json_object_get(owner, "pid_ns"));
	free(seen->home);
	seen->home = json_is_string(home) ? strdup(json_string_value(home)) : NULL;
	copy_string(seen->home_id, sizeof(seen->home_id), json_object_get(owner, "home_id"));
	/* The next attempt is one more; who wrote another number wrote nothing that counts. */
	seen->attempt = attempt > 0 && attempt < INT_MAX ? (int)attempt : 0;
	seen->began = began > 0 && began <= seen->attempt ? (int)began : 0;
	seen->pid = json_integer_value(json_object_get(owner, "pid"));
	seen->start_ticks = json_integer_value(json_object_get(owner, "start_ticks"));
	seen->term_ms = json_integer_value(
		json_object_get(json_object_get(root, "lease"), "term_ms"));
	if (seen->term_ms < TERM_MIN_S * 1000 || seen->term_ms > TERM_MAX_S * 1000)
		seen->term_ms = LEASE_TERM_MS;
	json_decref(root);
	return seen->format == LEASE_FORMAT;
}

/* Whoever owns it may live: nothing that was read of it says that it does not. */
static int refuse_format(const struct lease *lease, const char *key, const struct seen *seen,
	struct penstock_error *err)
{
	if (seen->format > LEASE_FORMAT)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"%s://%s/%s was written by a newer penstock (format %lld): use that one, "
			"or "
			"begin another run with --name and another output",
			object_client_scheme(lease->options.client), lease->options.bucket, key,
			(long long)seen->format);
	return error_set(err, PENSTOCK_E_CORRUPT,
		"%s://%s/%s is not what penstock writes there, so nobody can tell whether its "
		"owner "
		"lives: look at it, and delete it if nothing writes to this output",
		object_client_scheme(lease->options.client), lease->options.bucket, key);
}

static int look(struct lease *lease, const char *key, struct seen *seen, struct buf *text,
	struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	struct object_info info = {0};
	int r = object_get(lease->options.client, lease->options.bucket, key,
		&(struct object_get_options){.cancel = lease->options.cancel}, text, &info, &e);

	seen->etag[0] = '\0';
	if (r == -(int)PENSTOCK_E_NOT_FOUND)
		return 0;
	if (r < 0)
		return error_move(err, &e);
	snprintf(seen->etag, sizeof(seen->etag), "%s", info.etag);
	object_info_release(&info);
	return parse(text, seen) ? 0 : refuse_format(lease, key, seen, err);
}

int lease_look(struct lease *lease, const char *key, struct seen *seen, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STATE_OBJECT);

	return look(lease, key, seen, &text, err);
}

/* Whether this very process wrote it. */
static bool is_own(const struct lease *lease, const struct seen *seen)
{
	return seen->etag[0] && strcmp(seen->boot_id, lease->boot_id) == 0 &&
	       strcmp(seen->pid_ns, lease->pid_ns) == 0 && seen->pid == getpid() &&
	       seen->start_ticks == (int64_t)lease->start_ticks;
}

/* Whether the state is as we wrote it last, or nobody's: 1, else 0 and `seen` is who has it. */
static int still_ours(struct lease *lease, struct seen *seen, struct penstock_error *err)
{
	int r = lease_look(lease, lease->key, seen, err);

	if (r < 0 && !seen->etag[0])
		return r;
	return !seen->etag[0] || is_own(lease, seen);
}

/*
 * A refusal may come of an earlier write of ours whose reply was lost, or of the object being
 * deleted: that is no other owner.
 */
static int write_state(struct lease *lease, const char *state, struct penstock_error *err)
{
	struct penstock_error e = PENSTOCK_ERROR_INIT;
	struct seen seen = {0};
	int r = write_once(lease, state, &e);

	if (r == -(int)PENSTOCK_E_PRECONDITION && lease_look(lease, lease->key, &seen, NULL) == 0 &&
		(is_own(lease, &seen) || (lease->etag[0] && !seen.etag[0]))) {
		penstock_error_release(&e);
		snprintf(lease->etag, sizeof(lease->etag), "%s", seen.etag);
		r = write_once(lease, state, &e);
	}
	free(seen.home);
	return r < 0 ? error_move(err, &e) : 0;
}

/* ---- taking it ---- */

/* A state that is not known here is not known to be an end. */
bool lease_state_is_live(const char *state)
{
	static const char *const ends[] = {"succeeded", "failed", "preempted", "stopped", "lost"};

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		if (strcmp(state, ends[i]) == 0)
			return false;
	}
	return true;
}

static bool has_ended_for_good(const char *state)
{
	return !strcmp(state, "succeeded") || !strcmp(state, "failed") || !strcmp(state, "stopped");
}

bool lease_owner_is_here(const struct lease *lease, const struct seen *seen)
{
	return seen->boot_id[0] && strcmp(seen->boot_id, lease->boot_id) == 0 &&
	       strcmp(seen->pid_ns, lease->pid_ns) == 0;
}

/* Owners before there were such ids have none. */
static bool has_our_home(const struct lease *lease, const struct seen *seen)
{
	return seen->home && strcmp(seen->home, lease->options.home) == 0 &&
	       (!seen->home_id[0] || strcmp(seen->home_id, lease->options.home_id) == 0);
}

/* Whether the records of this home are those of the owner. */
static bool has_our_records(const struct lease *lease, const struct seen *seen)
{
	return has_our_home(lease, seen) &&
	       (lease_owner_is_here(lease, seen) || strcmp(seen->host, lease->host) == 0);
}

bool lease_owner_runs(const struct seen *seen)
{
	struct process_info info;

	return process_info((pid_t)seen->pid, &info) && info.state != 'Z' &&
	       info.start_ticks == (uint64_t)seen->start_ticks;
}

static bool owner_lives_here(const struct lease *lease, const struct seen *seen)
{
	/* The same records: their lock, which we hold, says that it is gone. */
	if (has_our_home(lease, seen))
		return false;
	return lease_owner_runs(seen);
}

static int refuse(const struct lease *lease, const struct seen *seen, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_EXISTS,
		"run %s is live on %s (process %d, attempt %d, since %s); end it there, or begin "
		"another with --name",
		lease->options.run_id, seen->host, (int)seen->pid, seen->attempt,
		seen->since[0] ? seen->since : "some time ago");
}

int lease_watch_term(
	struct lease *lease, const char *key, struct seen *seen, struct penstock_error *err)
{
	int64_t until = clock_monotonic_ms() + seen->term_ms;
	char first[OBJECT_ETAG_SIZE];
	char text[256];

	snprintf(text, sizeof(text), "run %s was live on %s: watching for %d s whether it still is",
		seen->run[0] ? seen->run : lease->options.run_id, seen->host,
		(int)(seen->term_ms / 1000));
	if (lease->options.waiting)
		lease->options.waiting(lease->options.cookie, text);
	snprintf(first, sizeof(first), "%s", seen->etag);
	for (int64_t left; (left = until - clock_monotonic_ms()) > 0;) {
		int r;

		if (lease->options.cancel && atomic_load(lease->options.cancel))
			return error_set(
				err, PENSTOCK_E_CANCELLED, "stopped while watching the owner");
		clock_sleep_ms(left < WATCH_MS ? left : WATCH_MS);
		r = lease_look(lease, key, seen, err);
		if (r < 0)
			return r;
		if (strcmp(first, seen->etag) != 0)
			return seen->etag[0] && lease_state_is_live(seen->state);
	}
	return 0;
}

int lease_can_take_over(
	struct lease *lease, const char *run, const struct seen *seen, struct penstock_error *err)
{
	struct object_conditions honoured = {0};
	const char *name = strrchr(lease->key, '/') + 1;
	_cleanup_free_ char *beside = strndup(lease->key, (size_t)(name - lease->key));
	int r;

	if (!beside)
		return error_memory(err);
	r = object_probe_conditions(
		lease->options.client, lease->options.bucket, beside, &honoured, err);
	if (r < 0)
		return r;
	/* A former owner that wakes up must not get a publish through either. */
	if (!honoured.put || !honoured.complete)
		return error_set(err, PENSTOCK_E_EXISTS,
			"run %s was live on %s, and this store ignores conditions, so nobody can "
			"tell who owns %s; if that machine is gone, %s",
			run, seen->host,
			strcmp(run, lease->options.run_id) == 0 ? "it" : "its output",
			strcmp(run, lease->options.run_id) == 0 ? "begin another with --name"
								: "give this run another output");
	return 0;
}

/* 0: the owner is gone, as far as anybody can tell. */
static int watch_owner(struct lease *lease, struct seen *seen, struct penstock_error *err)
{
	int r = lease_can_take_over(lease, lease->options.run_id, seen, err);

	if (r < 0)
		return r;
	r = lease_watch_term(lease, lease->key, seen, err);
	if (r > 0)
		return refuse(lease, seen, err);
	/* It lived when this was begun, so this is no new beginning of what has ended since. */
	if (r == 0 && seen->etag[0] && has_ended_for_good(seen->state))
		return error_set(err, PENSTOCK_E_EXISTS,
			"run %s has %s%s on %s while this waited for its end; 'penstock run' of "
			"its "
			"workflow begins it anew",
			lease->options.run_id, strcmp(seen->state, "stopped") == 0 ? "been " : "",
			seen->state, seen->host);
	return r;
}

/* The run is ours; whether its output is, comes after that, so that others see us meanwhile. */
static int take_output(struct lease *lease, const struct lease_found *found,
	const struct buf *before, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;

	if (lease_take_output(lease, &e) == 0)
		return 0;
	/* Nothing of this attempt has happened: what it was before goes on to be, with whose it was. */
	if (!before->len || write_text(lease, buf_str(before), before->len, NULL) < 0)
		write_state(lease,
			found->unfinished ? "lost"
			: found->any	  ? found->state
					  : "failed",
			NULL);
	return error_move(err, &e);
}

/*
 * Whether what is left here is older than what another home has put out since. The number of the last attempt here does not say
 * so: one that was refused, because the run is owned or has ended elsewhere, has a number, too, and was never more than that.
 */
static bool went_on_elsewhere(
	const struct lease *lease, const struct lease_found *found, const struct seen *seen)
{
	/* A home that was moved is still ours. */
	return found->any && !found->ours &&
	       (seen->attempt > lease->options.held ||
		       strcmp(seen->home_id, lease->options.home_id) != 0);
}

/* What this attempt is, counted over all machines; one that is only completed must be the last. */
static int number_attempt(struct lease *lease, const struct lease_found *found,
	const struct seen *seen, struct penstock_error *err)
{
	struct lease_options *o = &lease->options;

	if (o->completes && went_on_elsewhere(lease, found, seen))
		return error_set(err, PENSTOCK_E_EXISTS,
			"run %s went on elsewhere: attempt %d on %s came after what is left here, "
			"which would replace what is newer",
			o->run_id, seen->attempt, seen->host);
	if (o->attempt <= seen->attempt)
		o->attempt = o->completes ? seen->attempt : seen->attempt + 1;
	lease->began = found->began;
	return o->judge ? o->judge(o->judge_cookie, found, o->attempt, &lease->began, err) : 0;
}

/*
 * Somebody may have taken either while the other was asked for, and a store that ignores conditions lets two
 * write at the same moment. Where that took longer than the gate stays open, the next renewal opens it.
 */
static int confirm(struct lease *lease, struct penstock_error *err)
{
	struct seen seen = {0};
	int r = still_ours(lease, &seen, err);

	if (r == 0)
		r = error_set(err, PENSTOCK_E_EXISTS,
			"run %s was begun elsewhere at the same moment", lease->options.run_id);
	else if (r > 0)
		r = 0;
	if (r == 0 && lease_ask_output(lease, &seen) == LEASE_OUTPUT_OURS)
		hold(lease);
	free(seen.home);
	return r;
}

static int take(struct lease *lease, struct lease_found *found, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf before = BUF_INIT(LIMIT_STATE_OBJECT);
	struct seen seen = {0};
	int r = look(lease, lease->key, &seen, &before, err);

	if (r == 0 && seen.etag[0] && lease_state_is_live(seen.state)) {
		buf_clear(&before); /* it is live no more */
		if (!lease_owner_is_here(lease, &seen))
			r = watch_owner(lease, &seen, err);
		else if (owner_lives_here(lease, &seen))
			r = refuse(lease, &seen, err);
		else if (seen.home && *seen.home == '/' &&
			 strcmp(seen.home, lease->options.home) != 0)
			snprintf(found->home, sizeof(found->home), "%s", seen.home);
	}
	if (r == 0) {
		found->any = seen.etag[0] != '\0';
		found->attempt = seen.attempt;
		found->began = seen.began;
		snprintf(found->host, sizeof(found->host), "%s", seen.host);
		snprintf(found->state, sizeof(found->state), "%s", seen.state);
		found->ours = found->any && has_our_records(lease, &seen);
		/* "lost" is what a flush says of a run whose supervisor was killed. */
		found->unfinished = found->any && (lease_state_is_live(seen.state) ||
							  !strcmp(seen.state, "preempted") ||
							  !strcmp(seen.state, "lost"));
		r = number_attempt(lease, found, &seen, err);
		snprintf(lease->etag, sizeof(lease->etag), "%s", seen.etag);
		if (r == 0)
			r = write_state(lease, "staging", err);
		if (r == -(int)PENSTOCK_E_PRECONDITION)
			r = error_set(err, PENSTOCK_E_EXISTS,
				"run %s was begun elsewhere at the same moment",
				lease->options.run_id);
		if (r == 0)
			r = take_output(lease, found, &before, err);
		if (r == 0)
			r = confirm(lease, err);
	}
	free(seen.home);
	return r;
}

/* ---- keeping it ---- */

/* Waits for a change or the next beat, which comes sooner where the last one failed; false: the end. */
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
	const char *since = other->since[0] ? other->since : "some time ago";

	if (output_only)
		snprintf(lease->owner, sizeof(lease->owner),
			"run %s has its output now (on %s, since %s)", other->run, other->host,
			since);
	else if (!other->etag[0])
		snprintf(lease->owner, sizeof(lease->owner), "run %s belongs to somebody else now",
			lease->options.run_id);
	else
		snprintf(lease->owner, sizeof(lease->owner),
			"run %s is now attempt %d on %s (process %d, %s, since %s)",
			lease->options.run_id, other->attempt, other->host, (int)other->pid,
			other->state, since);
	atomic_store(&lease->held_until_ms, 0);
	pthread_mutex_lock(&lease->lock);
	lease->lost = true;
	lease->output_lost = output_only;
	pthread_mutex_unlock(&lease->lock);
	if (lease->options.lost)
		lease->options.lost(lease->options.cookie, lease->owner);
}

/*
 * False: it is lost. The state is looked at before it is written, for a store that ignores conditions would let us write over
 * who has it now.
 */
static bool renew_once(struct lease *lease, const char *state, bool *failed)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum lease_output output = LEASE_OUTPUT_OURS;
	struct seen other = {0};
	int r = still_ours(lease, &other, &err);
	bool lost = r == 0;

	if (r > 0)
		r = write_state(lease, state, &err);
	/* Both are changed only by who has watched us stand still for a whole term. */
	if (r == -(int)PENSTOCK_E_PRECONDITION) {
		lost = true;
		if (lease_look(lease, lease->key, &other, NULL) < 0)
			other.etag[0] = '\0';
	}
	if (!lost)
		output = lease_ask_output(lease, &other);
	*failed = r < 0 || output == LEASE_OUTPUT_UNKNOWN;
	if (lost || output == LEASE_OUTPUT_LOST)
		lose(lease, &other, !lost);
	else if (r < 0)
		log_debug("the run's state cannot be written now: %s", err.message);
	else if (!*failed)
		hold(lease);
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

/* The next renewal comes at once. */
static void poke(struct lease *lease)
{
	if (lease->dirty)
		return;
	lease->dirty = true;
	pthread_cond_signal(&lease->wake);
}

/* Whether nobody can have taken the run over yet; asked by the engine's thread, often. */
static int may_send(void *cookie, struct penstock_error *err)
{
	struct lease *lease = cookie;

	if (clock_boottime_ms() < atomic_load(&lease->held_until_ms))
		return 0;
	LOCK_SCOPE(&lease->lock);
	if (lease->lost)
		return error_set(err, PENSTOCK_E_PRECONDITION, "%s", lease->owner);
	atomic_fetch_add(&lease->refusals, 1);
	/* It was suspended, or the store did not answer for long: the next renewal tells. */
	poke(lease);
	return error_set(err, PENSTOCK_E_UNAVAILABLE,
		"the ownership of run %s could not be renewed for %d s; nothing is published until "
		"it is",
		lease->options.run_id, (int)(lease->term_ms * 5 / 6 / 1000));
}

unsigned long lease_refusals(const struct lease *lease)
{
	return lease ? atomic_load(&lease->refusals) : 0;
}

bool lease_wait(struct lease *lease, const atomic_int *cancel)
{
	if (lease && clock_boottime_ms() >= atomic_load(&lease->held_until_ms)) {
		LOCK_SCOPE(&lease->lock);
		poke(lease);
	}
	while (lease && !lease_is_lost(lease) && !atomic_load(cancel)) {
		if (clock_boottime_ms() < atomic_load(&lease->held_until_ms))
			return true;
		clock_sleep_ms(LOOK_MS);
	}
	return false;
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

bool lease_is_lost(struct lease *lease)
{
	if (!lease)
		return false;
	LOCK_SCOPE(&lease->lock);
	return lease->lost;
}

/* $PENSTOCK_LEASE_TERM, in seconds: for stores and machines that answer slowly, and for tests. */
static int64_t term_ms(void)
{
	const char *given = getenv("PENSTOCK_LEASE_TERM");
	uint64_t seconds;

	if (given && str_to_u64(given, TERM_MIN_S, TERM_MAX_S, &seconds))
		return (int64_t)seconds * 1000;
	return LEASE_TERM_MS;
}

/* Another kernel is another machine; $PENSTOCK_MACHINE tells apart what shares one. */
static void name_machine(struct lease *lease)
{
	const char *given = getenv("PENSTOCK_MACHINE");

	if (given && *given)
		snprintf(lease->boot_id, sizeof(lease->boot_id), "%.*s", PROCESS_BOOT_ID_SIZE - 1,
			given);
	else
		process_boot_id(lease->boot_id);
}

static void lease_free(struct lease *lease)
{
	pthread_mutex_destroy(&lease->lock);
	pthread_cond_destroy(&lease->wake);
	free((char *)(uintptr_t)lease->options.bucket);
	free((char *)(uintptr_t)lease->options.prefix);
	free((char *)(uintptr_t)lease->options.run_id);
	free((char *)(uintptr_t)lease->options.name);
	free((char *)(uintptr_t)lease->options.home);
	free((char *)(uintptr_t)lease->options.home_id);
	free(lease->key);
	free(lease->output_key);
	free(lease);
}

static int copy_options(struct lease *lease, const struct lease_options *given)
{
	struct lease_options *o = &lease->options;

	*o = *given;
	o->bucket = strdup(given->bucket);
	o->prefix = strdup(given->prefix);
	o->run_id = strdup(given->run_id);
	o->name = given->name ? strdup(given->name) : NULL;
	o->home = strdup(given->home);
	o->home_id = strdup(given->home_id);
	o->state_prefix = NULL;
	if (asprintf(&lease->key, "%s%s/state.json", given->prefix, given->state_prefix) < 0)
		lease->key = NULL;
	if (asprintf(&lease->output_key, "%s.penstock/owner.json", given->prefix) < 0)
		lease->output_key = NULL;
	if (!o->bucket || !o->prefix || !o->run_id || !o->home || !o->home_id || !lease->key ||
		!lease->output_key || (given->name && !o->name))
		return -1;
	return 0;
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
	name_machine(lease);
	if (readlink("/proc/self/ns/pid", lease->pid_ns, sizeof(lease->pid_ns) - 1) < 0)
		lease->pid_ns[0] = '\0';
	process_info(getpid(), &self);
	lease->start_ticks = self.start_ticks;
	clock_format_rfc3339(clock_wall_ns(), lease->since);
	uname(&system);
	snprintf(lease->host, sizeof(lease->host), "%.64s", system.nodename);
	r = copy_options(lease, options) < 0 ? error_memory(err) : take(lease, found, err);
	if (r == 0) {
		int e = pthread_create(&lease->thread, NULL, renew, lease);

		if (e)
			r = error_errno(err, e, "cannot start a thread");
	}
	if (r < 0) {
		lease_free(lease);
		return r;
	}
	*out = lease;
	return 0;
}

static int write_end(struct lease *lease, const char *state, struct penstock_error *err)
{
	struct seen other = {0};
	int r = still_ours(lease, &other, err);

	if (r == 0)
		r = error_set(err, PENSTOCK_E_PRECONDITION, "run %s belongs to another owner now",
			lease->options.run_id);
	else if (r > 0)
		r = write_state(lease, state, err);
	free(other.home);
	return r;
}

int lease_release(struct lease *lease, const char *state, const char *class, int exit_code,
	struct penstock_error *err)
{
	int r = 0;

	if (!lease)
		return 0;
	pthread_mutex_lock(&lease->lock);
	lease->stopping = true;
	pthread_cond_signal(&lease->wake);
	pthread_mutex_unlock(&lease->lock);
	pthread_join(lease->thread, NULL);
	lease->class = class && *class ? class : NULL;
	lease->exit_code = exit_code;
	if (!lease->lost || lease->output_lost)
		r = write_end(lease, state, err);
	if (lease->lost && r == 0)
		r = error_set(err, PENSTOCK_E_PRECONDITION, "%s", lease->owner);
	lease_free(lease);
	return r;
}
