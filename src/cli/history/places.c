#include "cli/history/places.h"

#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/thread.h"
#include "cli/command.h"
#include "cli/objects/remote.h"
#include "cli/print/util.h"
#include "records/layout.h"
#include "records/records.h"
#include "run/owner/lease.h"
#include "s3/date.h"

#define PARALLEL	  16 /* requests */
#define CLOCK_TOLERANCE_S 30

struct found {
	json_t *state; /* owned */
	char *output; /* "s3://bucket/results/" */
	int64_t started_ns, heard_ns;
};

/* The outputs of one operand. */
struct place {
	struct remote remote;
	struct location at;
	struct strlist prefixes; /* prefixes that may be outputs: "" or "a/b/" */
	pthread_mutex_t lock; /* protects the members below */
	struct found *found;
	size_t n;
};

static void place_release(struct place *place)
{
	for (size_t i = 0; i < place->n; i++) {
		json_decref(place->found[i].state);
		free(place->found[i].output);
	}
	free(place->found);
	strlist_release(&place->prefixes);
	location_release(&place->at);
	remote_release(&place->remote);
	pthread_mutex_destroy(&place->lock);
}

/* ---- reading ---- */

static int note_prefix(void *cookie, const struct object_info *info)
{
	struct place *place = cookie;

	return info->is_prefix && !str_ends(info->key, "/.penstock/") &&
	       strcmp(info->key, ".penstock/") != 0 && strlist_add(&place->prefixes, info->key) < 0;
}

static int list_prefixes(struct place *place, struct penstock_error *err)
{
	_cleanup_free_ char *prefix = location_prefix(place->at.key);

	if (!prefix || strlist_add(&place->prefixes, prefix) < 0)
		return error_memory(err);
	return object_list(object_at(place->remote.client, place->at.bucket, prefix), "/",
		note_prefix, place, place->remote.cancel, err);
}

/* Changes a live state to "lost" if its object was not renewed for the term of the lease. Compares
 * only times of the store's clock, which have a resolution of a second. Returns the time of the
 * last renewal by this machine's clock, or 0 if it is unknown. */
static int64_t judge_age(json_t *state, const struct object_info *info)
{
	json_int_t term_ms = json_integer_value(
		json_object_get(json_object_get(state, "lease"), "term_ms"));
	const char *name = json_string_value(json_object_get(state, "state"));
	int64_t age = info->served_ns - info->modified_ns;

	if (!info->served_ns || !info->modified_ns || age < 0)
		return 0;
	if (term_ms > 0 && term_ms <= LEASE_TERM_MAX_S * 1000 &&
		age > term_ms * NS_PER_MS + NS_PER_S && run_state_is_live(run_state_find(name)))
		json_object_set_new(state, "state", json_string(run_state_name(RUN_LOST)));
	return clock_wall_ns() - age;
}

int places_state(struct object_ref at, const atomic_int *cancel, json_t **state, int64_t *heard_ns,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STATE_OBJECT);
	struct object_info info = {0};
	int r = object_get(at, &(struct object_get_options){.cancel = cancel}, &text, &info, err);

	if (r < 0)
		return r;
	*state = json_loadb(buf_str(&text), text.len, 0, NULL);
	if (records_is_id(json_string_value(json_object_get(*state, "run"))))
		*heard_ns = judge_age(*state, &info);
	else
		r = error_set(err, PENSTOCK_E_CORRUPT,
			"cannot read '%s': it is not the state of a run", at.key);
	if (r < 0)
		json_decref(take_pointer(*state));
	object_info_release(&info);
	return r;
}

/* Returns 0 if the time is missing or before 1970, so that differences of the returned times fit
 * into 64 bits. */
static int64_t time_of(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));
	int64_t ns = 0;

	return text && date_parse_iso(text, &ns) && ns > 0 ? ns : 0;
}

static int add_state(struct place *place, const char *prefix, json_t *state, int64_t heard_ns,
	struct penstock_error *err)
{
	const json_t *owner = json_object_get(state, "owner");
	struct found found = {
		.state = state, .started_ns = time_of(owner, "since"), .heard_ns = heard_ns};
	struct found *grown;

	found.output = str_printf(
		"%s://%s/%s", location_scheme(&place->at), place->at.bucket, prefix);
	{
		LOCK_SCOPE(&place->lock);
		grown = found.output ? array_grow(place->found, place->n, sizeof(*grown)) : NULL;
		if (grown) {
			place->found = grown;
			place->found[place->n++] = found;
		}
	}
	if (grown)
		return 0;
	json_decref(state);
	free(found.output);
	return error_memory(err);
}

static int read_state(
	struct place *place, const char *prefix, const char *key, struct penstock_error *err)
{
	int64_t heard_ns = 0;
	json_t *state = NULL;
	int r = places_state(object_at(place->remote.client, place->at.bucket, key),
		place->remote.cancel, &state, &heard_ns, err);

