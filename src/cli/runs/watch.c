/* `penstock watch`: resumes runs that were preempted or lost on this machine. */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process/process.h"
#include "cli/cluster/cluster.h"
#include "cli/commands.h"
#include "cli/print/util.h"
#include "cli/runs/watch_metrics.h"
#include "records/records.h"
#include "run/notices/interrupts.h"
#include "run/retry.h"
#include "run/run.h"
#include "records/layout.h"
#include "server/serve.h"

enum {
	SCAN_MS = 5000, /* between two scans of the records */
	TICK_MS = 100, /* between two checks of the started processes */
	BACKOFF_MS = 10000, /* before a run that ended soon is restarted; grows each time */
	/* a run that ends after this time is restarted with the shortest backoff */
	STEADY_MS = 10 * 60000
};

/* A run that a scan has found preempted or lost. */
struct watched {
	struct watched *next;
	char id[RECORDS_ID_SIZE];
	char *name; /* for users; the id if the run has no name */
	struct process process;
	bool runs;
	int seen_attempt; /* the last attempt */
	int64_t seen_ms; /* start of the wait before the run is restarted */
	int64_t began_ms;
	int64_t not_before_ms;
	unsigned failures; /* consecutive */
};

struct watch {
	const struct cli *cli;
	struct records *records;
	char *home;
	struct watched *all;
	int64_t after_ms; /* from a preemption seen by this process to the next attempt */
	bool first; /* first scan of the records */
	bool once;
	struct watch_metrics *metrics; /* NULL if no metrics are served */
	json_t *started; /* for --once with --json */
	size_t n_started, n_failed;
};

static void watch_release(struct watch *watch)
{
	while (watch->all) {
		struct watched *w = watch->all;

		watch->all = w->next;
		if (w->runs)
			process_release(&w->process);
		free(w->name);
		free(w);
	}
	watch_metrics_stop(watch->metrics);
	json_decref(watch->started);
	records_free(watch->records);
	free(watch->home);
}

/* ---- events ---- */

static void report(struct watch *watch, const struct watched *w, const char *event, int code)
{
	json_t *object;

	if (!cli_has(watch->cli, "json")) {
		if (cli_quiet(watch->cli))
			return;
		if (strcmp(event, "ended") == 0)
			log_info("run %s ended with exit code %d", w->name, code);
		else
			log_info("run %s: attempt %d %s", w->name, w->seen_attempt,
				strcmp(event, "started") == 0 ? "resumed" : "cannot be resumed");
		return;
	}
	object = json_pack("{s:s, s:s, s:s, s:i}", "event", event, "run", w->id, "name", w->name,
		"after_attempt", w->seen_attempt);
	if (code >= 0)
		json_object_set_new(object, "exit_code", json_integer(code));
	if (watch->started) {
		json_array_append_new(watch->started, object);
		return;
	}
	json_dumpf(object, stdout, JSON_COMPACT);
	putchar('\n');
	fflush(stdout);
	json_decref(object);
}

/* ---- starting and ending ---- */

static void pause_before_next(struct watched *w, int64_t now_ms)
{
	uint32_t random = 0;

	if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
		random = (uint32_t)now_ms;
	w->failures = now_ms - w->began_ms >= STEADY_MS ? 1 : w->failures + 1;
	w->not_before_ms = now_ms + retry_pause_ms(BACKOFF_MS, w->failures, random);
}

static void start(struct watch *watch, struct watched *w)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *const stays[] = {
		"/proc/self/exe", "--quiet", "resume", "--due", "--on", "local", w->id, NULL};
	const char *const leaves[] = {"/proc/self/exe", "--quiet", "resume", "--due", "--on",
		"local", "--detach", w->id, NULL};
	int r = process_spawn(&w->process,
		&(struct process_spec){
			.argv = watch->once ? leaves : stays,
			/* Pass on the whole environment: the resumed workflow may refer to secrets
			 * in it. */
			.envp = (const char *const *)environ,
			.stdin_fd = -1,
			.stdout_fd = -1,
			.stderr_fd = STDERR_FILENO,
			.new_session = true,
		},
		&err);

	w->began_ms = clock_monotonic_ms();
	if (r < 0) {
		log_error("cannot resume run '%s': %s", w->name, err.message);
		pause_before_next(w, w->began_ms);
		watch->n_failed++;
		return;
	}
	w->runs = true;
	watch_metrics_restarted(watch->metrics);
	if (!watch->once)
		report(watch, w, "started", -1);
}

