/* `penstock logs`: logs of this machine, and those that `enableLogging` keeps in the store. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "cli/cluster/cluster.h"
#include "cli/commands.h"
#include "cli/history/artifacts_place.h"
#include "cli/history/places.h"
#include "cli/objects/remote.h"
#include "cli/print/follow.h"
#include "cli/print/util.h"
#include "cli/workflow/load.h"
#include "copy/copy.h"
#include "records/layout.h"
#include "records/supervisor.h"
#include "s3/date.h"
#include "transfer/objects.h"

enum { POLL_MS = 50, REMOTE_POLL_MS = 1000 };

/* If the log of the attempt is not on this machine, fetches the log from the place of the
 * output. */
static int fetch_log(const char *home, const struct records_run *run, int attempt, const char *path,
	struct penstock_error *err)
{
	_cleanup_(artifacts_place_release) struct artifacts_place place = {0};
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *key = NULL;
	int r;

	if (access(path, F_OK) == 0)
		return 0;
	r = load_run_workflow(
		&place.workflow, home, run, &(struct load_run_given){.places_only = true}, err);
	if (r < 0)
		return r;
	if (place.workflow->output.kind != WORKFLOW_S3 || !place.workflow->enable_logging.value)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot find the log of attempt %d: it is not on this machine; "
			"`enableLogging: true` in the workflow, with an output in object storage, "
			"makes logs available to other machines",
			attempt);
	key = str_printf("%s" RUN_STATE_ROOT "%s/log/%d", place.workflow->output.s3.prefix, run->id,
		attempt);
	if (!key)
		return error_memory(err);
	r = artifacts_open(&place, home, &e);
	if (r == 0)
		r = object_get_file(artifacts_object(&place, key), path,
			&(struct object_get_options){.relaxed = true}, NULL, &e);
	if (r == -(int)PENSTOCK_E_NOT_FOUND)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot find the log of attempt %d: the attempt ended before it had a log",
			attempt);
	return r < 0 ? error_move(err, &e) : 0;
}

/* Prints the log of one attempt; with --follow, until the supervisor of the run ends. */
static int show_attempt(const struct cli *cli, const char *home, const struct records_run *run,
	int attempt, const struct follow *how, struct penstock_error *err)
{
	_cleanup_(run_layout_release) struct run_layout layout = {0};
	_cleanup_(process_release) struct process supervisor = PROCESS_INIT;
	_cleanup_(follow_close) struct follow log = *how;
	/* Only the last attempt can still write. */
	bool live = attempt == run->last.attempt && run_state_is_live(run->last.state);
	int r = run_layout_init(&layout, home, run->id, attempt, err);

	if (r == 0 && live && cli_has(cli, "follow")) {
		r = supervisor_find(home, run->id, &supervisor, err);
		r = r > 0 ? 0 : r;
	}
	if (r == 0 && attempt != run->last.attempt)
		r = fetch_log(home, run, attempt, layout.log, err);
	if (r < 0)
		return r;
	log.path = layout.log;
	if (supervisor.pidfd >= 0) {
		struct pollfd ended = {supervisor.pidfd, POLLIN, 0};

		do
			r = follow_print(&log, err);
		while (r == 0 && poll(&ended, 1, POLL_MS) == 0);
	}
	/* Print the rest of the log or, without --follow, the whole log. */
	if (r == 0)
		r = follow_print(&log, err);
	return r == 0 && log.fd < 0 ? error_errno(err, ENOENT, "cannot open '%s'", layout.log) : r;
}

/* Prints a line before the log of an attempt if there are several attempts. */
static void print_heading(int64_t attempt, int64_t last)
{
	if (last < 2)
		return;
	printf("%s==> attempt %" PRId64 " <==\n", attempt > 1 ? "\n" : "", attempt);
	fflush(stdout);
}

/* Prints the logs of all attempts in order. Reports and skips attempts without a log, but fails if
 * the last attempt has no log. */
static int show_all(const struct cli *cli, const char *home, const struct records_run *run,
	const struct follow *how, struct penstock_error *err)
{
	for (int attempt = 1; attempt <= run->last.attempt; attempt++) {
		_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
		int r;

		print_heading(attempt, run->last.attempt);
		r = show_attempt(cli, home, run, attempt, how, &e);

		if (r == -(int)PENSTOCK_E_NOT_FOUND && attempt < run->last.attempt)
			log_warn("%s", e.message);
		else if (r < 0)
			return error_move(err, &e);
	}
	return 0;
}