	return r == 0 ? add_state(place, prefix, state, heard_ns, err) : r;
}

static int note_run(void *cookie, const struct object_info *info)
{
	return info->is_prefix && strlist_add(cookie, info->key) < 0;
}

/* Reads the states of the runs that have this output. */
static int read_output(void *cookie, size_t i, struct penstock_error *err)
{
	struct place *place = cookie;
	const char *prefix = place->prefixes.items[i];
	_cleanup_(strlist_release) struct strlist runs = {0};
	_cleanup_free_ char *states = str_printf("%s" RUN_STATE_ROOT, prefix);
	int r = states ? object_list(object_at(place->remote.client, place->at.bucket, states), "/",
				 note_run, &runs, place->remote.cancel, err)
		       : error_memory(err);

	for (size_t k = 0; r == 0 && k < runs.n; k++) {
		_cleanup_free_ char *key = str_printf("%sstate.json", runs.items[k]);
		_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;

		r = key ? read_state(place, prefix, key, &own) : error_memory(&own);
		if (r == -(int)PENSTOCK_E_CANCELLED || r == -(int)PENSTOCK_E_MEMORY)
			return error_move(err, &own);
		if (r < 0 && r != -(int)PENSTOCK_E_NOT_FOUND)
			log_warn("%s", own.message);
		r = 0;
	}
	return r;
}

/* ---- passing runs to the caller ---- */

static int newest_first(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	return (x->started_ns < y->started_ns) - (x->started_ns > y->started_ns);
}

static int number_of(const json_t *object, const char *name)
{
	json_int_t n = json_integer_value(json_object_get(object, name));

	return n > 0 && n < INT_MAX ? (int)n : 0;
}

/* Reads an attempt from a state, or from a member of its list `attempts`. The message is borrowed;
 * the caller frees the provenance. */
static void read_attempt(const json_t *from, struct records_attempt *out)
{
	const json_t *owner = json_object_get(from, "owner"), *sync = json_object_get(from, "sync");
	const char *message = json_string_value(json_object_get(from, "message"));
	json_auto_t *provenance = json_pack("{s:O?, s:O?}", "host", json_object_get(owner, "host"),
		"price", json_object_get(from, "price"));
	/* The state has "ended_as" if the run is waiting for its next attempt. */
	bool ended_as = json_object_get(from, "ended_as") != NULL;
	int64_t updated = time_of(from, "updated");

	*out = (struct records_attempt){
		.attempt = number_of(from, "attempt"),
		.state = run_state_find(
			json_string_value(json_object_get(from, ended_as ? "ended_as" : "state"))),
		.class = run_class_find(json_string_value(json_object_get(from, "class"))),
		.exit_code = (int)json_integer_value(json_object_get(from, "exit_code")),
		.steps_done = number_of(from, "steps_done"),
		.message = (char *)(uintptr_t)message,
		.started_ns = time_of(owner, "since"),
		.provenance = provenance ? json_dumps(provenance, JSON_COMPACT) : NULL,
		.sync_lag_ms = json_integer_value(json_object_get(sync, "lag_ms")),
		.sync_bytes_waiting = (uint64_t)json_integer_value(
			json_object_get(sync, "bytes_waiting")),
		.sync_files_published = (uint64_t)json_integer_value(
			json_object_get(sync, "files_published")),
		.sync_bytes_published = (uint64_t)json_integer_value(
			json_object_get(sync, "bytes_published")),
		.sync_at_ns = sync ? updated : 0,
	};
	if (out->state == RUN_STATE_COUNT_)
		out->state = RUN_LOST;
	if (run_state_is_live(out->state) || out->state == RUN_LOST)
		out->heard_ns = updated;
	else
		out->ended_ns = updated;
}

/* Converts the times of a live attempt to this machine's clock, if the clock of its machine differs
 * by more than CLOCK_TOLERANCE_S, the time that writing the state may take. The difference is
 * unknown for an ended run, because its state object may be a copy that was made later. */
static void correct_clock(const struct found *found, const char *host, struct records_attempt *a)
{
	int64_t updated = time_of(found->state, "updated");
	int64_t behind = found->heard_ns - updated, amount = behind < 0 ? -behind : behind;
	char text[SHOW_DURATION_SIZE];

	if (!run_state_is_live(a->state) || !updated || !found->heard_ns ||
		amount <= CLOCK_TOLERANCE_S * NS_PER_S)
		return;
	log_warn("the clock of '%s' is %s %s; the times of run '%s' are corrected",
		host ? host : "another machine", show_duration(amount / NS_PER_MS, text),
		behind > 0 ? "behind" : "ahead",
		json_string_value(json_object_get(found->state, "run")));
	if (a->started_ns && __builtin_add_overflow(a->started_ns, behind, &a->started_ns))
		a->started_ns = 0;
	if (a->sync_at_ns && __builtin_add_overflow(a->sync_at_ns, behind, &a->sync_at_ns))
		a->sync_at_ns = 0;
}

