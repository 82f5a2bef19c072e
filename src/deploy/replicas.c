/* The state object next to a model: the version that each replica serves, and turns to roll. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "deploy/internal.h"

#define FORMAT_NAME "penstock.deploy/"
#define FORMAT	    FORMAT_NAME "1"
enum { TRIES = 50, PAUSE_MS = 20 };

struct seen_beat {
	char *name;
	int64_t beat;
	int64_t since_ms; /* time of the last change, on this machine's monotonic clock */
};

/* The state object as it was read. */
struct document {
	json_t *root; /* not NULL after load() has succeeded */
	char etag[OBJECT_ETAG_SIZE]; /* "" if there is no object */
};

static void document_release(struct document *d)
{
	json_decref(d->root);
	*d = (struct document){0};
}

static int load(struct document *d, struct object_ref at, const atomic_int *cancel,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_DEPLOY_STATE);
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	struct object_info info = {0};
	const char *format;
	int r = object_get(at, &(struct object_get_options){.cancel = cancel}, &text, &info, &e);

	document_release(d);
	if (r == -(int)PENSTOCK_E_NOT_FOUND) {
		d->root = json_pack("{s:s, s:{}}", "format", FORMAT, "replicas");
		return d->root ? 0 : error_memory(err);
	}
	if (r < 0)
		return error_move(err, &e);
	snprintf(d->etag, sizeof(d->etag), "%s", info.etag);
	object_info_release(&info);
	d->root = json_loadb(buf_str(&text), text.len, JSON_REJECT_DUPLICATES, NULL);
	format = json_string_value(json_object_get(d->root, "format"));
	if (format && str_starts(format, FORMAT_NAME) && strcmp(format, FORMAT) != 0)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot read '%s://%s/%s': a newer penstock wrote this object; update this penstock",
			object_client_scheme(at.client), at.bucket, at.key);
	if (!format || !json_is_object(json_object_get(d->root, "replicas")) ||
		strcmp(format, FORMAT) != 0)
		return error_set(err, PENSTOCK_E_CORRUPT,
			"cannot read '%s://%s/%s': the object is not the state of a deployment; delete the object",
			object_client_scheme(at.client), at.bucket, at.key);
	return 0;
}

static char *state_key(const char *prefix)
{
	return str_printf("%s" REPLICAS_KEY, prefix);
}

int replicas_open(struct replicas *r, const struct deploy_options *o, uint16_t port,
	struct penstock_error *err)
{
	struct object_conditions honoured = {0};
	_cleanup_free_ char *prefix = NULL;
	char host[65] = "";
	int rc;

	/* Heartbeat numbers begin at the current time, so that they differ from the numbers of an
	 * earlier process of this replica. */
	*r = (struct replicas){.o = o, .beat = clock_wall_ns(), .cancel = o->cancel};
	gethostname(host, sizeof(host) - 1);
	r->name = strcmp(o->host, "127.0.0.1") == 0 || strcmp(o->host, "0.0.0.0") == 0
			  ? str_printf("%s:%u", host, port)
			  : str_printf("%s/%s:%u", host, o->host, port);
	prefix = str_printf("%s.penstock/", o->prefix);
	if (!r->name || !prefix)
		return error_memory(err);
	if (o->no_state)
		return 0;
	rc = object_probe_conditions(object_at(o->client, o->bucket, prefix), &honoured, err);
	if (rc == 0 && !honoured.put)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot take turns with other replicas: the store ignores If-Match; use "
			"--no-state");
	return rc;
}

void replicas_release(struct replicas *r)
{
	for (size_t i = 0; i < r->n_beats; i++)
		free(r->beats[i].name);
	free(r->beats);
	free(r->name);
	*r = (struct replicas){0};
}

/* ---- the entry of this replica ---- */

static json_t *pack_model(const struct model *model)
{
	return json_pack("{s:s, s:s}", "version", model->name, "content", model->content);
}

static json_t *pack_entry(
	struct replicas *r, const struct replica_state *state, const json_t *before)
{
	const json_t *serving = json_object_get(before, "serving");
	const char *content = json_string_value(json_object_get(serving, "content"));
	const char *since = json_string_value(json_object_get(serving, "since"));
	char now[CLOCK_RFC3339_SIZE];
	json_t *entry;

	clock_format_rfc3339(clock_wall_ns(), now);
	entry = json_pack("{s:s, s:s, s:I}", "state", state->state, "updated", now, "beat",
		(json_int_t)++r->beat);
	if (entry && state->model && state->model->name) {
		bool same = content && since && strcmp(content, state->model->content) == 0;
		json_t *model = pack_model(state->model);

		json_object_set_new(model, "since", json_string(same ? since : now));
		json_object_set_new(entry, "serving", model);
	}
	if (entry && state->next && state->next->name)
		json_object_set_new(entry, "next", pack_model(state->next));
	if (entry && state->failed && state->failed->name) {
		json_t *model = pack_model(state->failed);

		json_object_set_new(model, "why", json_string(state->why));
		json_object_set_new(entry, "failed", model);
	}
	return entry;
}

/* Returns the number of other replicas that roll, and whose heartbeat has changed within the last
 * REPLICAS_TERM_MS. Only this machine's clock is used, because the clocks of other machines may
 * differ. */
