/* Writes, reads and compares the state object of a run. */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/must.h"
#include "base/process/process.h"
#include "base/str.h"
#include "run/owner/lease_internal.h"
#include "transfer/objects.h"

int lease_put(struct lease *lease, const char *key, char etag[static OBJECT_ETAG_SIZE],
	const char *text, size_t len, struct penstock_error *err)
{
	struct object_put_options options = {
		.content_type = "application/json",
		.if_match = etag[0] ? etag : NULL,
		.if_none_match = !etag[0],
		.ungated = true,
	};
	struct object_info info = {0};
	int r = object_put(object_at(lease->options.client, lease->options.bucket, key), text, len,
		&options, &info, err);

	if (r < 0)
		return r;
	snprintf(etag, OBJECT_ETAG_SIZE, "%s", info.etag);
	object_info_release(&info);
	return 0;
}

int lease_write_text(struct lease *lease, const char *text, size_t len, struct penstock_error *err)
{
	int64_t sent_ms = clock_boottime_ms();
	int r = lease_put(lease, lease->key, lease->etag, text, len, err);

	if (r == 0)
		lease->sent_ms = sent_ms;
	return r;
}

enum { MESSAGE_SIZE = 1024, EARLIER_MAX = 64 };

/* Adds the optional members. */
static int add_rest(json_t *root, struct lease *lease)
{
	int r = 0;

	if (json_array_size(lease->earlier))
		r |= json_object_set(root, "attempts", lease->earlier);
	if (lease->end.ended_as)
		r |= json_object_set_new(root, "ended_as", json_string(lease->end.ended_as));
	if (lease->options.price)
		r |= json_object_set_new(root, "price", json_string(lease->options.price));
	LOCK_SCOPE(&lease->lock);
	if (lease->has_sync)
		r |= json_object_set_new(root, "sync",
			json_pack("{s:I, s:I, s:I, s:I}", "lag_ms", (json_int_t)lease->sync.lag_ms,
				"bytes_waiting", (json_int_t)lease->sync.bytes_waiting,
				"files_published", (json_int_t)lease->sync.files_published,
				"bytes_published", (json_int_t)lease->sync.bytes_published));
	return r;
}

static int write_once(struct lease *lease, const char *state, struct penstock_error *err)
{
	_cleanup_free_ char *text = NULL;
	json_auto_t *root = NULL;
	const char *class = lease->end.class;
	char now[CLOCK_RFC3339_SIZE], message[MESSAGE_SIZE];

	lease->beat++;
	clock_format_rfc3339(clock_wall_ns(), now);
	snprintf(message, sizeof(message), "%s", lease->end.message ? lease->end.message : "");
	str_make_utf8(message);
	root = json_pack(
		"{s:i, s:s, s:s*, s:i, s:i, s:i, s:s, s:s*, s:i, s:s*, s:{s:s, s:s, s:s, s:I, s:I, "
		"s:s, s:s, s:s}, s:{s:i, s:I}, s:s}",
		"format", LEASE_FORMAT, "run", lease->options.run_id, "name", lease->options.name,
		"attempt", lease->options.attempt, "began", lease->began, "steps_done",
		atomic_load(&lease->steps_done), "state", state, "class",
		class && *class ? class : NULL, "exit_code", lease->end.exit_code, "message",
		*message ? message : NULL, "owner", "host", lease->host, "boot_id", lease->boot_id,
		"pid_ns", lease->pid_ns, "pid", (json_int_t)getpid(), "start_ticks",
		(json_int_t)lease->start_ticks, "home", lease->options.home, "home_id",
		lease->options.home_id, "since", lease->since, "lease", "term_ms",
		(int)lease->term_ms, "beat", (json_int_t)lease->beat, "updated", now);
	text = root && add_rest(root, lease) == 0 ? json_dumps(root, JSON_INDENT(1)) : NULL;
	return text ? lease_write_text(lease, text, strlen(text), err) : error_memory(err);
}

void lease_hold(struct lease *lease)
{
	MUST(!lease->lost && !lease->output_lost);
	atomic_store(&lease->held_until_ms, lease->sent_ms + lease->term_ms * 5 / 6);
}

static void copy_string(char *out, size_t size, const json_t *value)
{
	snprintf(out, size, "%s", json_is_string(value) ? json_string_value(value) : "");
}

/* Makes a member of the list `attempts` from a state, or from a member of that state's list, which
 * has the same form. Returns NULL if out of memory. */
static json_t *keep_attempt(const json_t *from)
{
	const json_t *owner = json_object_get(from, "owner");
	char state[16], class[16], price[24], updated[CLOCK_RFC3339_SIZE];
	char host[65], since[CLOCK_RFC3339_SIZE];
	char *const texts[] = {state, class, price, updated, host, since};

	copy_string(state, sizeof(state),
		json_object_get(from, json_object_get(from, "ended_as") ? "ended_as" : "state"));
	copy_string(class, sizeof(class), json_object_get(from, "class"));
	copy_string(price, sizeof(price), json_object_get(from, "price"));
	copy_string(updated, sizeof(updated), json_object_get(from, "updated"));
	copy_string(host, sizeof(host), json_object_get(owner, "host"));
	copy_string(since, sizeof(since), json_object_get(owner, "since"));
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		str_make_utf8(texts[i]);
	return json_pack("{s:I, s:s, s:s*, s:I, s:I, s:s*, s:s, s:{s:s, s:s}}", "attempt",
		json_integer_value(json_object_get(from, "attempt")), "state",
		lease_state_is_live(state) ? "lost" : state, "class", *class ? class : NULL,
		"exit_code", json_integer_value(json_object_get(from, "exit_code")), "steps_done",
		json_integer_value(json_object_get(from, "steps_done")), "price",
		*price ? price : NULL, "updated", updated, "owner", "host", host, "since", since);
}

