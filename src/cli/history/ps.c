#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "cli/cluster/cluster.h"
#include "cli/commands.h"
#include "cli/frame/interrupt.h"
#include "cli/history/places.h"
#include "cli/objects/remote.h"
#include "cli/print/full_screen.h"
#include "cli/print/util.h"
#include "records/claims.h"
#include "records/layout.h"
#include "s3/date.h"
#include "transfer/location.h"

/* Widths are in characters; `penstock show` prints texts in full. */
enum { RECENT_S = 24 * 3600, MESSAGE_WIDTH = 72, NAME_WIDTH = 24, WATCH_MS = 1000 };

struct listing {
	struct grid grid;
	json_t *array; /* NULL for the table */
	const char *home; /* NULL for runs of a store */
	bool all;
	const char *name; /* a pattern; NULL for all runs */
	const struct strlist *states; /* empty for all runs */
	size_t hidden;
	struct strlist waits; /* "ID=TEXT" for each run of this machine that waits for resources */
	struct cluster_view cluster;
	/* ignore the recorded notice of the run that is being added, because it is not about the
	 * run's machine: the run is from a store, or waits for a machine of the cluster */
	bool elsewhere;
	char host[SHOW_HOST_SIZE]; /* the machine that has the run; "" if it is this machine */
};

static const char *show_sync(const struct records_attempt *a, char out[64])
{
	char size[STR_SIZE_SIZE];
	char age[SHOW_DURATION_SIZE];

	str_format_size(a->sync_bytes_waiting, size);
	if (a->unflushed)
		snprintf(out, 64, "not flushed");
	else if (a->sync_at_ns == 0)
		snprintf(out, 64, "-");
	else if (a->sync_lag_ms == 0 && a->sync_bytes_waiting == 0)
		snprintf(out, 64, "in sync");
	else
		snprintf(out, 64, "%s behind by %s", show_duration(a->sync_lag_ms, age), size);
	return out;
}

/* Returns the ports of a live run, "28669 28670", or NULL if there are none. Owned by the
 * caller. */
static char *ports_of(const struct listing *listing, const struct records_run *run)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(KIB);
	_cleanup_free_ char *path = NULL;

	if (listing->home && run_state_is_live(run->last.state))
		path = run_path(listing->home, run->id, RUN_FILE_PORTS);
	return path && fs_read(path, &text, NULL) == 0 && text.len ? strdup(buf_str(&text)) : NULL;
}

/* Returns the notice of a live run, or NULL if there is none. Owned by the caller. */
static char *notice_of(const struct listing *listing, const struct records_run *run)
{
	bool concerns = run_state_is_live(run->last.state) && !listing->elsewhere;
	json_auto_t *notice = concerns ? json_notice(listing->home, run) : json_null();
	const char *reason = json_string_value(json_object_get(notice, "reason"));
	const char *source = json_string_value(json_object_get(notice, "source"));
	const char *noticed = json_string_value(json_object_get(notice, "noticed"));
	bool soon = json_is_true(json_object_get(notice, "soon"));
	char when[SHOW_TIME_SIZE];
	int64_t ns = 0;

	if (reason && source && noticed && date_parse_iso(noticed, &ns) &&
		!json_is_true(json_object_get(notice, "withdrawn")))
		return str_printf("%s (%s: %s, %s)",
			soon ? "may be preempted soon" : "is being preempted", source, reason,
			show_time(ns, when));
	return NULL;
}

/* Adds "ID=TEXT" to `waits` if the holder is a run that waits for resources. */
static int note_wait(void *waits, const struct claim_holder *h)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(KIB);
	char size[STR_SIZE_SIZE];

	if (!h->waiting)
		return 0;
	buf_printf(&text, "waits for %d CPU%s", h->cpus, h->cpus == 1 ? "" : "s");
	str_format_size(h->memory, size);
	if (h->memory)
		buf_printf(&text, ", %s", size);
	if (h->gpus)
		buf_printf(&text, ", %d GPU%s", h->gpus, h->gpus == 1 ? "" : "s");
	buf_add_str(&text, "; see 'penstock ps --claims'");
	strlist_set(waits, h->run_id, buf_str(&text));
	return 0;
}

