/* `penstock run`, `resume` and `flush`. */
#include <limits.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "cli/history/artifacts_place.h"
#include "cli/runs/background.h"
#include "cli/cluster/cluster.h"
#include "cli/command.h"
#include "cli/workflow/load.h"
#include "cli/workflow/load_again.h"
#include "cli/print/progress.h"
#include "cli/print/terminal.h"
#include "cli/print/util.h"
#include "cli/objects/remote.h"
#include "cli/runs/resume_remote.h"
#include "records/claims.h"
#include "records/records.h"
#include "run/notices/interrupts.h"
#include "run/notices/settings.h"
#include "run/run.h"
#include "run/cluster/slurm.h"
#include "run/stage/stores.h"
#include "run/config/user_limits.h"
#include "workflow/workflow.h"

/* ---- output for the user ---- */

struct view {
	const struct cli *cli;
	struct progress *progress;
};

static void on_event(void *cookie, const struct run_event *event)
{
	struct view *view = cookie;

	switch (event->kind) {
	case RUN_EVENT_MESSAGE:
		if (!cli_quiet(view->cli))
			progress_note(view->progress, event->text);
		break;
	case RUN_EVENT_WARNING:
		progress_note(view->progress, event->text);
		break;
	case RUN_EVENT_STAGE:
		progress_update(view->progress, event->text, event->done, event->total);
		break;
	case RUN_EVENT_STATE:
		/* Remove the bars, which do not mix with the steps' own output. */
		if (strcmp(event->text, run_state_name(RUN_RUNNING)) == 0)
			progress_complete(view->progress);
		progress_clear(view->progress);
		log_debug("state: %s", event->text);
		break;
	case RUN_EVENT_STEP:
		if (cli_quiet(view->cli))
			break;
		if (event->total > 1)
			log_info("step %d of %d: %s", (int)event->done, (int)event->total,
				event->text);
		else if (!event->total) /* a step of a launch, which has no number */
			log_info("step: %s", event->text);
		break;
	case RUN_EVENT_FLUSH:
		progress_update(view->progress, "uploading the output", event->done, event->total);
		break;
	}
}

/* State that all three verbs share. */
struct session {
	char *home;
	struct records *records;
	struct workflow *workflow;
	char *shown; /* the workflow's name for messages */
	char *source; /* description of the file for the next resume; NULL if there is no new one */
	struct artifacts_place *places; /* inputs that are outputs of other runs; one per input */
	struct strlist after; /* ids of those other runs that have not ended */
	struct view view;
	struct stores_embedded_ops embedded;
	char id[RECORDS_ID_SIZE]; /* id of the run that has ended in this process */
	int attempt;
};

static void session_release(struct session *session)
{
	size_t n = session->places ? session->workflow->n_inputs : 0;

	progress_free(session->view.progress);
	for (size_t i = 0; i < n; i++)
		artifacts_place_release(&session->places[i]);
	free(session->places);
	strlist_release(&session->after);
	workflow_free(session->workflow);
	records_free(session->records);
	free(session->shown);
	free(session->source);
	free(session->home);
}

static int session_open(struct session *session, const struct cli *cli, struct penstock_error *err)
{
	int r = show_open(&session->records, &session->home, err);

	session->view.cli = cli;
	session->embedded = remote_embedded_ops(session->home);
	return r;
}

/* Finds the inputs that are the output of other runs. */
static int find_artifacts(struct session *session, struct penstock_error *err)
{
	session->places = calloc(session->workflow->n_inputs + 1, sizeof(*session->places));
	return session->places ? artifacts_resolve(session->workflow, session->home,
					 session->records, session->places, &session->after, err)
			       : error_memory(err);
}

