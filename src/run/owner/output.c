/*
 * Owner of an output. Two runs must not write to one output at a time: each would overwrite the
 * other's files. PREFIX.penstock/owner.json names the run that writes to the output. The state
 * object of that run says if the run is live, so owner.json is written only when a run takes the
 * output or gives the output back, and never renewed.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/process/process.h"
#include "records/layout.h"
#include "run/owner/lease_internal.h"
#include "transfer/objects.h"

enum { TRIES = 8 };

/* Makes `run` the owner, if owner.json still has the ETag `output_etag`. With `taking`, the run
 * does not write to the output yet, and may give the output back. */
static int write_owner(
	struct lease *lease, const char *run, bool taking, struct penstock_error *err)
{
	bool own = strcmp(run, lease->options.run_id) == 0;
	json_auto_t *root = json_pack("{s:i, s:s, s:s*, s:s, s:s, s:b}", "format", LEASE_FORMAT,
		"run", run, "name", own ? lease->options.name : NULL, "host", lease->host, "since",
		lease->since, "taking", taking);
	_cleanup_free_ char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;

	if (!text)
		return error_memory(err);
	return lease_put(lease, lease->output_key, lease->output_etag, text, strlen(text), err);
}

static int refuse(struct lease *lease, const struct seen *other, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_EXISTS,
		"cannot write to '%s://%s/%s': run '%s' writes there (on %s, process %d, attempt "
		"%d%s%s); wait for it, stop it there, or give this run another output",
		object_client_scheme(lease->options.client), lease->options.bucket,
		lease->options.prefix, other->run, other->host, (int)other->pid, other->attempt,
		other->since[0] ? ", since " : "", other->since);
}

static char *state_key(const struct lease *lease, const char *run)
{
	return str_printf("%s" RUN_STATE_ROOT "%s/state.json", lease->options.prefix, run);
}

/* Checks the run that owner.json names. Returns 0 if that run no longer writes. `checked` gets the
 * ETag of its state. */
static int check_owner(struct lease *lease, const char *run, char checked[static OBJECT_ETAG_SIZE],
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STATE_OBJECT);
	_cleanup_free_ char *key = state_key(lease, run);
	struct seen other = {0};
	int r;

	if (!key)
		return error_memory(err);
	r = lease_load(lease, key, &other, err);
	snprintf(other.run, sizeof(other.run), "%s", run);
	if (r == 0 && other.etag[0] && lease_state_is_live(other.state)) {
		if (lease_owner_is_here(lease, &other))
			r = lease_owner_runs(&other);
		else if ((r = lease_can_take_over(lease, run, &other, err)) == 0)
			r = lease_watch_term(lease, key, &other, &text, err);
		snprintf(other.run, sizeof(other.run), "%s", run);
	}
	if (r > 0)
		r = refuse(lease, &other, err);
	snprintf(checked, OBJECT_ETAG_SIZE, "%s", other.etag);
	free(other.home);
	return r;
}

/*
 * Checks again after the write: the former owner may have restarted or resumed in between, and
 * found that it owns the output. If two runs write first and check after that, at least one sees
 * the other, and gives the output back. Until this check has ended, the former owner waits.
 */
static int check_again(
	struct lease *lease, const char *run, const char *checked, struct penstock_error *err)
{
	_cleanup_free_ char *key = state_key(lease, run);
	struct seen other = {0};
	int r;

	if (!key)
		return error_memory(err);
	r = lease_load(lease, key, &other, err);
	if (r == 0 && other.etag[0] && strcmp(other.etag, checked) != 0 &&
		lease_state_is_live(other.state)) {
		write_owner(lease, run, false, NULL);
		snprintf(other.run, sizeof(other.run), "%s", run);
		r = refuse(lease, &other, err);
	}
	free(other.home);
	return r;
}