static json_t *run_json(
	const struct listing *listing, const struct records_run *run, const char *ports)
{
	json_t *object = json_pack("{s:o, s:o, s:o, s:o}", "id", json_text(run->id), "name",
		json_text(run->name), "host", json_text(listing->host), "output",
		json_text(run->output));
	json_t *array;

	if (!listing->home) {
		json_add_state(object, &run->last);
		return object;
	}
	array = json_array();
	for (const char *p = ports; p && *p; p += strcspn(p, " "), p += *p == ' ')
		json_array_append_new(array, json_integer(strtol(p, NULL, 10)));
	json_add_attempt(object, &run->last);
	json_object_update_new(object,
		json_pack("{s:o, s:o, s:o, s:o}", "workflow", json_text(run->workflow), "ports",
			array, "created", json_time(run->created_ns), "notice",
			listing->elsewhere ? json_null() : json_notice(listing->home, run)));
	return object;
}

/* Formats a span of time as "3 min", "2 h" or "5 d"; as "-" if the start is missing or after the
 * end. */
static const char *show_span(int64_t from_ns, int64_t to_ns, char out[64])
{
	int64_t s = (to_ns - from_ns) / NS_PER_S;

	if (!from_ns || to_ns < from_ns)
		snprintf(out, 64, "-");
	else if (s < 60)
		snprintf(out, 64, "%" PRId64 " s", s);
	else if (s < 3600)
		snprintf(out, 64, "%" PRId64 " min", s / 60);
	else if (s < 48 * 3600)
		snprintf(out, 64, "%" PRId64 " h", s / 3600);
	else
		snprintf(out, 64, "%" PRId64 " d", s / (24 * 3600));
	return out;
}

static bool is_wanted(const struct listing *listing, const struct records_run *run)
{
	if (listing->name && !wildcard_match(listing->name, run->name ? run->name : ""))
		return false;
	for (size_t i = 0; i < listing->states->n; i++) {
		if (strcmp(listing->states->items[i], run_state_name(run->last.state)) == 0)
			return true;
	}
	return listing->states->n == 0;
}

static int add_seen(struct listing *listing, const struct records_run *run)
{
	const struct records_attempt *a = &run->last;
	int64_t end = a->ended_ns ? a->ended_ns : a->heard_ns;
	int64_t touched = end ? end : a->started_ns;
	_cleanup_free_ char *ports = NULL;
	_cleanup_free_ char *last = NULL;
	_cleanup_free_ char *notice = NULL;
	const char *wait = a->state == RUN_QUEUED ? strlist_get(&listing->waits, run->id) : NULL;
	char text[64];
	char how[SHOW_MESSAGE_SIZE];
	const char *message = show_message(run, how);

	if (!is_wanted(listing, run))
		return 0;
	/* Hide an ended run after a day, if it needs no attention. */
	if (!listing->all && !run_state_is_live(a->state) && !a->unflushed &&
		clock_wall_ns() - touched > RECENT_S * NS_PER_S) {
		listing->hidden++;
		return 0;
	}
	ports = ports_of(listing, run);
	if (listing->array) {
		json_array_append_new(listing->array, run_json(listing, run, ports));
		return 0;
	}
	grid_add_cut(&listing->grid, run->name, show_width(STDOUT_FILENO) ? NAME_WIDTH : SIZE_MAX);
	grid_add(&listing->grid, run->id);
	if (*listing->host)
		grid_addf(&listing->grid, "%s %s %s", run_state_name(a->state),
			a->state == RUN_MOVED ? "to" : "on", listing->host);
	else
		grid_add(&listing->grid, run_state_name(a->state));
	grid_addf(&listing->grid, "%d", a->attempt);
	grid_add(&listing->grid, show_span(a->started_ns, clock_wall_ns(), text));
	grid_add(
		&listing->grid, show_span(a->started_ns,
					run_state_is_live(a->state) ? clock_wall_ns() : end, text));
	grid_add(&listing->grid, listing->home ? show_sync(a, text) : run->output);
	/* On a terminal, the table cuts the text to the width of the terminal. */
	if (ports)
		last = str_printf("ports %s: %s", ports, run->workflow);
	notice = notice_of(listing, run);
	grid_add_cut(&listing->grid,
		notice		? notice
		: wait		? wait
		: last		? last
		: message	? message
		: run->workflow ? run->workflow
		: listing->home ? run->output
				: NULL,
		show_width(STDOUT_FILENO) ? SIZE_MAX : MESSAGE_WIDTH);
	return 0;
}