static int pass(const struct found *found, const struct buf *workflow, places_fn fn, void *cookie)
{
	const json_t *earlier = json_object_get(found->state, "attempts");
	const char *name = json_string_value(json_object_get(found->state, "name"));
	const char *host = json_string_value(
		json_object_get(json_object_get(found->state, "owner"), "host"));
	struct records_run run = {.name = (char *)(uintptr_t)name, .output = found->output};
	size_t n = json_array_size(earlier);
	_cleanup_free_ struct records_attempt *attempts = calloc(n + 1, sizeof(*attempts));
	int r;

	if (!attempts)
		return -(int)PENSTOCK_E_MEMORY;
	for (size_t i = 0; i < n; i++)
		read_attempt(json_array_get(earlier, i), &attempts[i]);
	read_attempt(found->state, &attempts[n]);
	/* For a lost attempt, keep the times of its machine's clock: its state object may be a copy
	 * that was made later, and `heard_ns` is then the time of that copy. */
	if (run_state_is_live(attempts[n].state) && found->heard_ns)
		attempts[n].heard_ns = found->heard_ns;
	correct_clock(found, host, &attempts[n]);
	snprintf(run.id, sizeof(run.id), "%s",
		json_string_value(json_object_get(found->state, "run")));
	run.last = attempts[n];
	r = fn(cookie, &(struct place_run){.run = &run,
			       .host = host ? host : "",
			       .attempts = attempts,
			       .n = n + 1,
			       .workflow = workflow});
	for (size_t i = 0; i <= n; i++)
		free(attempts[i].provenance);
	return r;
}

static int each_in(struct place *place, places_fn fn, void *cookie, struct penstock_error *err)
{
	atomic_int stop = 0;
	int r = list_prefixes(place, err);

	if (r == 0)
		r = thread_each(&(struct thread_work){.name = "places",
					.n = place->prefixes.n,
					.parallel = PARALLEL,
					.fn = read_output,
					.cookie = place,
					.cancel = place->remote.cancel,
					.stop = &stop},
			err);
	if (place->n)
		qsort(place->found, place->n, sizeof(*place->found), newest_first);
	for (size_t i = 0; r == 0 && i < place->n; i++)
		r = pass(&place->found[i], NULL, fn, cookie);
	return r;
}

int places_each(const struct cli *cli, places_fn fn, void *cookie, struct penstock_error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < cli_n_operands(cli); i++) {
		_cleanup_(place_release) struct place place = {.lock = PTHREAD_MUTEX_INITIALIZER};

		r = remote_open_at(&place.remote, cli, i, false, &place.at, err);
		if (r == 0)
			r = each_in(&place, fn, cookie, err);
	}
	return r;
}

int places_find(const struct cli *cli, size_t i, const char *id, places_fn fn, void *cookie,
	struct penstock_error *err)
{
	_cleanup_(place_release) struct place place = {.lock = PTHREAD_MUTEX_INITIALIZER};
	_cleanup_(buf_release) struct buf text = BUF_INIT(2 * LIMIT_WORKFLOW_FILE);
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *prefix = NULL, *state = NULL, *workflow = NULL;
	const struct found *found;
	int r = remote_open_at(&place.remote, cli, i, false, &place.at, err);

	if (r < 0)
		return r;
	prefix = location_prefix(place.at.key);
	state = prefix ? str_printf("%s" RUN_STATE_ROOT "%s/state.json", prefix, id) : NULL;
	workflow = prefix ? str_printf("%s" RUN_STATE_ROOT "%s/workflow", prefix, id) : NULL;
	if (!state || !workflow)
		return error_memory(err);
	r = read_state(&place, prefix, state, &e);
	if (r == -(int)PENSTOCK_E_NOT_FOUND && !e.repeats) /* the bucket exists */
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot find run '%s' in '%s': it has no state there; 'penstock ps %s' lists "
			"the runs of a place",
			id, cli_operand(cli, i), cli_operand(cli, i));
	if (r < 0)
		return error_move(err, &e);
	found = &place.found[0];
	if (strcmp(json_string_value(json_object_get(found->state, "run")), id) != 0)
		return error_set(
			err, PENSTOCK_E_CORRUPT, "'%s' is the state of another run", state);
	r = object_get(object_at(place.remote.client, place.at.bucket, workflow),
		&(struct object_get_options){.cancel = place.remote.cancel}, &text, NULL, err);
	if (error_expected(r, PENSTOCK_E_NOT_FOUND, err))
		return pass(found, NULL, fn, cookie);
	return r < 0 ? r : pass(found, &text, fn, cookie);
}