/* ---- logs in a store ---- */

struct remote_log {
	struct remote remote;
	struct location at;
	char *prefix; /* "a/b/.penstock/runs/" */
	char *run; /* id of the run */
	bool several;
};

static void remote_log_release(struct remote_log *log)
{
	remote_release(&log->remote);
	location_release(&log->at);
	free(log->prefix);
	free(log->run);
}

/* Notes the run ID if the key is ".penstock/runs/ID/log/N" and not ".penstock/runs/ID/log/N.usage".
 * Sets `several` if another run was noted before. */
static int note_run(void *cookie, const struct object_info *info)
{
	struct remote_log *log = cookie;
	const char *id = info->key + strlen(log->prefix);
	size_t len = strcspn(id, "/");

	if (!str_starts(id + len, "/log/") || str_ends(id, ".usage"))
		return 0;
	if (log->run && (strlen(log->run) != len || strncmp(log->run, id, len) != 0))
		log->several = true;
	else if (!log->run)
		log->run = strndup(id, len);
	return log->several;
}

/* Finds the run `asked` or, if it is NULL, the only run with logs in this place. With `wait`, waits
 * for the first log. */
static int find_remote_run(
	struct remote_log *log, const char *asked, bool wait, struct penstock_error *err)
{
	int r;

	if (asked) {
		log->run = strdup(asked);
		return log->run ? 0 : error_memory(err);
	}
	for (;;) {
		r = object_list(object_at(log->remote.client, log->at.bucket, log->prefix), NULL,
			note_run, log, log->remote.cancel, err);
		if (r < 0)
			return r;
		if (log->run || !wait)
			break;
		poll(NULL, 0, REMOTE_POLL_MS);
		if (atomic_load(log->remote.cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "interrupted");
	}
	if (log->several)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot choose a log: several runs have logs in this place; add the id of a "
			"run");
	if (!log->run)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot find a log: this place has no log of a run; `enableLogging: true` in "
			"the workflow keeps logs there");
	return 0;
}

struct remote_state {
	bool waits; /* the run will start its next attempt by itself */
	enum run_state state; /* RUN_STATE_COUNT_ if there is no state object */
	int64_t attempt; /* 0 if unknown */
	int64_t heard_ns;
};

static int read_state(struct remote_log *log, struct remote_state *out, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *key = str_printf("%s%s/state.json", log->prefix, log->run);
	json_auto_t *json = NULL;
	int r;

	*out = (struct remote_state){.state = RUN_STATE_COUNT_};
	if (!key)
		return error_memory(err);
	r = places_state(object_at(log->remote.client, log->at.bucket, key), log->remote.cancel,
		&json, &out->heard_ns, &e);
	if (r == -PENSTOCK_E_NOT_FOUND)
		return 0;
	if (r < 0)
		return error_move(err, &e);
	out->state = run_state_find(json_string_value(json_object_get(json, "state")));
	out->waits = json_object_get(json, "ended_as") != NULL;
	out->attempt = json_integer_value(json_object_get(json, "attempt"));
	return 0;
}

/* Reports that the run will not continue by itself, once for each preempted or lost attempt. */
static void note_interruption(
	const struct remote_log *log, const struct remote_state *now, int64_t *noted)
{
	char age[SHOW_DURATION_SIZE] = "";

	if (*noted == now->attempt || now->waits ||
		(now->state != RUN_LOST && now->state != RUN_PREEMPTED))
		return;
	*noted = now->attempt;
	if (now->state == RUN_LOST && now->heard_ns)
		show_duration((clock_wall_ns() - now->heard_ns) / NS_PER_MS, age);
	log_warn("attempt %" PRId64 " of run %s %s%s%s%s; waiting until the run is resumed",
		now->attempt, log->run, now->state == RUN_LOST ? "is lost" : "was preempted",
		*age ? ", last heard of " : "", age, *age ? " ago" : "");
}

/* Prints the attempt's log from byte `*shown` on, and adds the printed bytes to `*shown`. A missing
 * log counts as empty. */