/* Adds the run. Corrects its state if the cluster or another machine has a newer state than the
 * records. */
static int add_run(void *cookie, const struct records_run *run)
{
	struct listing *listing = cookie;
	struct records_run seen = *run;
	int r;

	seen.last.message = run->last.message ? strdup(run->last.message) : NULL;
	show_elsewhere(listing->home, &seen, listing->host);
	listing->elsewhere = cluster_view_correct(
		&listing->cluster, listing->home, run->id, &seen.last);
	r = add_seen(listing, &seen);
	free(seen.last.message);
	return r;
}

/* Adds a run that is known from its state in a store. The run may be on any machine. */
static int add_stored(void *cookie, const struct place_run *found)
{
	struct listing *listing = cookie;

	snprintf(listing->host, sizeof(listing->host), "%s", found->host);
	return add_seen(listing, found->run);
}

static int list_home(struct listing *listing, struct penstock_error *err)
{
	_cleanup_(records_freep) struct records *records = NULL;
	_cleanup_free_ char *home = NULL;
	int r = show_open(&records, &home, err);

	listing->home = home;
	if (!listing->array)
		claims_list(note_wait, &listing->waits, NULL);
	if (r == 0)
		r = records_list(records, add_run, listing, err);
	listing->home = NULL;
	return r;
}

static int list_runs(const struct cli *cli)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	bool stored = cli_n_operands(cli) > 0;
	struct listing listing = {
		.grid = grid_new("NAME", "ID", "STATE", "ATTEMPT", "AGE", "TIME",
			stored ? "OUTPUT" : "SYNC", stored ? "MESSAGE" : "MESSAGE OR WORKFLOW"),
		.name = cli_value(cli, "name"),
		.states = cli_values(cli, "state"),
		.all = cli_has(cli, "all"),
		.array = cli_has(cli, "json") ? json_array() : NULL};
	int r;

	listing.grid.state_column = 2;
	listing.elsewhere = stored;
	r = stored ? places_each(cli, add_stored, &listing, &err) : list_home(&listing, &err);
	r = show_list(&listing.grid, listing.array, r);
	if (r == 0 && listing.hidden && !cli_has(cli, "json") && !cli_quiet(cli))
		fprintf(stderr,
			"penstock ps: %zu hidden (ended over a day ago); -a shows all runs\n",
			listing.hidden);
	cluster_view_release(&listing.cluster);
	strlist_release(&listing.waits);
	return r < 0 ? cli_fail(cli, &err) : r;
}

/* ---- claims ---- */

/* Adds a cell such as "2 (0 3)", with the numbers of the GPUs. */
static void add_gpus(struct grid *grid, const struct claim_holder *h)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(KIB);

	buf_printf(&text, "%d", h->gpus);
	for (int i = 0; h->gpu_list && i < h->gpus; i++)
		buf_printf(&text, "%s%d", i ? " " : " (", h->gpu_list[i]);
	if (h->gpu_list && h->gpus)
		buf_add_char(&text, ')');
	grid_add(grid, buf_str(&text));
}

static int add_claim(void *cookie, const struct claim_holder *h)
{
	struct listing *listing = cookie;
	_cleanup_free_ char *user = claim_user_name(h->uid);
	char size[STR_SIZE_SIZE];
	json_t *gpus;

	if (!listing->array) {
		grid_add(&listing->grid, h->waiting ? "waits" : "holds");
		grid_add(&listing->grid, user);
		grid_addf(&listing->grid, "%d", h->cpus);
		str_format_size(h->memory, size);
		grid_add(&listing->grid, h->memory ? size : NULL);
		add_gpus(&listing->grid, h);
		grid_addf(&listing->grid, "%d", (int)h->pid);
		grid_addf(&listing->grid, "%s %s", h->run_id, h->name);
		return 0;
	}
	gpus = json_array();
	for (int i = 0; h->gpu_list && i < h->gpus; i++)
		json_array_append_new(gpus, json_integer(h->gpu_list[i]));
	json_array_append_new(listing->array,
		json_pack("{s:b, s:o, s:i, s:I, s:i, s:o, s:i, s:o, s:o}", "waiting", h->waiting,
			"user", json_text(user), "cpus", h->cpus, "memory", (json_int_t)h->memory,
			"gpus", h->gpus, "gpu_list", gpus, "pid", (int)h->pid, "id",
			json_text(h->run_id), "name", json_text(h->name)));
	return 0;
}