static struct run_options session_options(struct session *session)
{
	return (struct run_options){
		.workflow = session->workflow,
		.workflow_path = session->shown,
		.source = session->source,
		.home = session->home,
		.records = session->records,
		.stdout_fd = STDOUT_FILENO,
		.stderr_fd = STDERR_FILENO,
		.ready_fd = -1,
		.after = session->after.n ? (const char *const *)session->after.items : NULL,
		.observer = {on_event, &session->view},
		.embedded = &session->embedded,
	};
}

/* Returns the exit code if the error is in a configuration file, not in the workflow; else 0. */
static int check_configuration(const struct cli *cli, const struct session *session)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct notice_settings notices = {0};
	struct claim_limits limits;
	uint64_t bound;
	int r = user_limits_read(&limits, &err);

	if (r == 0)
		r = user_images_bound(&bound, &err);
	if (r == 0)
		r = notice_settings_read(&notices, &session->workflow->preemption, &err);
	notice_settings_release(&notices);
	return r < 0 ? cli_fail_as(cli, &err, CLI_EXIT_CONFIG) : 0;
}

static int execute(const struct cli *cli, struct session *session, struct run_options *options)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct run_result result = {0};
	int code = check_configuration(cli, session);

	if (code)
		return code;
	/* The terminal cannot block a run whose process leaves the terminal, as with --detach. */
	if (options->ready_fd < 0)
		terminal_never_blocks();
	session->view.progress = progress_new(cli_quiet(cli));
	if (run_execute_with_retries(options, &result, &err) < 0)
		return cli_fail(cli, &err);
	progress_clear(session->view.progress);
	/* Some messages begin with the state, such as "stopped during 'train'; …". */
	if (result.refused && result.exit_code == 0)
		log_info("%s", result.message);
	else if (result.refused)
		log_error("%s", result.message);
	else if (result.message && str_starts(result.message, run_state_name(result.state)))
		log_error("run %s %s", result.id, result.message);
	else if (result.message)
		log_error("run %s %s: %s", result.id, run_state_name(result.state), result.message);
	else if (!cli_quiet(cli))
		log_info("run %s %s%s%s", result.id, run_state_name(result.state),
			result.output ? "; its output is in " : "",
			result.output ? result.output : "");
	/* Give this hint only if a step failed, and not if the output is incomplete. */
	if (result.state == RUN_FAILED && !result.refused && !cli_quiet(cli) &&
		(result.exit_code < CLI_EXIT_USAGE || result.exit_code > CLI_EXIT_CONFIG) &&
		session->workflow->resume != WORKFLOW_RESUME_NEVER)
		log_info("'penstock resume %s' continues the run with your changes%s", result.id,
			options->fresh ? "" : "; 'penstock run --fresh' starts over");
	code = result.exit_code;
	memcpy(session->id, result.id, sizeof(session->id));
	session->attempt = result.attempt;
	run_result_release(&result);
	return code;
}

/* ---- run ---- */

static const struct command_exit run_exits[] = {
	{"1-255", "The exit code of the step; a code of 64 to 78 is shown as 79"},
	{"65", "The workflow has mistakes, or needs something that this machine does not have"},
	{"66", "An input, an image, the output's bucket or the workflow file is missing, damaged or out of reach"},
	{"69", "A service does not respond, or the run is live already"},
	{"73", "The output is incomplete and kept; see penstock flush"},
	{"75", "Preempted; the same command resumes the run"},
	{"77", "Credentials were refused, or access was denied"},
	{"78", "A configuration file is invalid"},
	{"128+n", "The step was killed by signal n"},
	{"130", "Stopped by the user"},
	{NULL, NULL},
};

static int check_workflow(const struct cli *cli, const struct session *session, bool elsewhere)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int code = check_configuration(cli, session);

	if (code)
		return code;
	return (elsewhere ? run_check_elsewhere(session->workflow, &err)
			  : run_check(session->workflow, &err)) < 0
		       ? cli_fail_as(cli, &err, CLI_EXIT_WORKFLOW)
		       : 0;
}

