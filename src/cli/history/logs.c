#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "cli/cluster/cluster.h"
#include "cli/commands.h"
#include "cli/history/logs_fetch.h"
#include "cli/history/logs_remote.h"
#include "cli/objects/remote.h"
#include "cli/print/follow.h"
#include "cli/print/util.h"
#include "records/supervisor.h"
#include "records/layout.h"
#include "base/banned.h"

enum { POLL_MS = 200 };

/* Waits until the log grew, the run ended, or a short time passed. */
static void wait_for_more(int events, const struct process *supervisor)
{
	struct pollfd fds[] = {{events, POLLIN, 0}, {supervisor->pidfd, POLLIN, 0}};
	char drained[4096];

	if (poll(fds, 2, POLL_MS) > 0 && fds[0].revents) {
		while (read(events, drained, sizeof(drained)) > 0)
			;
	}
}

/* Opens the log. If a live attempt has not created it yet, waits for it. */
static int open_log(const char *path, const struct process *supervisor, bool follow)
{
	for (;;) {
		struct pollfd ended = {supervisor->pidfd, POLLIN, 0};
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		if (fd >= 0 || errno != ENOENT || !follow || supervisor->pidfd < 0)
			return fd;
		if (poll(&ended, 1, POLL_MS / 4) > 0)
			return open(path, O_RDONLY | O_CLOEXEC);
	}
}

static int show_log(const struct cli *cli, const char *path, const struct process *supervisor,
	int64_t lines, struct penstock_error *err)
{
	bool follow = cli_has(cli, "follow");
	_cleanup_close_ int fd = open_log(path, supervisor, follow);
	_cleanup_close_ int events = -1;
	struct pollfd ended = {supervisor->pidfd, POLLIN, 0};
	int r = 0;

	if (fd < 0)
		return error_errno(err, errno, "cannot open %s", path);
	if (cli_has(cli, "lines"))
		r = follow_seek_to_last(fd, lines, err);
	if (follow && supervisor->pidfd >= 0) {
		events = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
		if (events >= 0)
			inotify_add_watch(events, path, IN_MODIFY);
	}
	while (r == 0 && follow && supervisor->pidfd >= 0 && poll(&ended, 1, 0) == 0) {
		r = follow_copy_rest(fd, err);
		if (r == 0)
			wait_for_more(events, supervisor);
	}
	/* Print what was written before the end; without --follow, the whole log. */
	return r < 0 ? r : follow_copy_rest(fd, err);
}

/* Prints the log of one attempt. If that ran on another machine, its log is fetched from the place
 * of the output. */
static int show_attempt(const struct cli *cli, const char *home, const struct records_run *run,
	int attempt, int64_t lines, struct penstock_error *err)
{
	_cleanup_(run_layout_release) struct run_layout layout = {0};
	_cleanup_(process_release) struct process supervisor = PROCESS_INIT;
	/* Only the last attempt can still write. */
	bool live = attempt == run->last.attempt && run_state_is_live(run->last.state);
	int r = run_layout_init(&layout, home, run->id, attempt, err);

	if (r == 0 && live)
		r = supervisor_find(home, run->id, &supervisor, err);
	if (r == 0 && attempt != run->last.attempt)
		r = logs_fetch(home, run, attempt, layout.log, err);
	return r >= 0 ? show_log(cli, layout.log, &supervisor, lines, err) : r;
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
	if (str_starts(cli_operand(cli, 0), "s3://") || str_starts(cli_operand(cli, 0), "gs://")) {
		if (cli_has(cli, "lines") || (all && cli_has(cli, "follow")))
			return cli_misuse(cli, "%s for runs of this machine",
				all ? "--all with --follow is" : "--lines is");
		return logs_remote(cli, attempt);
	}
	if (cli_n_operands(cli) > 1)
		return cli_misuse(cli, "unexpected operand '%s'", cli_operand(cli, 1));
	r = show_open(&records, &home, &err);
	if (r == 0)
		r = show_find(cli, records, &run, &err);
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
