/* Taking a run and its output. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/process/process.h"
#include "run/owner/lease_internal.h"
#include "transfer/objects.h"

/* Returns true if the state names our home. An older version wrote states without a home id. */
static bool has_our_home(const struct lease *lease, const struct seen *seen)
{
	return seen->home && strcmp(seen->home, lease->options.home) == 0 &&
	       (!seen->home_id[0] || strcmp(seen->home_id, lease->options.home_id) == 0);
}

static int refuse(const struct lease *lease, const struct seen *seen, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_EXISTS,
		"cannot start run '%s': it is live on %s (process %d, attempt %d%s%s); stop it "
		"there, or start another run with --name",
		lease->options.run_id, seen->host, (int)seen->pid, seen->attempt,
		seen->since[0] ? ", since " : "", seen->since);
}

/* Watches the state object for a term. Returns 0 if the owner is gone. */
static int watch_owner(
	struct lease *lease, struct seen *seen, struct buf *last, struct penstock_error *err)
{
	int r = lease_can_take_over(lease, lease->options.run_id, seen, err);

	if (r < 0)
		return r;
	r = lease_watch_term(lease, lease->key, seen, last, err);
	if (r > 0)
		return refuse(lease, seen, err);
	/* The owner was live when the wait began: its end must not be undone by a start from
	 * scratch. */
	if (r == 0 && seen->etag[0] &&
		(!strcmp(seen->state, "succeeded") || !strcmp(seen->state, "failed") ||
			!strcmp(seen->state, "stopped")))
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot start run '%s': it has %s%s on %s while this process waited for "
			"its end; 'penstock run' of its workflow starts it from scratch",
			lease->options.run_id, strcmp(seen->state, "stopped") == 0 ? "been " : "",
			seen->state, seen->host);
	return r;
}

void lease_give_back(struct lease *lease, const struct lease_found *found)
{
	lease_write_state(lease,
		found->unfinished ? "lost"
		: found->any	  ? found->state
				  : "failed",
		NULL);
}

/* Takes the output. The attempt already owns the run, so that other runs see a live run
 * meanwhile. */
static int take_output(struct lease *lease, const struct lease_found *found,
	const struct buf *before, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;

	if (lease_take_output(lease, &e) == 0)
		return 0;
	/* This attempt has done nothing yet: restore the previous state and owner. */
	if (!before->len || lease_write_text(lease, buf_str(before), before->len, NULL) < 0)
		lease_give_back(lease, found);
	return error_move(err, &e);
}

/*
 * Returns true if the output here is older than another home's. The number of the last attempt here
 * proves nothing: an attempt that was refused, because the run is owned or ended elsewhere, has a
 * number too and never owned the run.
 */
static bool is_superseded(
	const struct lease *lease, const struct lease_found *found, const struct seen *seen)
{
	/* Compare the ids: a home that was moved has another path and the same id. */
	return found->any && !found->ours &&
	       (seen->attempt > lease->options.held ||
		       strcmp(seen->home_id, lease->options.home_id) != 0);
}

/* Chooses the attempt's number, which is counted over all machines. An attempt that `penstock
 * flush` completes must be the last one. */
static int number_attempt(struct lease *lease, const struct lease_found *found,
	const struct seen *seen, struct penstock_error *err)
{
	struct lease_options *o = &lease->options;

	if (o->completes && is_superseded(lease, found, seen))
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot flush run '%s': it continued elsewhere, and the output of attempt %d "
			"on %s is newer than the output here",
			o->run_id, seen->attempt, seen->host);
	if (o->attempt <= seen->attempt)
		o->attempt = o->completes ? seen->attempt : seen->attempt + 1;
	lease->began = found->began;
	if (o->decide) {
		int r = o->decide(o->decide_cookie, found, o->attempt, &lease->began, err);

		if (r < 0)
			return r;
	}
	atomic_store(&lease->steps_done, lease->began == o->attempt ? 0 : seen->steps_done);
	return 0;
}

/*
 * Checks both objects after they were written: another run may have taken one of them meanwhile,
 * and a store that ignores conditions lets two processes write at the same moment. If these checks
 * took longer than the gate stays open, the next renewal opens the gate.
 */
static int confirm(struct lease *lease, struct penstock_error *err)
{
	struct seen seen = {0};
	int r = lease_still_ours(lease, &seen, err);

	if (r == 0)
		r = error_set(err, PENSTOCK_E_EXISTS,
			"cannot start run '%s': it was started elsewhere at the same moment",
			lease->options.run_id);
	else if (r > 0)
		r = 0;
	if (r == 0 && lease_check_output(lease, &seen) == LEASE_OUTPUT_OURS)
		lease_hold(lease);
	free(seen.home);
	return r;
}

int lease_take_state(struct lease *lease, struct lease_found *found, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf before = BUF_INIT(LIMIT_STATE_OBJECT),
					  last = BUF_INIT(LIMIT_STATE_OBJECT);
	struct seen seen = {0};
	int r = lease_load_text(lease, lease->key, &seen, &before, err);
	bool live = r == 0 && seen.etag[0] && lease_state_is_live(seen.state);

	if (live) {
		if (!lease_owner_is_here(lease, &seen))
			r = watch_owner(lease, &seen, &last, err);
		else if (!has_our_home(lease, &seen) && lease_owner_runs(&seen))
			/* An owner that used the records of this home is gone, because this process
			 * holds the lock of the run in these records. */
			r = refuse(lease, &seen, err);
		else if (seen.home && *seen.home == '/' &&
			 strcmp(seen.home, lease->options.home) != 0)
			snprintf(found->home, sizeof(found->home), "%s", seen.home);
	}
	if (lease->options.completes && seen.since[0])
		snprintf(lease->since, sizeof(lease->since), "%s", seen.since);
	found->refused = r == -(int)PENSTOCK_E_EXISTS;
	found->attempt = seen.attempt;
	snprintf(found->host, sizeof(found->host), "%s", seen.host);
	snprintf(found->state, sizeof(found->state), "%s", seen.state);
	if (r == 0) {
		found->any = seen.etag[0] != '\0';
		found->began = seen.began;
		found->ours = found->any && has_our_home(lease, &seen) &&
			      (lease_owner_is_here(lease, &seen) ||
				      strcmp(seen.host, lease->host) == 0);
		/* A flush writes "lost" for a run whose supervisor was killed, and the end of an
		 * attempt for a run that is to be continued. */
		found->unfinished = found->any && (lease_state_is_live(seen.state) ||
							  !strcmp(seen.state, "preempted") ||
							  !strcmp(seen.state, "lost"));
		r = number_attempt(lease, found, &seen, err);
		if (r == 0 && seen.etag[0])
			r = lease_keep_attempts(lease, last.len ? &last : &before, err);
		if (live)
			buf_clear(&before); /* a live state must not be restored */
		snprintf(lease->etag, sizeof(lease->etag), "%s", seen.etag);
		if (r == 0)
			r = lease_write_state(lease, "staging", err);
		if (r == -(int)PENSTOCK_E_PRECONDITION)
			r = error_set(err, PENSTOCK_E_EXISTS,
				"cannot start run '%s': it was started elsewhere at the same "
				"moment",
				lease->options.run_id);
		if (r == 0)
			r = take_output(lease, found, &before, err);
		if (r == 0)
			r = confirm(lease, err);
	}
	free(seen.home);
	return r;
}