static int dry_run(const struct cli *cli, const struct session *session, bool elsewhere)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf text = BUF_INIT(4 * LIMIT_WORKFLOW_FILE);
	char id[RECORDS_ID_SIZE];
	int code = check_workflow(cli, session, elsewhere);

	if (code)
		return code;
	if (run_identity(session->workflow, id, &err) < 0)
		return cli_fail(cli, &err);
	if (workflow_print_json(session->workflow, &text) < 0) {
		buf_error(&text, "the workflow", &err);
		return cli_fail(cli, &err);
	}
	log_info("this would be run %s", id);
	fputs(buf_str(&text), stdout);
	return 0;
}

/* Runs the workflow in a child process. Returns in the child, with `*here` set, after the workflow
 * has ended, and in the parent as soon as the child has recorded the run or has ended. */
static int detach(
	const struct cli *cli, struct session *session, struct run_options *options, bool *here)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	pid_t child;
	int end;

	/* SQLite connections do not survive a fork: the child opens its own. */
	records_free(take_pointer(session->records));
	child = background_fork(&end, &err);
	*here = child == 0;
	if (child < 0)
		return cli_fail(cli, &err);
	if (child > 0)
		return background_wait(child, end);
	/* Until the run is recorded, errors still go to the terminal. */
	options->ready_fd = end;
	options->on_ready = background_leave_terminal;
	options->stdout_fd = options->stderr_fd = -1;
	if (records_open(&session->records, session->home, &err) < 0)
		return cli_fail(cli, &err);
	options->records = session->records;
	return execute(cli, session, options);
}

/* The workflows of the command line, in order. All are read before the first workflow starts. */
struct row {
	struct session *sessions;
	size_t n;
	struct strlist operands, tasks; /* one per workflow; the only task of a file is "" */
	size_t n_dstack; /* workflows from files of dstack */
	/* for each given variable: true if a workflow has it; NULL if there is only one workflow */
	bool *used;
	struct strlist sets;
	char *provenance;
	struct cluster cluster;
	bool background; /* this process has left the terminal and runs the workflows */
};

static void row_release(struct row *row)
{
	for (size_t i = 0; row->sessions && i < row->n; i++)
		session_release(&row->sessions[i]);
	free(row->sessions);
	free(row->used);
	strlist_release(&row->operands);
	strlist_release(&row->tasks);
	strlist_release(&row->sets);
	free(row->provenance);
	cluster_release(&row->cluster);
}

/* Loads workflow `i`. Sets `*code` to an exit code if variables were given and no workflow is from
 * dstack, or if the configuration is invalid. */
static int load_given(
	const struct cli *cli, size_t i, struct row *row, int *code, struct penstock_error *err)
{
	struct session *session = &row->sessions[i];
	_cleanup_(load_source_release) struct load_source source = {0};
	const char *task = row->tasks.items[i];
	const struct load_given given = {
		.operand = row->operands.items[i],
		.workflow = *task ? task : cli_value(cli, "workflow"),
		.context = cli_value(cli, "context"),
		.strict = cli_has(cli, "strict"),
		.here = !row->cluster.slurm,
		.on_cluster = row->cluster.slurm,
		.options = {.sets = &row->sets,
			.image = cli_value(cli, "image"),
			.env = cli_values(cli, "env"),
			.arguments = cli_variables(cli),
			.used = row->used},
	};
	int r = load_source_find(&source, &given, err);

	if (r < 0)
		return r;
	row->n_dstack += source.dstack;
	if (cli_variables(cli)->n && !row->n_dstack && i + 1 == row->n) {
		*code = cli_refuse_variables(cli);
		return 0;
	}
	r = load_source_read(&session->workflow, &source, &given, err);
	if (r == 0)
		session->source = load_again_describe(&source, &given);
	session->shown = take_pointer(source.shown);
	if (r < 0 && source.wrong_defaults) {
		*code = cli_fail_as(cli, err, CLI_EXIT_CONFIG);
		return 0;
	}
	return r;
}

