#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "cli/cluster/cluster.h"
#include "cli/commands.h"
#include "cli/history/artifacts_place.h"
#include "cli/history/logs_remote.h"
#include "cli/objects/remote.h"
#include "cli/print/follow.h"
#include "cli/print/util.h"
#include "cli/workflow/load.h"
#include "records/supervisor.h"
#include "transfer/objects.h"
#include "records/layout.h"
#include "base/banned.h"

enum { POLL_MS = 50 };

/* Fetches the log of an attempt on another machine, once, from the place of the output. */
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
			"the log of attempt %d is not on this machine; `enableLogging: true` in "
			"the workflow, with an output in object storage, makes it available to "
			"other machines",
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
			"the log of attempt %d is neither on this machine nor next to the "
			"output: it ended before it had one",
			attempt);
	return r < 0 ? error_move(err, &e) : 0;
}

/* Prints the log of one attempt; with --follow until its supervisor ends. */
static int show_attempt(const struct cli *cli, const char *home, const struct records_run *run,
	int attempt, int64_t lines, struct penstock_error *err)
{
	_cleanup_(run_layout_release) struct run_layout layout = {0};
	_cleanup_(process_release) struct process supervisor = PROCESS_INIT;
	_cleanup_(follow_close) struct follow log = {
		.fd = -1, .lines = cli_has(cli, "lines") ? lines : -1};
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
	/* Print what was written before the end; without --follow, the whole log. */
	if (r == 0)
		r = follow_print(&log, err);
	return r == 0 && log.fd < 0 ? error_errno(err, ENOENT, "cannot open %s", layout.log) : r;
}

/* Prints the logs of all attempts in order; reports and skips attempts without a log. */
static int show_all(const struct cli *cli, const char *home, const struct records_run *run,
	struct penstock_error *err)
{
	for (int attempt = 1; attempt <= run->last.attempt; attempt++) {
		_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
		int r = show_attempt(cli, home, run, attempt, 0, &e);

		if (r == -(int)PENSTOCK_E_NOT_FOUND && attempt < run->last.attempt)
			log_warn("%s", e.message);
		else if (r < 0)
			return error_move(err, &e);
	}
	return 0;
}

static int run_logs(const struct cli *cli)
{
	_cleanup_(records_freep) struct records *records = NULL;
	_cleanup_(records_run_release) struct records_run run = {0};
	_cleanup_free_ char *home = NULL;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	bool all = cli_has(cli, "all");
	int64_t attempt;
	int64_t lines;
	int code = 0;
	int r;

	if (!cli_number(cli, "lines", 0, INT64_MAX, 0, &lines) ||
		!cli_number(cli, "attempt", 1, INT32_MAX, 0, &attempt))
		return CLI_EXIT_USAGE;
	if (all && (attempt || cli_has(cli, "lines")))
		return cli_misuse(cli, "--all prints whole logs of all attempts");
	if (location_is_object(cli_operand(cli, 0))) {
		if (cli_has(cli, "lines") || (all && cli_has(cli, "follow")))
			return cli_misuse(cli, "%s for runs of this machine",
				all ? "--all with --follow is" : "--lines is");
		return logs_remote(cli, attempt);
	}
	if (cli_n_operands(cli) > 1)
		return cli_misuse(cli, "unexpected operand '%s'", cli_operand(cli, 1));
	r = show_run(cli, 0, &records, &home, &run, &err);
	if (r < 0)
		return cli_fail(cli, &err);
	if (attempt > run.last.attempt)
		return cli_misuse(cli, "--attempt: run %s has only %d", run.id, run.last.attempt);
	if (attempt == 0)
		attempt = run.last.attempt;
	if (!all && cli_has(cli, "follow") && attempt == run.last.attempt &&
		cluster_has(home, run.id)) {
		r = cluster_follow(cli, records, home, run.id, cli_has(cli, "lines") ? lines : -1,
			&code, &err);
		return r < 0 ? cli_fail(cli, &err) : code > 128 ? code : 0;
	}
	r = all ? show_all(cli, home, &run, &err)
		: show_attempt(cli, home, &run, (int)attempt, lines, &err);
	return r < 0 ? cli_fail(cli, &err) : 0;
}

const struct command command_logs = {
	.name = "logs",
	.summary = "show what a run printed",
	.operands = "RUN | s3://BUCKET/PATH [RUN]",
	.min_operands = 1,
	.max_operands = 2,
	.description =
		"Shows the output of the steps of an attempt, and the messages of penstock "
		"between them. Secrets are masked. The log of an attempt on another machine is "
		"fetched from the place of the output, if `enableLogging` keeps it there.\n"
		"\n"
		"RUN is an id, the beginning of one, or a name. With the place of the output, "
		"it prints the log that `enableLogging` keeps there, of a run on any machine; "
		"RUN is then a whole id, needed if several runs log there. With --follow it "
		"continues from attempt to attempt until the run has ended.",
	.options = OPTIONS({'f', "follow", NULL, "Continue until the run ends"},
		{'n', "lines", "N", "Only the last N lines"},
		{0, "attempt", "N", "The log of this attempt instead of the last one"},
		{'a', "all", NULL, "The logs of all attempts in order, on any machine"},
		REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock logs cifar10",
				     "The output of the last attempt of the run named cifar10"},
		{"penstock logs -f -n 20 3f2a",
			"The last 20 lines, and further ones until the run ends"},
		{"penstock logs --all cifar10", "All its attempts, also those on other machines"},
		{"penstock logs -f s3://bucket/results",
			"A run on another machine, while it is running"}),
	.exits = EXITS({"66", "There is no such run, or it has no log"}),
	.run = run_logs,
};