static int code_of(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Collects the processes that have ended. Returns the number of live processes. */
static size_t take_ended(struct watch *watch)
{
	size_t n = 0;

	for (struct watched *w = watch->all; w; w = w->next) {
		int status;

		if (!w->runs)
			continue;
		if (!process_wait(&w->process, 0, &status)) {
			n++;
			continue;
		}
		process_release(&w->process);
		w->runs = false;
		if (watch->once) {
			bool good = code_of(status) == 0;

			watch->n_started += good;
			watch->n_failed += !good;
			report(watch, w, good ? "started" : "failed", good ? -1 : code_of(status));
			continue;
		}
		report(watch, w, "ended", code_of(status));
		pause_before_next(w, clock_monotonic_ms());
	}
	return n;
}

/* ---- finding runs that are due ---- */

static struct watched *watched_of(struct watch *watch, const struct records_run *run)
{
	struct watched *w = watch->all;

	while (w && strcmp(w->id, run->id) != 0)
		w = w->next;
	if (w)
		return w;
	w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	memcpy(w->id, run->id, sizeof(w->id));
	w->name = strdup(run->name ? run->name : run->id);
	if (!w->name) {
		free(w);
		return NULL;
	}
	w->next = watch->all;
	watch->all = w;
	return w;
}

/*
 * Starts the run if it is due. After a preemption that this process sees, the machine is about to
 * go away: wait `after_ms` before the restart. A run that was preempted before the first scan
 * (after a reboot), or that was lost, is due at once.
 */
static int consider_run(void *cookie, const struct records_run *run)
{
	struct watch *watch = cookie;
	_cleanup_free_ char *dir = run_path(watch->home, run->id, RUN_FILE_DIR);
	int64_t now_ms = clock_monotonic_ms();
	struct watched *w;
	struct stat st;

	/* A run on a cluster is restarted by Slurm or by the user who submitted it. */
	if ((run->last.state != RUN_PREEMPTED && run->last.state != RUN_LOST) ||
		cluster_has(watch->home, run->id) || run_is_left_alone(watch->home, run->id))
		return 0;
	/* $PENSTOCK_HOME may belong to another user: a workflow that another user may have written
	 * must not run with the rights of this user. */
	if (!dir || lstat(dir, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
		return 0;
	w = watched_of(watch, run);
	if (!w || w->runs)
		return 0;
	if (w->seen_attempt != run->last.attempt) {
		w->seen_attempt = run->last.attempt;
		w->seen_ms = watch->first || run->last.state == RUN_LOST ? now_ms - watch->after_ms
									 : now_ms;
	}
	if (now_ms - w->seen_ms >= watch->after_ms && now_ms >= w->not_before_ms)
		start(watch, w);
	return 0;
}

static int scan(struct watch *watch, struct penstock_error *err)
{
	int r = records_list(watch->records, consider_run, watch, err);

	watch->first = false;
	return r;
}

/* ---- the verb ---- */

static void watch_on(struct watch *watch, struct interrupts *interrupts, int64_t scan_ms)
{
	struct pollfd event = {interrupts->event_fd, POLLIN, 0};
	enum interrupt_reason reason;
	int64_t next_ms = 0;
	int forwarded = 0, count;

	for (;;) {
		size_t live = take_ended(watch);

		reason = interrupts_reason(interrupts);
		count = interrupts_count(interrupts);
		if (reason != INTERRUPT_NONE && count < 1)
			count = 1;
		if (count > forwarded) {
			/* Do not wait here for steps: each started process has a grace period of
			 * its own. */
			for (struct watched *w = watch->all; w; w = w->next) {
				if (w->runs)
					process_signal(&w->process,
						reason == INTERRUPT_STOP ? SIGINT : SIGTERM);
			}
			interrupts_clear_event(interrupts);
			forwarded = count;
		}
		if (count && !live)
			return;
		if (!count && clock_monotonic_ms() >= next_ms) {
			_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;

			/* Do not end the watch: a scan may fail for a while, as on a full disk, and
			 * live runs continue. */
			if (scan(watch, &e) < 0)
				log_warn("%s", e.message);
			next_ms = clock_monotonic_ms() + scan_ms;
		}
		poll(&event, 1, TICK_MS);
	}
}

static int run_watch(const struct cli *cli)
{
	_cleanup_(watch_release) struct watch watch = {
		.cli = cli, .first = true, .once = cli_has(cli, "once")};
	struct interrupts interrupts = {.event_fd = -1, .signal_fd = -1, .quit_fd = -1};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *metrics = cli_value(cli, "metrics");
	_cleanup_free_ char *address = NULL;
	uint16_t port = 0;
	struct stat st;
	int64_t scan_ms;
	int r;

	if (watch.once && metrics)
		return cli_misuse(cli, "--metrics and --once cannot be used together");
	if (metrics && serve_parse_metrics(metrics, &address, &port, &err) < 0) {
		r = cli_misuse(cli, "%s", err.message);
		penstock_error_release(&err);
		return r;
	}
	if (!cli_duration_ms(cli, "every", SCAN_MS, &scan_ms) ||
		!cli_duration_ms(cli, "after", 2 * 60000, &watch.after_ms))
		return CLI_EXIT_USAGE;
	interrupts_block_signals();
	if (watch.once && cli_has(cli, "json"))
		watch.started = json_array();
	r = show_open(&watch.records, &watch.home, &err);
	if (r == 0 && stat(watch.home, &st) < 0)
		r = error_errno(&err, errno, "%s", watch.home);
	else if (r == 0 && st.st_uid != geteuid())
		r = error_set(&err, PENSTOCK_E_PERMISSION,
			"cannot watch the runs in '%s': they would be resumed with the rights of the "
			"caller; run 'penstock watch' as user %u",
			watch.home, (unsigned)st.st_uid);
	if (r == 0 && watch.once) {
		r = scan(&watch, &err);
		while (r == 0 && take_ended(&watch) > 0)
			poll(NULL, 0, TICK_MS);
		if (r == 0 && watch.started)
			show_json(take_pointer(watch.started));
		else if (r == 0 && !cli_quiet(cli) && !watch.n_started && !watch.n_failed)
			log_info("no run is due");
	} else if (r == 0) {
		if (metrics)
			r = watch_metrics_start(&watch.metrics, address, port, watch.home, &err);
		if (r == 0)
			r = interrupts_start(&interrupts, &err);
		if (r == 0)
			watch_on(&watch, &interrupts, scan_ms);
		interrupts_stop(&interrupts);
	}
	if (r < 0)
		return cli_fail(cli, &err);
	return watch.n_failed && watch.once ? CLI_EXIT_UNAVAILABLE : 0;
}

const struct command command_watch = {
	.name = "watch",
	.summary = "resume runs that were preempted or lost on this machine",
	.description =
		"Scans the runs of this user, and resumes those that were preempted, or whose "
		"penstock was killed or went away with the machine: each as 'penstock resume' "
		"would, in a process of its own. Runs that are live, here or on another machine, "
		"are left alone, and so are runs that failed, were stopped or succeeded, even on "
		"another machine. A run that ends again soon is restarted with growing delays of "
		"up to 10 minutes. Runs on Slurm are not resumed: Slurm requeues preempted ones, "
		"and 'penstock resume' resubmits lost ones.\n\n"
		"SIGTERM ends the watch: the runs that the watch started are preempted, and "
		"resumed when the watch is started again. If the watch is killed, the runs keep "
		"running.",
	.options = OPTIONS(
		{0, "once", NULL, "Start all runs that are due, in the background, and exit"},
		{0, "every", "TIME", "Time between two scans of the records; default 5s"},
		{0, "after", "TIME",
			"Time from a preemption to the restart of the run, if the machine is still "
			"there; default 2m"},
		{0, "metrics", "[ADDRESS:]PORT",
			"Serve the metrics of all runs to Prometheus, at /metrics of this port; default "
			"address: 127.0.0.1"},
		{0, "json", NULL, "Print a JSON object for each event; with --once a list"}),
	.examples = EXAMPLES({"penstock watch --once", "After a reboot: resume interrupted runs"},
		{"systemctl --user enable --now penstock-watch",
			"The same at every start of the machine, by the installed unit"},
		{"penstock watch --metrics 9101", "Serve the metrics of the runs to Prometheus"},
		{"penstock watch --json", "Report each start and end, one line each"}),
	.exits = EXITS(
		{"69", "With --once: a run that is due could not be started; the others were"}),
	.run = run_watch,
};