/* Returns the overrides as JSON for the record. A value may be a secret, so only the names of the
 * fields and variables are kept. */
static char *describe_overrides(const struct strlist *sets, const struct strlist *env)
{
	json_t *list = json_array();
	json_auto_t *root = json_pack("{s:o}", "overrides", list);

	for (size_t i = 0; i < sets->n + env->n; i++) {
		bool set = i < sets->n;
		const char *item = set ? sets->items[i] : env->items[i - sets->n];

		json_array_append_new(list, json_sprintf("--%s %.*s", set ? "set" : "env",
						    (int)strcspn(item, "="), item));
	}
	return json_dumps(root, JSON_COMPACT);
}

/* Adds the operand, once for each task of a file with several tasks. Returns -1 if out of
 * memory. */
static int add_operand(const struct cli *cli, struct row *row, const char *operand)
{
	_cleanup_(strlist_release) struct strlist tasks = {0};

	if (!cli_has(cli, "workflow"))
		load_tasks(operand, &tasks);
	for (size_t i = 0; i < tasks.n; i++) {
		if (strlist_add(&row->operands, operand) < 0 ||
			strlist_add(&row->tasks, tasks.items[i]) < 0)
			return -1;
	}
	if (tasks.n)
		return 0;
	return strlist_add(&row->operands, operand) < 0 || strlist_add(&row->tasks, "") < 0 ? -1
											    : 0;
}

static int load_row(const struct cli *cli, struct row *row)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	const struct strlist *given = cli_variables(cli);
	int code = 0;
	const struct strlist *sets = cli_values(cli, "set");
	const char *name = cli_value(cli, "name");
	int r = 0;

	for (size_t i = 0; r == 0 && i < sets->n; i++)
		r = strlist_add(&row->sets, sets->items[i]);
	if (r == 0 && name) /* --name is a short form of --set name=… */
		r = strlist_addf(&row->sets, "name=\"%s\"", name);

	for (size_t i = 0; r == 0 && i < cli_n_operands(cli); i++)
		r = add_operand(cli, row, cli_operand(cli, i));
	row->n = row->operands.n;
	row->sessions = calloc(row->n, sizeof(*row->sessions));
	if (row->n > 1)
		row->used = calloc(given->n + 1, sizeof(*row->used));
	if (r < 0 || !row->sessions || (row->n > 1 && !row->used))
		r = error_memory(&err);
	if (r == 0 && cluster_wanted(&row->cluster, cli, &err) < 0)
		return cli_fail_as(cli, &err, CLI_EXIT_CONFIG);
	background_allow_interrupt();
	for (size_t i = 0; r == 0 && code == 0 && i < row->n; i++)
		r = load_given(cli, i, row, &code, &err);
	interrupts_block_signals();
	/* A variable that only one of several workflows has is not an error in the others. */
	for (size_t i = 0; r == 0 && code == 0 && row->used && i < given->n; i++) {
		int len = (int)strcspn(given->items[i], "=");

		if (!row->used[i])
			r = error_set(&err, PENSTOCK_E_INVALID,
				"unknown option --%.*s: no workflow here uses it as a variable, "
				"${{ %.*s }}",
				len, given->items[i], len, given->items[i]);
	}
	if (r < 0)
		return cli_fail_as(cli, &err, CLI_EXIT_WORKFLOW);
	if (code)
		return code;
	row->provenance = describe_overrides(&row->sets, cli_values(cli, "env"));
	return 0;
}