static int print_more(
	struct remote_log *log, int64_t attempt, uint64_t *shown, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	_cleanup_(object_info_release) struct object_info info = {0};
	_cleanup_free_ char *key = str_printf(
		"%s%s/log/%lld", log->prefix, log->run, (long long)attempt);
	struct object_get_options options = {.offset = *shown, .cancel = log->remote.cancel};
	int r;

	if (!key)
		return error_memory(err);
	r = object_head(object_at(log->remote.client, log->at.bucket, key), &info, &e);
	if (r == -PENSTOCK_E_NOT_FOUND || (r == 0 && info.size <= *shown))
		return 0;
	if (r == 0) {
		/* The object is replaced each time the log grows: read only the version that `info`
		 * describes. */
		options.if_match = info.etag;
		options.length = info.size - *shown;
		r = object_get_stream(object_at(log->remote.client, log->at.bucket, key), &options,
			copy_to_stdout, &log->remote.cancel, NULL, &e);
	}
	if (r == -PENSTOCK_E_CHANGED || r == -PENSTOCK_E_PRECONDITION)
		return 0;
	if (r < 0)
		return error_move(err, &e);
	fflush(stdout);
	*shown = info.size;
	return 0;
}

/* Follows the run to its end. If a preempted or lost run is resumed, continues with the log of the
 * next attempt. */
static int follow_remote(struct remote_log *log, int64_t attempt, struct penstock_error *err)
{
	uint64_t shown = 0;
	int64_t noted = 0;

	for (;;) {
		struct remote_state now;
		/* Read the state before the log, so that the log of an ended run is complete. */
		int r = read_state(log, &now, err);

		if (r == 0 && attempt == 0)
			attempt = now.attempt;
		if (r == 0 && attempt > 0)
			r = print_more(log, attempt, &shown, err);
		if (r < 0)
			return r;
		if (attempt > 0 && now.attempt > attempt) {
			attempt++;
			shown = 0;
			continue;
		}
		if (run_state_is_over(now.state))
			return 0;
		note_interruption(log, &now, &noted);
		poll(NULL, 0, REMOTE_POLL_MS);
		if (atomic_load(log->remote.cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "interrupted");
	}
}

/* Prints the log of `attempt`, or of the last attempt if `attempt` is 0. With `all`, prints the
 * logs of all attempts up to that one. */
static int show_remote(
	struct remote_log *log, int64_t attempt, bool all, struct penstock_error *err)
{
	uint64_t any = 0;
	struct remote_state now = {0};
	int r = attempt ? 0 : read_state(log, &now, err);
	int64_t last = attempt ? attempt : now.attempt;

	for (attempt = all ? 1 : last; r == 0 && attempt <= last; attempt++) {
		uint64_t shown = 0;

		if (all)
			print_heading(attempt, last);
		r = print_more(log, attempt, &shown, err);
		any += shown;
	}
	if (r == 0 && !any)
		r = error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot find a log of run '%s': this place has no log of it; "
			"`enableLogging: true` in the workflow keeps logs there",
			log->run);
	return r;
}

/* Prints a log from a store. Operand `i` is the place of the output. The other operand is the id of
 * the run, which is needed if several runs have logs in that place. Returns the exit code. */
static int logs_remote(const struct cli *cli, size_t i, int64_t attempt)
{
	_cleanup_(remote_log_release) struct remote_log log = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *run = cli_operand(cli, 1 - i);
	int r;

	if (run && !records_is_id(run))
		return cli_misuse(cli, "invalid id '%s'; with a place, RUN is a whole id", run);
	r = remote_open_at(&log.remote, cli, i, false, &log.at, &err);
	if (r == 0) {
		_cleanup_free_ char *output = location_prefix(log.at.key);

		log.prefix = output ? str_printf("%s" RUN_STATE_ROOT, output) : NULL;
		r = log.prefix ? 0 : error_memory(&err);
	}
	if (r == 0)
		r = find_remote_run(&log, run, cli_has(cli, "follow"), &err);
	if (r == 0)
		r = cli_has(cli, "follow") ? follow_remote(&log, attempt, &err)
					   : show_remote(&log, attempt, cli_has(cli, "all"), &err);
	return r < 0 ? remote_fail(cli, &err) : 0;
}

/* ---- the verb ---- */

/* Reads --since: a duration before now, or a time. Returns 0, or the exit code after a message. */
static int read_since(const struct cli *cli, int64_t *since_ms)
{
	const char *text = cli_value(cli, "since");
	int64_t ms, ns;

	if (!text)
		return 0;
	if (date_parse_iso(text, &ns))
		*since_ms = ns / NS_PER_MS;
	else if (cli_duration_ms(cli, "since", 0, &ms))
		*since_ms = clock_wall_ns() / NS_PER_MS - ms;
	else
		return CLI_EXIT_USAGE;
	return 0;
}

