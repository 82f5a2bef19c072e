/* `penstock stop` and `preempt`. */
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "cli/cluster/cluster.h"
#include "cli/commands.h"
#include "cli/print/util.h"
#include "records/supervisor.h"
#include "records/layout.h"
#include "run/run.h"
#include "run/process/strays.h"
#include "run/config/times.h"

enum { POLL_MS = 100 };

/* Writes a time to RUN_FILE_GRACE or RUN_FILE_PREEMPT, where the run's supervisor reads it. */
static int write_ms(const char *home, const char *id, enum run_file file, int64_t ms,
	struct penstock_error *err)
{
	_cleanup_free_ char *path = run_path(home, id, file);
	char text[24];
	int n = snprintf(text, sizeof(text), "%" PRId64, ms);

	return path ? fs_write_atomic(path, text, (size_t)n, 0600, err) : error_memory(err);
}

/* Sends SIGINT to the supervisor. If steps are still running after the grace period, sends SIGINT
 * again, which kills the steps. Waits for the end of the supervisor. */
static void end_supervisor(const struct cli *cli, struct records *records, const char *id,
	const struct process *supervisor, int64_t grace_ms)
{
	struct pollfd ended = {supervisor->pidfd, POLLIN, 0};
	int64_t insist_at = clock_monotonic_ms() + grace_ms;
	bool insisted = false;
	bool reported = false;

	process_signal(supervisor, SIGINT);
	while (poll(&ended, 1, POLL_MS) == 0) {
		/* During the flush, a second signal would abandon the upload. */
		if (!records_before_flush(records, id)) {
			if (!reported && !cli_quiet(cli))
				log_info("completing the output");
			reported = true;
		} else if (!insisted && clock_monotonic_ms() >= insist_at) {
			process_signal(supervisor, SIGINT);
			insisted = true;
		}
	}
}

/* Ends processes of a run whose penstock was killed. Fails if another process has resumed the run
 * meanwhile, because that process holds the run's lock. */
static int end_strays(const struct cli *cli, const char *home, const struct records_run *run,
	int64_t grace_ms, struct penstock_error *err)
{
	_cleanup_(run_layout_release) struct run_layout layout = {0};
	_cleanup_close_ int lock = -1;
	int r = run_layout_init(&layout, home, run->id, run->last.attempt, err);

	if (r < 0 || access(layout.dir, F_OK) < 0)
		return r;
	r = supervisor_begin(layout.lock, run->id, &lock, err);
	if (r == 0)
		r = strays_end(run->id, &layout, grace_ms < INT_MAX ? (int)grace_ms : INT_MAX, err);
	if (r > 0 && !cli_quiet(cli))
		log_info("ended %d process%s of the last attempt", r, r == 1 ? "" : "es");
	return r < 0 ? r : 0;
}

/* Prints the state of the run, which is live only after `preempt --no-wait`. Returns the exit
 * code. */
static int report(const struct cli *cli, struct records *records, const struct records_run *run,
	bool preempt, struct penstock_error *err)
{
	_cleanup_(records_attempt_release) struct records_attempt last = {0};
	int r = records_last_attempt(records, run->id, &last, err);
	const char *state;

	if (r < 0)
		return r;
	state = run_state_name(last.state);
	if (preempt && cli_has(cli, "json")) {
		json_t *object = json_pack(
			"{s:o, s:o}", "id", json_text(run->id), "name", json_text(run->name));

		json_add_attempt(object, &last);
		r = show_json(object);
	} else if (preempt && run_state_is_live(last.state)) {
		printf("run %s: %s, notified\n", run->id, state);
	} else if (last.message && str_starts(last.message, state)) {
		/* The message begins with the state: "stopped during 'train'; …". */
		printf("run %s: %s\n", run->id, last.message);
	} else {
		printf("run %s: %s%s%s\n", run->id, state, last.message ? ": " : "",
			last.message ? last.message : "");
	}
	return r == 0 && last.unflushed ? CLI_EXIT_OUTPUT : r;
}