static int run_one(const struct cli *cli, struct row *row, size_t i)
{
	struct session *session = &row->sessions[i];
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct run_options options;
	char id[RECORDS_ID_SIZE];

	if (cli_has(cli, "dry-run"))
		return dry_run(cli, session, row->cluster.slurm);
	if (session_open(session, cli, &err) < 0 || find_artifacts(session, &err) < 0)
		return cli_fail(cli, &err);
	options = session_options(session);
	options.provenance = row->provenance;
	options.fresh = cli_has(cli, "fresh");
	options.keep_context = cli_has(cli, "keep-context");
	options.replace = cli_has(cli, "replace");
	/* Each of several workflows has a run of its own, even without a name. */
	if (row->n == 1 && !cli_has(cli, "workflow")) {
		if (run_find_edited(&options, id, &err) < 0)
			return cli_fail(cli, &err);
		options.id = *id ? id : NULL;
	}
	if (row->cluster.slurm)
		return cluster_run(cli, &options, &row->cluster);
	if (row->background) {
		options.on_ready = background_leave_terminal;
		options.stdout_fd = options.stderr_fd = -1;
	} else if (cli_has(cli, "detach")) {
		return detach(cli, session, &options, &row->background);
	}
	return execute(cli, session, &options);
}

/* Runs the workflows in order; the first failure ends the sequence. */
static int run_each(const struct cli *cli, struct row *row)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	bool elsewhere = row->cluster.slurm || cli_has(cli, "dry-run");
	char id[RECORDS_ID_SIZE];
	int code = 0;

	for (size_t i = 0; code == 0 && i < row->n; i++) {
		struct session *session = &row->sessions[i];

		code = run_one(cli, row, i);
		/* The child runs all workflows; the parent prints the ids of the other runs. */
		if (code == 0 && cli_has(cli, "detach") && !elsewhere && !row->background) {
			for (i = 1; i < row->n; i++) {
				if (run_identity(row->sessions[i].workflow, id, &err) < 0)
					return cli_fail(cli, &err);
				printf("%s\n", id);
			}
			return 0;
		}
		if (code == 0 && row->background)
			background_log_errors(session->home, session->id, session->attempt);
		session_release(session);
		*session = (struct session){0};
	}
	return code;
}

static int run_run(const struct cli *cli)
{
	_cleanup_(row_release) struct row row = {0};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int code;

	interrupts_block_signals();
	if (cli_has(cli, "wait") && cli_has(cli, "detach"))
		return cli_misuse(cli, "--wait and --detach cannot be used together");
	if (cli_n_operands(cli) > 1 && (cli_has(cli, "name") || cli_has(cli, "workflow")))
		return cli_misuse(cli, "--%s needs exactly one workflow",
			cli_has(cli, "name") ? "name" : "workflow");
	code = load_row(cli, &row);
	if (code)
		return code;
	if (row.n > 1 && row.cluster.slurm && cli_has(cli, "detach") && !cli_has(cli, "dry-run"))
		return cli_misuse(cli,
			"--detach allows only one workflow on a cluster: the next workflow is "
			"submitted only after the previous workflow has ended");
	/* Check all workflows before the first one starts. */
	for (size_t i = 0; row.n > 1 && code == 0 && i < row.n; i++) {
		code = check_workflow(cli, &row.sessions[i], row.cluster.slurm);
		if (code == 0 && row.cluster.slurm &&
			slurm_check(row.sessions[i].workflow, &err) < 0)
			code = cli_fail_as(cli, &err, CLI_EXIT_WORKFLOW);
	}
	return code ? code : run_each(cli, &row);
}

#define KEEP_CONTEXT                                                                               \
	{                                                                                          \
		0, "keep-context", NULL,                                                           \
			"Keep the code of the last attempt, even if it has changed since"          \
	}

