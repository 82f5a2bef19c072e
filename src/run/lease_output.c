/*
 * Two runs must not write to one output at a time: each would overwrite what the other one publishes.
 * PREFIX.penstock/owner.json names the run that writes there. Whether that run lives, its own state
 * object says; so this one is written once, when a run takes the output, and never renewed.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "run/lease_internal.h"
#include "base/banned.h"

enum { TRIES = 8 };

static int write_owner(struct lease *lease, const char *etag, const char *run, const char *name,
	struct penstock_error *err)
{
	struct object_put_options options = {
		.content_type = "application/json",
		.if_match = etag[0] ? etag : NULL,
		.if_none_match = !etag[0],
		.ungated = true,
	};
	struct object_info info = {0};
	json_t *root = json_pack("{s:i, s:s, s:s*, s:s, s:s}", "format", LEASE_FORMAT, "run", run,
		"name", name, "host", lease->host, "since", lease->since);
	_cleanup_free_ char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
	int r;

	json_decref(root);
	if (!text)
		return error_memory(err);
	r = object_put(lease->options.client, lease->options.bucket, lease->output_key, text,
		strlen(text), &options, &info, err);
	if (r < 0)
		return r;
	snprintf(lease->output_etag, sizeof(lease->output_etag), "%s", info.etag);
	object_info_release(&info);
	return 0;
}

static int refuse(struct lease *lease, const struct seen *other, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_EXISTS,
		"run %s writes to %s://%s/%s (on %s, process %d, attempt %d, since %s); wait for "
		"it, end it there, or give this run another output",
		other->run, object_client_scheme(lease->options.client), lease->options.bucket,
		lease->options.prefix, other->host, (int)other->pid, other->attempt,
		other->since[0] ? other->since : "some time ago");
}

static char *state_key(const struct lease *lease, const char *run)
{
	char *key;

	return asprintf(&key, "%s.penstock/runs/%s/state.json", lease->options.prefix, run) < 0
		       ? NULL
		       : key;
}

/* 0: the run that owner.json names writes nothing any more, by the state that has the ETag `judged`. */
static int ask_owner(struct lease *lease, const char *run, char judged[static OBJECT_ETAG_SIZE],
	struct penstock_error *err)
{
	_cleanup_free_ char *key = state_key(lease, run);
	struct seen other = {0};
	int r;

	if (!key)
		return error_memory(err);
	r = lease_look(lease, key, &other, err);
	snprintf(other.run, sizeof(other.run), "%s", run);
	if (r == 0 && other.etag[0] && lease_state_is_live(other.state)) {
		if (lease_owner_is_here(lease, &other))
			r = lease_owner_runs(&other);
		else if ((r = lease_can_take_over(lease, run, &other, err)) == 0)
			r = lease_watch_term(lease, key, &other, err);
		snprintf(other.run, sizeof(other.run), "%s", run);
	}
	if (r > 0)
		r = refuse(lease, &other, err);
	snprintf(judged, OBJECT_ETAG_SIZE, "%s", other.etag);
	free(other.home);
	return r;
}

/*
 * The run that had the output may have begun again, or woken up, between our question and our writing; then it may have found
 * the output its own. Of two that write first and look then at least one sees the other: it gets the output back.
 */
static int ask_again(
	struct lease *lease, const char *run, const char *judged, struct penstock_error *err)
{
	_cleanup_free_ char *key = state_key(lease, run);
	struct seen other = {0};
	int r;

	if (!key)
		return error_memory(err);
	r = lease_look(lease, key, &other, err);
	if (r == 0 && other.etag[0] && strcmp(other.etag, judged) != 0 &&
		lease_state_is_live(other.state)) {
		write_owner(lease, lease->output_etag, run, NULL, NULL);
		snprintf(other.run, sizeof(other.run), "%s", run);
		r = refuse(lease, &other, err);
	}
	free(other.home);
	return r;
}

/* The output is ours now; whether it can be has to be asked once more where it was another's. */
static int take_from(struct lease *lease, const struct seen *owner, struct penstock_error *err)
{
	bool another = owner->run[0] &&
		       !strchr(owner->run, '/'); /* an id that is none names nobody */
	char judged[OBJECT_ETAG_SIZE] = "";
	int r = another ? ask_owner(lease, owner->run, judged, err) : 0;

	if (r == 0)
		r = write_owner(
			lease, owner->etag, lease->options.run_id, lease->options.name, err);
	return r == 0 && another ? ask_again(lease, owner->run, judged, err) : r;
}

int lease_take_output(struct lease *lease, struct penstock_error *err)
{
	for (unsigned n = 0; n < TRIES; n++) {
		_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
		struct seen owner = {0};
		int r = lease_look(lease, lease->output_key, &owner, err);

		free(owner.home);
		if (r < 0)
			return r;
		if (owner.etag[0] && strcmp(owner.run, lease->options.run_id) == 0) {
			snprintf(lease->output_etag, sizeof(lease->output_etag), "%s", owner.etag);
			return 0;
		}
		r = take_from(lease, &owner, &e);
		if (r == 0)
			return 0;
		/* Somebody else was quicker, or an answer to us was lost. */
		if (r != -(int)PENSTOCK_E_PRECONDITION && r != -(int)PENSTOCK_E_NOT_FOUND)
			return error_move(err, &e);
	}
	return error_set(err, PENSTOCK_E_EXISTS,
		"other runs take %s://%s/%s over all the time; give this run another output",
		object_client_scheme(lease->options.client), lease->options.bucket,
		lease->options.prefix);
}

enum lease_output lease_ask_output(struct lease *lease, struct seen *owner)
{
	owner->etag[0] = owner->run[0] = '\0';
	if (lease_look(lease, lease->output_key, owner, NULL) < 0 && !owner->etag[0])
		return LEASE_OUTPUT_UNKNOWN;
	/* What was deleted belongs to nobody else, and what cannot be read is taken over by nobody. */
	return !owner->etag[0] || !owner->run[0] || strcmp(owner->run, lease->options.run_id) == 0
		       ? LEASE_OUTPUT_OURS
		       : LEASE_OUTPUT_LOST;
}
