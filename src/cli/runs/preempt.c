#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/print/util.h"
#include "records/supervisor.h"
#include "run/config/times.h"
#include "records/layout.h"
#include "base/banned.h"

static int report(const struct cli *cli, struct records *records, const struct records_run *run,
	struct penstock_error *err)
{
	struct records_attempt last = {0};
	int r = records_last_attempt(records, run->id, &last, err);

	if (r < 0)
		return r;
	if (cli_has(cli, "json")) {
		json_t *object = json_pack(
			"{s:o, s:o}", "id", json_text(run->id), "name", json_text(run->name));

		json_add_attempt(object, &last);
		r = show_json(object);
	} else if (run_state_is_live(last.state)) {
		printf("run %s: %s, notified\n", run->id, run_state_name(last.state));
	} else {
		printf("run %s: %s%s%s\n", run->id, run_state_name(last.state),
			last.message ? ": " : "", last.message ? last.message : "");
	}
	if (r == 0 && last.unflushed)
		r = CLI_EXIT_OUTPUT;
	records_attempt_release(&last);
	return r;
}

static int run_preempt(const struct cli *cli)
{
	_cleanup_(records_freep) struct records *records = NULL;
	_cleanup_(records_run_release) struct records_run run = {0};
	_cleanup_(process_release) struct process supervisor = PROCESS_INIT;
	_cleanup_free_ char *home = NULL;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int64_t grace_ms;
	int r;

	if (!cli_duration_ms(cli, "grace", STOP_GRACE_DEFAULT_MS, &grace_ms))
		return CLI_EXIT_USAGE;
	r = show_run(cli, 0, &records, &home, &run, &err);
	if (r == 0)
		r = supervisor_find(home, run.id, &supervisor, &err);
	if (r == 0)
		r = error_set(&err, PENSTOCK_E_NOT_FOUND, "cannot preempt run %s: it is not live",
			run.id);
	if (r == 1)
		r = show_write_ms(
			home, run.id, RUN_FILE_PREEMPT, grace_ms > 0 ? grace_ms : 1, &err);
	if (r == 0) {
		struct pollfd ended = {supervisor.pidfd, POLLIN, 0};

		process_signal(&supervisor, SIGUSR1);
		if (!cli_has(cli, "no-wait"))
			poll(&ended, 1, -1);
		r = report(cli, records, &run, &err);
	}
	return r < 0 ? cli_fail(cli, &err) : r;
}

const struct command command_preempt = {
	.name = "preempt",
	.summary = "simulate a preemption of the run's machine",
	.operands = "RUN",
	.min_operands = 1,
	.max_operands = 1,
	.description =
		"Gives a run the notice that a cloud gives before it takes a machine away: its "
		"steps find a file and get a signal, may save, and are killed at the deadline; "
		"complete files are published, and the run ends as 'preempted'. The same "
		"'penstock run' resumes it.\n"
		"\n"
		"RUN is an id, the beginning of one, or a name.",
	.options = OPTIONS(
		{0, "grace", "TIME",
			"Time until the simulated machine goes away, such as 30s or 2m; default 30s. "
			"The steps get most of it, the rest is for publishing"},
		{0, "no-wait", NULL,
			"Return once the run is notified, instead of when it has ended"},
		{0, "json", NULL, "Print the state of the run as JSON"}),
	.examples = EXAMPLES({"penstock preempt cifar10",
				     "Simulate a cloud that takes the machine in 30 seconds"},
		{"penstock preempt --grace 10s 3f2a", "The same with 10 seconds"}),
	.exits = EXITS({"66", "There is no such run, or it is not live"},
		{"69", "The run's process cannot be reached from here"},
		{"73", "The run ended, but its output is not completely uploaded; see penstock flush"}),
	.run = run_preempt,
};