const struct command command_run = {
	.name = "run",
	.group = "Runs",
	.summary = "run a workflow",
	.operands = "WORKFLOW...",
	.min_operands = 1,
	.max_operands = UINT_MAX,
	.variables = true,
	.description =
		"Runs a workflow: fetches its inputs, runs its steps, and publishes its output to "
		"object storage while they run. WORKFLOW is a file, - for standard input, "
		"s3://BUCKET/KEY, or the name of a workflow in the .dstack/workflows.yaml of this "
		"directory or one above. Several are run one after another, until one fails. "
		"Files of dstack, Determined and SkyPilot are accepted unchanged; --NAME VALUE "
		"replaces a variable of a dstack file.\n"
		"\n"
		"A run is identified by its name, or else by the contents of its file, together "
		"with the place of its output; without a name an edited file continues its run "
		"that has not succeeded. The same command resumes a run that was preempted or "
		"lost (penstock or the machine was killed), or that failed, from its last "
		"complete state, with the code and the workflow file that are there now; a run "
		"that succeeded or was stopped starts from the beginning.\n"
		"\n"
		"Ctrl-C sends SIGTERM to the step, a second Ctrl-C kills the step; the "
		"output is completed either way. Before the first step Ctrl-C ends the run at "
		"once. While the output is being completed a second Ctrl-C leaves the rest for "
		"'penstock flush'.",
	.options = OPTIONS(
		{'d', "detach", NULL, "Run in the background; prints the id of each run"},
		{'n', "dry-run", NULL, "Show what would be run, as JSON, and run nothing"},
		{0, "fresh", NULL, "Start from the beginning, ignoring earlier attempts"},
		{0, "name", "NAME", "Name of the run; another name is another run"},
		{'w', "workflow", "NAME",
			"Workflow to run, if a dstack or SkyPilot file has several"},
		{'c', "context", "DIR", "Directory to copy; the steps start in the copy"},
		KEEP_CONTEXT,
		{0, "image", "IMAGE",
			"Container image for the steps of another runner's file, in place of its own"},
		{0, "replace", NULL, "Continue the run of this name with this file instead"},
		{0, "strict", NULL,
			"Notes on the workflow are errors: nothing in it is guessed or left out"},
		{0, "wait", NULL, "Wait for the end; the default without --detach"},
		{'s', "set", "PATH=VALUE",
			"Replace a field of the workflow, like resources.gpusPerTask=0; null removes it"},
		{'e', "env", "KEY=VALUE", "Add a variable to the environment of the steps"},
		CLUSTER_OPTIONS),
	.examples = EXAMPLES(
		{"penstock run train.yaml",
			"Run a workflow; the same command continues it after a preemption"},
		{"penstock run train.yaml --set resources.gpusPerTask=0 --env EPOCHS=3",
			"With less than the file requests"},
		{"penstock run -d train.yaml; penstock logs -f train", "In the background"},
		{"penstock run s3://bucket/train.json", "A workflow from object storage"},
		{"penstock run prepare train --epochs 3",
			"Two workflows of .dstack/workflows.yaml, one after the other, with a variable"},
		{"penstock run --on slurm --partition gpu --sbatch=--time=8:00:00 train.yaml",
			"As a batch job of Slurm, following its log"},
		{"penstock run const.yaml --context .",
			"An experiment of Determined with its directory"}),
	.exits = run_exits,
	.run = run_run,
};

/* ---- resume and flush ---- */

/* Finds the run that the operand names. With `remote`, the run may have only a state next to its
 * output, and no record here. `steps` is false for a verb that starts no step. */
static int find_run(const struct cli *cli, bool remote, bool steps, struct session *session,
	struct records_run *run, struct penstock_error *err)
{
	const struct load_run_given given = {
		.credentials_from = cli_value(cli, "credentials-from"),
		.sets = cli_values(cli, "set"),
		.env = steps ? cli_values(cli, "env") : NULL,
		.places_only = !steps,
		/* A job ignores changes that were made to the file after the submission. */
		.again = steps && !remote && !cli_has(cli, "in-allocation") ? &session->source
									    : NULL,
	};
	int r = session_open(session, cli, err);

	if (r == 0 && remote)
		r = resume_remote_find(cli, session->home, session->records, run, err);
	else if (r == 0)
		r = records_find(session->records, cli_operand(cli, 0), run, err);
	if (r == 0)
		r = load_run_workflow(&session->workflow, session->home, run, &given, err);
	if (r == 0 && !(session->shown = strdup(run->workflow)))
		r = error_memory(err);
	return r;
}