int lease_take_output(struct lease *lease, struct penstock_error *err)
{
	for (unsigned n = 0; n < TRIES; n++) {
		_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
		struct seen owner = {0};
		int r = lease_load(lease, lease->output_key, &owner, err);

		free(owner.home);
		if (r < 0)
			return r;
		snprintf(lease->output_etag, sizeof(lease->output_etag), "%s", owner.etag);
		bool own = strcmp(owner.run, lease->options.run_id) == 0;
		if (owner.etag[0] && own && !owner.taking)
			return 0;
		/* If the output was another run's, check that run before and after the write. */
		bool another = owner.run[0] && !own &&
			       !strchr(owner.run, '/'); /* an invalid id names no run */
		char checked[OBJECT_ETAG_SIZE] = "";
		r = another ? check_owner(lease, owner.run, checked, &e) : 0;
		if (r == 0)
			r = write_owner(lease, lease->options.run_id, another, &e);
		if (r == 0 && another)
			r = check_again(lease, owner.run, checked, &e);
		if (r == 0 && another)
			r = write_owner(lease, lease->options.run_id, false, &e);
		if (r == 0)
			return 0;
		/* Another run was quicker, or a reply was lost: try again. */
		if (r != -(int)PENSTOCK_E_PRECONDITION && r != -(int)PENSTOCK_E_NOT_FOUND)
			return error_move(err, &e);
	}
	return error_set(err, PENSTOCK_E_EXISTS,
		"cannot take over '%s://%s/%s': other runs keep taking it over; give this run "
		"another output",
		object_client_scheme(lease->options.client), lease->options.bucket,
		lease->options.prefix);
}

enum lease_output lease_check_output(struct lease *lease, struct seen *owner)
{
	int64_t now = clock_monotonic_ms();

	owner->etag[0] = owner->run[0] = '\0';
	if (lease_load(lease, lease->output_key, owner, NULL) < 0 && !owner->etag[0])
		return LEASE_OUTPUT_UNKNOWN;
	/* A deleted object names no other run, and an unreadable object is not a takeover. */
	if (!owner->etag[0] || !owner->run[0] || strcmp(owner->run, lease->options.run_id) == 0) {
		lease->doubted_ms = 0;
		return LEASE_OUTPUT_OURS;
	}
	if (!owner->taking)
		return LEASE_OUTPUT_LOST;
	if (!lease->doubted_ms)
		lease->doubted_ms = now;
	if (now - lease->doubted_ms < lease->term_ms)
		return LEASE_OUTPUT_UNKNOWN;
	/* The other run was killed before it decided: take the output back. */
	snprintf(lease->output_etag, sizeof(lease->output_etag), "%s", owner->etag);
	return write_owner(lease, lease->options.run_id, false, NULL) == 0 ? LEASE_OUTPUT_OURS
									   : LEASE_OUTPUT_UNKNOWN;
}

/* ---- contenders ---- */

bool lease_owner_is_here(const struct lease *lease, const struct seen *seen)
{
	return seen->boot_id[0] && strcmp(seen->boot_id, lease->boot_id) == 0 &&
	       strcmp(seen->pid_ns, lease->pid_ns) == 0;
}

bool lease_owner_runs(const struct seen *seen)
{
	struct process_info info;

	return process_info((pid_t)seen->pid, &info) && info.state != 'Z' &&
	       info.start_ticks == (uint64_t)seen->start_ticks;
}

enum { WATCH_MS = 1000 };

int lease_watch_term(struct lease *lease, const char *key, struct seen *seen, struct buf *last,
	struct penstock_error *err)
{
	int64_t until = clock_monotonic_ms() + seen->term_ms;
	char first[OBJECT_ETAG_SIZE];
	char text[256];

	snprintf(text, sizeof(text),
		"run %s was live on %s: watching for %d s to see if it still is",
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
		buf_clear(last);
		r = lease_load_text(lease, key, seen, last, err);
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
	_cleanup_free_ char *folder = strndup(lease->key, (size_t)(name - lease->key));
	int r;

	if (!folder)
		return error_memory(err);
	r = object_probe_conditions(
		object_at(lease->options.client, lease->options.bucket, folder), &honoured, err);
	if (r < 0)
		return r;
	/* The store must also refuse the Complete of an upload that a former owner has started. */
	if (!honoured.put || !honoured.complete)
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot determine the owner of %s: run '%s' was live on %s, and this "
			"store ignores conditional writes; if that machine is gone, %s",
			strcmp(run, lease->options.run_id) == 0 ? "the run" : "the output", run,
			seen->host,
			strcmp(run, lease->options.run_id) == 0 ? "start another run with --name"
								: "give this run another output");
	return 0;
}