static unsigned count_rolling(struct replicas *r, const json_t *replicas)
{
	int64_t now = clock_monotonic_ms();
	unsigned n = 0;
	const char *name;
	json_t *entry;

	json_object_foreach ((json_t *)(uintptr_t)replicas, name, entry) {
		int64_t beat = json_integer_value(json_object_get(entry, "beat"));
		const char *state = json_string_value(json_object_get(entry, "state"));
		struct seen_beat *seen = NULL, *beats;

		if (strcmp(name, r->name) == 0 || !state || strcmp(state, "rolling") != 0)
			continue;
		for (size_t i = 0; i < r->n_beats && !seen; i++) {
			if (strcmp(r->beats[i].name, name) == 0)
				seen = &r->beats[i];
		}
		if (!seen && (beats = array_grow(r->beats, r->n_beats, sizeof(*beats)))) {
			r->beats = beats;
			seen = &beats[r->n_beats];
			*seen = (struct seen_beat){.name = strdup(name), .since_ms = now};
			if (seen->name)
				r->n_beats++;
		}
		if (seen && seen->beat != beat) {
			seen->beat = beat;
			seen->since_ms = now;
		}
		if (!seen || now - seen->since_ms < REPLICAS_TERM_MS)
			n++;
	}
	return n;
}

/* Writes or removes this replica's entry. If another replica changes the object in between, tries
 * again, at most TRIES times in all. Returns 1, or 0 if `turn` is true and too many other replicas
 * roll. */
static int change(struct replicas *r, const struct replica_state *state, bool turn,
	struct penstock_error *err)
{
	_cleanup_free_ char *key = state_key(r->o->prefix);
	_cleanup_(document_release) struct document d = {0};
	struct object_ref at = object_at(r->o->client, r->o->bucket, key);

	if (!key)
		return error_memory(err);
	for (unsigned i = 0; i < TRIES; i++) {
		_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
		_cleanup_free_ char *text = NULL;
		json_t *replicas;
		int rc = load(&d, at, r->cancel, err);

		if (rc < 0)
			return rc;
		replicas = json_object_get(d.root, "replicas");
		if (turn && count_rolling(r, replicas) >= r->o->unavailable)
			return 0;
		if (state)
			rc = json_object_set_new(replicas, r->name,
				pack_entry(r, state, json_object_get(replicas, r->name)));
		else if (json_object_del(replicas, r->name) < 0)
			return 1; /* there is no entry to remove */
		text = rc == 0 ? json_dumps(d.root, JSON_INDENT(1) | JSON_SORT_KEYS) : NULL;
		if (!text)
			return error_memory(err);
		rc = object_put(at, text, strlen(text),
			&(struct object_put_options){.content_type = "application/json",
				.if_match = d.etag[0] ? d.etag : NULL,
				.if_none_match = !d.etag[0],
				.cancel = r->cancel},
			NULL, &e);
		if (rc == 0)
			return 1;
		if (rc != -(int)PENSTOCK_E_PRECONDITION && rc != -(int)PENSTOCK_E_EXISTS)
			return error_move(err, &e);
		clock_sleep_ms(PAUSE_MS + clock_monotonic_ns() % PAUSE_MS);
	}
	return error_set(err, PENSTOCK_E_UNAVAILABLE,
		"cannot write '%s://%s/%s': other replicas changed the object %d times",
		object_client_scheme(at.client), at.bucket, key, TRIES);
}

int replicas_write(
	struct replicas *r, const struct replica_state *state, struct penstock_error *err)
{
	int rc = r->o->no_state ? 0 : change(r, state, false, err);

	return rc < 0 ? rc : 0;
}

int replicas_take_turn(
	struct replicas *r, const struct replica_state *state, struct penstock_error *err)
{
	return r->o->no_state ? 1 : change(r, state, true, err);
}

/* ---- printing ---- */

static const char *text_of(const json_t *object, const char *member)
{
	char *text = (char *)(uintptr_t)json_string_value(json_object_get(object, member));

	if (text)
		str_hide_controls(text);
	return text ? text : "-";
}

int deploy_print(struct object_client *client, const char *bucket, const char *prefix, bool json,
	FILE *out, struct penstock_error *err)
{
	_cleanup_free_ char *key = state_key(prefix);
	_cleanup_(document_release) struct document d = {0};
	json_t *replicas, *entry;
	const char *name;
	int r = key ? load(&d, object_at(client, bucket, key), NULL, err) : error_memory(err);

	if (r < 0)
		return r;
	replicas = json_object_get(d.root, "replicas");
	if (!json_object_size(replicas))
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot find a replica of '%s://%s/%s': '" REPLICAS_KEY
			"' has no entry; a replica with --no-state writes none",
			object_client_scheme(client), bucket, prefix);
	if (json) {
		json_dumpf(replicas, out, JSON_INDENT(2) | JSON_SORT_KEYS);
		fputc('\n', out);
		return 0;
	}
	fprintf(out, "%-24s %-9s %-20s %-19s  %s\n", "REPLICA", "STATE", "VERSION", "SINCE (UTC)",
		"UPDATED (UTC)");
	json_object_foreach (replicas, name, entry) {
		const json_t *serving = json_object_get(entry, "serving");
		const json_t *failed = json_object_get(entry, "failed");
		_cleanup_free_ char *shown = strdup(name);

		if (!shown)
			return error_memory(err);
		str_hide_controls(shown);
		fprintf(out, "%-24s %-9s %-20s %-19.19s  %.19s\n", shown, text_of(entry, "state"),
			text_of(serving, "version"), text_of(serving, "since"),
			text_of(entry, "updated"));
		if (failed)
			fprintf(out, "  version %s failed: %s\n", text_of(failed, "version"),
				text_of(failed, "why"));
	}
	return 0;
}