/* Executes the run in its batch job, with the options that were given at the submission. */
static int execute_in_allocation(const struct cli *cli, struct session *session,
	const struct records_run *run, struct slurm_allocation *allocation)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_LOG_LINE);
	struct run_options options = session_options(session);
	int code;

	if (slurm_allocation_enter(allocation, session->home, run->id, &err) < 0)
		return cli_fail_as(cli, &err, CLI_EXIT_USAGE);
	/* Slurm restarts a job whose end it has missed, so the run may have ended. */
	if (allocation->restarts > 0 && run->last.pid && run_state_is_over(run->last.state)) {
		log_info("run %s has %s already", run->id, run_state_name(run->last.state));
		return run->last.exit_code;
	}
	options.id = run->id;
	options.provenance = run->last.provenance;
	options.slurm = allocation;
	options.stdout_fd = options.stderr_fd = -1; /* users read the run's own log */
	if (!run->last.pid) { /* the first execution of this submission */
		options.fresh = allocation->job.fresh;
		options.resume = allocation->job.resume;
		options.keep_context = allocation->job.keep_context;
	}
	if (records_withdraw(session->records, run->id, allocation->job.attempt, &err) < 0 ||
		slurm_allocation_watch(allocation, &err) < 0)
		return cli_fail(cli, &err);
	code = execute(cli, session, &options);
	/* A preempted attempt has no time to remove its files on the nodes; the next attempt on
	 * these nodes removes them. */
	if (code != CLI_EXIT_PREEMPTED) {
		slurm_allocation_sweep(allocation);
		return code;
	}
	if (slurm_allocation_requeue(allocation, &text, &err) < 0)
		cli_fail(cli, &err);
	else
		log_info("run %s: %s", run->id, buf_str(&text));
	return code;
}

static int run_resume(const struct cli *cli)
{
	_cleanup_(session_release) struct session session = {0};
	_cleanup_(records_run_release) struct records_run run = {0};
	_cleanup_(cluster_release) struct cluster cluster = {0};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct run_options options;
	bool here, remote = location_is_object(cli_operand(cli, 0));

	/* A store's client handles signals, and its threads end before the run's threads start. */
	if (!remote)
		interrupts_block_signals();
	if (find_run(cli, remote, true, &session, &run, &err) < 0 ||
		find_artifacts(&session, &err) < 0)
		return cli_fail_as(cli, &err, CLI_EXIT_WORKFLOW);
	if (remote)
		interrupts_block_signals();
	if (cli_has(cli, "in-allocation")) {
		struct slurm_allocation allocation;
		int code = execute_in_allocation(cli, &session, &run, &allocation);

		slurm_allocation_leave(&allocation);
		return code;
	}
	if (cluster_wanted(&cluster, cli, &err) < 0)
		return cli_fail_as(cli, &err, CLI_EXIT_CONFIG);
	if (cli_has(cli, "due") &&
		((run.last.state != RUN_PREEMPTED && run.last.state != RUN_LOST) ||
			run_is_left_alone(session.home, run.id))) {
		log_info("run %s is not due: it is %s%s", run.id, run_state_name(run.last.state),
			run_is_left_alone(session.home, run.id) ? ", and was stopped" : "");
		return 0;
	}
	options = session_options(&session);
	if (run.last.state == RUN_SUCCEEDED &&
		!run_is_newer_elsewhere(&options, run.id, run.last.attempt)) {
		error_set(&err, PENSTOCK_E_INVALID,
			"cannot resume run '%s': it has succeeded; 'penstock run %s', with its "
			"options, starts it from the beginning",
			run.id, run.workflow);
		return cli_fail_as(cli, &err, CLI_EXIT_USAGE);
	}
	options.id = run.id;
	options.resume = true;
	options.due = cli_has(cli, "due");
	options.keep_context = cli_has(cli, "keep-context");
	options.provenance = run.last.provenance;
	if (cluster.slurm || (!cluster.given && cluster_has(session.home, run.id)))
		return cluster_run(cli, &options, &cluster);
	if (cli_has(cli, "detach"))
		return detach(cli, &session, &options, &here);
	return execute(cli, &session, &options);
}