static int run_logs(const struct cli *cli)
{
	_cleanup_(records_freep) struct records *records = NULL;
	_cleanup_(records_run_release) struct records_run run = {0};
	_cleanup_free_ char *home = NULL;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	bool all = cli_has(cli, "all");
	struct follow how = {.fd = -1, .lines = -1, .stamped = cli_has(cli, "timestamps")};
	int64_t attempt;
	int64_t lines;
	/* The place of the output may be the first operand or the second one. */
	size_t place = cli_n_operands(cli) > 1 && !location_is_object(cli_operand(cli, 0));
	int code = read_since(cli, &how.since_ms);
	int r;

	if (code)
		return code;
	if (!cli_number(cli, "lines", 0, INT64_MAX, 0, &lines) ||
		!cli_number(cli, "attempt", 1, INT32_MAX, 0, &attempt))
		return CLI_EXIT_USAGE;
	if (all && (attempt || cli_has(cli, "lines")))
		return cli_misuse(cli, "--all cannot be used with --attempt or --lines");
	if (cli_has(cli, "lines"))
		how.lines = lines;
	if (location_is_object(cli_operand(cli, place))) {
		if (how.stamped || how.since_ms)
			return cli_misuse(
				cli, "--timestamps and --since work only for runs of this machine");
		if (cli_has(cli, "lines") || (all && cli_has(cli, "follow")))
			return cli_misuse(cli, "%s only for runs of this machine",
				all ? "--all works with --follow" : "--lines works");
		return logs_remote(cli, place, attempt);
	}
	if (place)
		return cli_misuse(
			cli, "invalid place '%s'; it is s3://BUCKET/PATH/", cli_operand(cli, 1));
	r = show_run(cli, 0, &records, &home, &run, &err);
	if (r < 0)
		return cli_fail(cli, &err);
	if (attempt > run.last.attempt)
		return cli_misuse(cli, "invalid --attempt: the last attempt of run '%s' is %d",
			run.id, run.last.attempt);
	if (attempt == 0)
		attempt = run.last.attempt;
	if (!all && cli_has(cli, "follow") && attempt == run.last.attempt &&
		cluster_has(home, run.id)) {
		r = cluster_follow(cli, records, home, run.id, &how, &code, &err);
		return r < 0 ? cli_fail(cli, &err) : code > 128 ? code : 0;
	}
	r = all ? show_all(cli, home, &run, &how, &err)
		: show_attempt(cli, home, &run, (int)attempt, &how, &err);
	return r < 0 ? cli_fail(cli, &err) : 0;
}

const struct command command_logs = {
	.name = "logs",
	.summary = "show what a run printed",
	.operands = "RUN [s3://PLACE] | s3://PLACE [RUN]",
	.min_operands = 1,
	.max_operands = 2,
	.description =
		"Shows the output of the steps of an attempt, and the messages of penstock "
		"between them. Secrets are masked. The log of an attempt on another machine is "
		"fetched from the place of the output, if `enableLogging` keeps it there.\n"
		"\n"
		"RUN is an id, the beginning of one, or a name. With the output of a run as a "
		"place, the verb prints the log that `enableLogging` keeps there, of a run on any "
		"machine; RUN is then a whole id, needed if several runs log there. With "
		"--follow the output continues from attempt to attempt until the run has ended.",
	.options = OPTIONS({'f', "follow", NULL, "Continue until the run ends"},
		{'n', "lines", "N", "Print only the last N lines"},
		{'t', "timestamps", NULL, "Print the time of each line before the line"},
		{0, "since", "TIME",
			"Print only lines since this time: 10m, 2h, or 2026-01-31T12:00:00Z"},
		{0, "attempt", "N", "Print the log of this attempt instead of the last one"},
		{'a', "all", NULL,
			"Print the logs of all attempts in order, on any machine, with a line "
			"before each log"},
		REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock logs cifar10",
				     "The output of the last attempt of the run named cifar10"},
		{"penstock logs -f -n 20 3f2a",
			"The last 20 lines, and further ones until the run ends"},
		{"penstock logs -t --since 10m cifar10",
			"The last ten minutes, with the time of each line"},
		{"penstock logs --all cifar10",
			"All attempts of the run, including those on other machines"},
		{"penstock logs -f s3://bucket/results",
			"A run on another machine, while it is running"},
		{"penstock logs 3f2a9c0d5e6b s3://bucket/results",
			"One of several runs that log there"}),
	.exits = EXITS({"66", "There is no such run, or it has no log"}),
	.run = run_logs,
};