static int list_claims(const struct cli *cli)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct listing listing = {
		.grid = grid_new("WHAT", "USER", "CPUS", "MEMORY", "GPUS", "PID", "RUN"),
		.array = cli_has(cli, "json") ? json_array() : NULL};
	int r = claims_list(add_claim, &listing, &err);

	r = show_list(&listing.grid, listing.array, r);
	return r < 0 ? cli_fail(cli, &err) : r;
}

static int check_states(const struct cli *cli)
{
	const struct strlist *given = cli_values(cli, "state");

	for (size_t i = 0; i < given->n; i++) {
		if (run_state_find(given->items[i]) == RUN_STATE_COUNT_)
			return cli_misuse(cli, "invalid --state '%s'", given->items[i]);
	}
	return 0;
}

static int list(const struct cli *cli)
{
	return cli_has(cli, "claims") ? list_claims(cli) : list_runs(cli);
}

static int watch(const struct cli *cli)
{
	int key = FULL_SCREEN_NONE, code = 0;

	if (full_screen_begin() < 0)
		return cli_misuse(cli, "--watch needs a terminal");
	while (code == 0 && key != 'q' && key != FULL_SCREEN_END) {
		full_screen_draw();
		code = list(cli);
		key = full_screen_key(WATCH_MS);
	}
	full_screen_end();
	return cli_interrupted() ? 128 + cli_interrupted() : code;
}

static int run_ps(const struct cli *cli)
{
	static const char *const forms[] = {"watch", "json", NULL};
	int code = check_states(cli);

	for (size_t i = 0; code == 0 && i < cli_n_operands(cli); i++) {
		if (!location_is_object(cli_operand(cli, i)))
			code = cli_misuse(cli,
				"unexpected operand '%s'; a place is s3://BUCKET/PATH/",
				cli_operand(cli, i));
	}
	if (code == 0)
		code = cli_refuse_together(cli, forms);
	if (code)
		return code;
	return cli_has(cli, "watch") ? watch(cli) : list(cli);
}

const struct command command_ps = {
	.name = "ps",
	.summary = "list the runs of this machine, or those of a store",
	.operands = "[s3://PLACE...]",
	.max_operands = (unsigned)-1,
	.description =
		"Lists runs, newest first: their state and attempt, how long ago the attempt "
		"started and how long it took, how far the object storage lags behind the "
		"output directory, and a one-line message.\n"
		"\n"
		"A run is 'lost' if its penstock disappeared without recording an end (it was "
		"killed, or the machine went down); the same 'penstock run' resumes it. A run "
		"that another machine took over is 'moved to HOST', and has a state such as "
		"'succeeded on HOST' once it has ended there, as last seen from here.\n"
		"\n"
		"Given the place of an output, or a prefix above several outputs, ps lists all "
		"runs that keep their state there, of any machine; each state names the machine. "
		"A run is then 'lost' if its machine has not renewed the state for 30 seconds (for "
		"$PENSTOCK_LEASE_TERM of that machine).",
	.options = OPTIONS({'a', "all", NULL, "Also show runs that ended more than a day ago"},
		{0, "name", "PATTERN",
			"Show only runs with this name, in which '*' and '?' are "
			"wildcards"},
		{0, "state", "STATE",
			"Show only runs in this state: queued, staging, running, flushing, "
			"succeeded, failed, preempted, stopped or lost; may be repeated"},
		{0, "claims", NULL,
			"Show the claims of all users on CPUs, memory and GPUs of this machine "
			"instead, and the runs that wait for them"},
		{'w', "watch", NULL, "Show the list until 'q' is pressed, refreshed each second"},
		{0, "json", NULL, "Print a list of JSON objects"}, REMOTE_OPTIONS),
	.examples = EXAMPLES(
		{"penstock ps", "Runs that are live, ended within a day, or are not flushed"},
		{"penstock ps -a --state failed --name 'sweep-*'", "Failed runs of a sweep"},
		{"penstock ps -a s3://bucket/experiments/",
			"Runs of all machines with an output there"},
		{"penstock ps -a --json", "All runs, newest first, as JSON"}),
	.exits = EXITS({"66", "There is no such bucket"}, {"69", "The store does not respond"},
		{"77", "The records cannot be read, or the store denies access"}),
	.run = run_ps,
};