const struct command command_resume = {
	.name = "resume",
	.summary = "resume a run that failed, was stopped, preempted or lost",
	.operands = "RUN | s3://BUCKET/PATH/RUN",
	.min_operands = 1,
	.max_operands = 1,
	.description =
		"Continues a run where it ended: finished steps are skipped, the output is "
		"restored to its last complete state, and the step that did not finish starts "
		"again. Changes of the code and of the workflow file take effect, and are listed; "
		"a finished step that has changed runs again. RUN is an id, the beginning of one, "
		"or a name.\n\n"
		"With the place of its output in front, the run may be from any machine: its "
		"workflow is taken from its state there, and credentials from where the workflow "
		"refers to. The endpoint and credentials given here are used to find the run.",
	.options = OPTIONS({0, "credentials-from", "FILE",
				   "Workflow file with the credentials of the original"},
		KEEP_CONTEXT, {'s', "set", "PATH=VALUE", "Replace a field of the workflow"},
		{'e', "env", "KEY=VALUE", "Add a variable to the environment of the steps"},
		{'d', "detach", NULL, "Run in the background; prints the run's id"},
		CLUSTER_OPTIONS,
		{0, "in-allocation", NULL, "For the batch job of --on slurm; not for users"},
		{0, "due", NULL, "Resume only a preempted or lost run; used by 'penstock watch'"},
		REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock resume train", "Continue the run named train"},
		{"penstock resume 3f2a91", "Resume the run whose id begins with 3f2a91"},
		{"penstock resume s3://bucket/results/train",
			"Continue a run without its records, from the state next to its output"}),
	.exits = run_exits,
	.run = run_resume,
};

static int run_flush_verb(const struct cli *cli)
{
	_cleanup_(session_release) struct session session = {0};
	_cleanup_(records_run_release) struct records_run run = {0};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct run_result result = {0};
	struct run_options options;

	interrupts_block_signals();
	if (find_run(cli, false, false, &session, &run, &err) < 0)
		return cli_fail_as(cli, &err, CLI_EXIT_WORKFLOW);
	session.view.progress = progress_new(cli_quiet(cli));
	options = session_options(&session);
	if (run_flush(&options, run.id, &result, &err) < 0) {
		bool live = err.code == PENSTOCK_E_EXISTS;

		cli_fail(cli, &err);
		return live ? CLI_EXIT_UNAVAILABLE : CLI_EXIT_OUTPUT;
	}
	if (result.output)
		log_info("the output of run %s is not published, so there is nothing to upload; "
			 "it is in %s",
			run.id, result.output);
	else
		log_info("the output of run %s is complete; the run %s%s", run.id,
			result.state == RUN_LOST || result.state == RUN_PREEMPTED ? "was " : "",
			run_state_name(result.state));
	run_result_release(&result);
	return 0;
}

const struct command command_flush = {
	.name = "flush",
	.summary = "upload the output that a run left behind",
	.operands = "RUN",
	.min_operands = 1,
	.max_operands = 1,
	.description =
		"Completes the output of a run whose last upload failed (exit code 73), or "
		"whose penstock was killed, without running anything. The end state of the run "
		"does not change.",
	.options = OPTIONS({0, "credentials-from", "FILE",
				   "Workflow file with the credentials of the original"},
		{'s', "set", "PATH=VALUE",
			"Replace a field of the workflow, such as output.s3.endpointUrl"}),
	.examples = EXAMPLES(
		{"penstock flush train", "Upload the output that the run could not upload at its "
					 "end"}),
	.exits = EXITS({"66", "There is no such run"}, {"69", "The run is live"},
		{"73", "The output is still incomplete; the message has the reason"}),
	.run = run_flush_verb,
};