static int run_stop(const struct cli *cli)
{
	_cleanup_(records_freep) struct records *records = NULL;
	_cleanup_(records_run_release) struct records_run run = {0};
	_cleanup_(process_release) struct process supervisor = PROCESS_INIT;
	_cleanup_free_ char *home = NULL;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	bool on_cluster = false;
	int64_t grace_ms;
	int r;

	if (!cli_duration_ms(cli, "grace", STOP_GRACE_DEFAULT_MS, &grace_ms))
		return CLI_EXIT_USAGE;
	r = show_run(cli, 0, &records, &home, &run, &err);
	if (r == 0 && cluster_has(home, run.id)) {
		if (cli_has(cli, "grace"))
			r = write_ms(home, run.id, RUN_FILE_GRACE, grace_ms, &err);
		/* If there is no live job, only this machine can have processes of the run. */
		if (r == 0)
			r = cluster_stop(cli, records, home, &run, grace_ms, &err);
		on_cluster = r != -(int)PENSTOCK_E_NOT_FOUND;
		if (!on_cluster) {
			penstock_error_release(&err);
			r = 0;
		}
	} else if (r == 0 && cluster_cancel_left(home, run.id, &err) < 0) {
		log_warn("%s", err.message);
		penstock_error_release(&err);
	}
	if (r == 0 && !on_cluster)
		r = supervisor_find(home, run.id, &supervisor, &err);
	if (r == 1 && cli_has(cli, "grace") &&
		write_ms(home, run.id, RUN_FILE_GRACE, grace_ms, &err) < 0)
		r = -1;
	if (r == 1)
		end_supervisor(cli, records, run.id, &supervisor, grace_ms);
	else if (r == 0 && !on_cluster && !cli_quiet(cli))
		log_info("run %s is not live", run.id);
	/* Keep `penstock watch` from restarting the run. */
	if (r == 0 && (run.last.state == RUN_LOST || run.last.state == RUN_PREEMPTED))
		r = run_leave_alone(home, run.id, &err);
	if (r == 0 && !on_cluster &&
		(run.last.state == RUN_LOST || run_state_is_live(run.last.state)))
		r = end_strays(cli, home, &run, grace_ms, &err);
	if (r >= 0)
		r = report(cli, records, &run, false, &err);
	return r < 0 ? cli_fail(cli, &err) : r;
}

const struct command command_stop = {
	.name = "stop",
	.summary = "stop a run and wait until it has ended",
	.operands = "RUN",
	.min_operands = 1,
	.max_operands = 1,
	.description =
		"Stops a run: its steps get a signal, its output is completed, and its end "
		"state is shown. 'penstock resume' continues it later. A run that has ended "
		"already stays unchanged; if its penstock was killed, its remaining processes "
		"are ended. 'penstock watch' no longer continues a preempted or lost run that "
		"was stopped; 'penstock resume' does.\n"
		"\n"
		"RUN is an id, the beginning of one, or a name.",
	.options = OPTIONS({0, "grace", "TIME",
		"Time for its steps to end before they are killed, such as 30s or 5m; default 30s"}),
	.examples = EXAMPLES(
		{"penstock stop cifar10", "Stop the run and wait until its output is complete"},
		{"penstock stop --grace 5m 3f2a", "Stop the run, and give its steps five minutes"}),
	.exits = EXITS({"66", "There is no such run"},
		{"69", "The run's process cannot be reached from here"},
		{"73", "The run ended, but its output is not completely uploaded; see penstock flush"}),
	.run = run_stop,
};

/* ---- preempt ---- */

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
		r = error_set(&err, PENSTOCK_E_NOT_FOUND, "cannot preempt run '%s': it is not live",
			run.id);
	if (r == 1)
		r = write_ms(home, run.id, RUN_FILE_PREEMPT, grace_ms > 0 ? grace_ms : 1, &err);
	if (r == 0) {
		struct pollfd ended = {supervisor.pidfd, POLLIN, 0};

		process_signal(&supervisor, SIGUSR1);
		if (!cli_has(cli, "no-wait"))
			poll(&ended, 1, -1);
		r = report(cli, records, &run, true, &err);
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