/* Adds an attempt if it is earlier than the attempt of the lease. `penstock flush` completes an
 * attempt that the state already has. */
static int add_earlier(struct lease *lease, const json_t *from)
{
	return json_integer_value(json_object_get(from, "attempt")) < lease->options.attempt
		       ? json_array_append_new(lease->earlier, keep_attempt(from))
		       : 0;
}

int lease_keep_attempts(struct lease *lease, const struct buf *text, struct penstock_error *err)
{
	json_auto_t *root = json_loadb(buf_str(text), text->len, 0, NULL);
	const json_t *attempts = json_object_get(root, "attempts");
	size_t n = json_array_size(attempts);
	int r = 0;

	lease->earlier = json_array();
	for (size_t i = n < EARLIER_MAX ? 0 : n - EARLIER_MAX + 1; i < n; i++)
		r |= add_earlier(lease, json_array_get(attempts, i));
	r |= add_earlier(lease, root);
	return r ? error_memory(err) : 0;
}

/* Parses a state object, or owner.json. Returns false if the format is unknown; `seen->format` is 0
 * if the text has no format. */
static bool parse(const struct buf *text, struct seen *seen)
{
	json_auto_t *root = json_loadb(buf_str(text), text->len, 0, NULL);
	json_int_t attempt = json_integer_value(json_object_get(root, "attempt"));
	json_int_t began = json_integer_value(json_object_get(root, "began"));
	json_int_t steps = json_integer_value(json_object_get(root, "steps_done"));
	const json_t *owner = json_object_get(root, "owner");
	const json_t *home;

	owner = owner ? owner : root; /* owner.json has its members at the top level */
	home = json_object_get(owner, "home");
	seen->taking = json_is_true(json_object_get(root, "taking"));
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
	/* A number out of range is ignored. INT_MAX is out of range, because the number of the next
	 * attempt is one higher. */
	seen->attempt = attempt > 0 && attempt < INT_MAX ? (int)attempt : 0;
	seen->began = began > 0 && began <= seen->attempt ? (int)began : 0;
	seen->steps_done = steps > 0 && steps < INT_MAX ? (int)steps : 0;
	seen->pid = json_integer_value(json_object_get(owner, "pid"));
	seen->start_ticks = json_integer_value(json_object_get(owner, "start_ticks"));
	seen->term_ms = json_integer_value(
		json_object_get(json_object_get(root, "lease"), "term_ms"));
	if (seen->term_ms < LEASE_TERM_MIN_S * 1000 || seen->term_ms > LEASE_TERM_MAX_S * 1000)
		seen->term_ms = LEASE_TERM_MS;
	return seen->format == LEASE_FORMAT;
}

/* Returns an error, because the owner that an unreadable state names may be live. */
static int refuse_format(const struct lease *lease, const char *key, const struct seen *seen,
	struct penstock_error *err)
{
	if (seen->format > LEASE_FORMAT)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot read '%s://%s/%s': a newer penstock has written it (format %lld); "
			"use that version, or start another run with --name and another output",
			object_client_scheme(lease->options.client), lease->options.bucket, key,
			(long long)seen->format);
	return error_set(err, PENSTOCK_E_CORRUPT,
		"cannot read '%s://%s/%s': it is not a state object of penstock, so its owner is "
		"unknown; inspect it, and delete it if nothing writes to this output",
		object_client_scheme(lease->options.client), lease->options.bucket, key);
}

int lease_load_text(struct lease *lease, const char *key, struct seen *seen, struct buf *text,
	struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	struct object_info info = {0};
	int r = object_get(object_at(lease->options.client, lease->options.bucket, key),
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

int lease_load(struct lease *lease, const char *key, struct seen *seen, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STATE_OBJECT);

	return lease_load_text(lease, key, seen, &text, err);
}

/* Returns true if this process wrote the state in `seen`. */
static bool is_own(const struct lease *lease, const struct seen *seen)
{
	return seen->etag[0] && strcmp(seen->boot_id, lease->boot_id) == 0 &&
	       strcmp(seen->pid_ns, lease->pid_ns) == 0 && seen->pid == getpid() &&
	       seen->start_ticks == (int64_t)lease->start_ticks;
}

int lease_still_ours(struct lease *lease, struct seen *seen, struct penstock_error *err)
{
	int r = lease_load(lease, lease->key, seen, err);

	if (r < 0 && !seen->etag[0])
		return r;
	return !seen->etag[0] || is_own(lease, seen);
}

int lease_write_state(struct lease *lease, const char *state, struct penstock_error *err)
{
	struct penstock_error e = PENSTOCK_ERROR_INIT;
	struct seen seen = {0};
	int r;

	MUST(!lease->lost || lease->output_lost);
	r = write_once(lease, state, &e);
	if (r == -(int)PENSTOCK_E_PRECONDITION && lease_load(lease, lease->key, &seen, NULL) == 0 &&
		(is_own(lease, &seen) || (lease->etag[0] && !seen.etag[0]))) {
		penstock_error_release(&e);
		snprintf(lease->etag, sizeof(lease->etag), "%s", seen.etag);
		r = write_once(lease, state, &e);
	}
	free(seen.home);
	return r < 0 ? error_move(err, &e) : 0;
}

bool lease_state_is_live(const char *state)
{
	static const char *const ends[] = {"succeeded", "failed", "preempted", "stopped", "lost"};

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		if (strcmp(state, ends[i]) == 0)
			return false;
	}
	return true;
}
