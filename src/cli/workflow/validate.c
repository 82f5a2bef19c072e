/* `penstock validate`: reports all errors of a workflow file, without checking the machine. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/workflow/load.h"
#include "cli/print/util.h"
#include "run/run.h"
#include "workflow/workflow.h"

/* Returns the parsed model as JSON; null if there is none. */
static json_t *model_json(const struct workflow *wf)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_JSON_DOCUMENT);

	if (!wf || workflow_print_json(wf, &text) < 0)
		return json_null();
	return json_loads(buf_str(&text), 0, NULL);
}

/* The workflows of the file: one, or all workflows of a file with several. A workflow with errors
 * is NULL in the list. */
struct validated {
	struct workflow **list;
	size_t n;
	struct diagnostics found;
};

static void validated_release(struct validated *v)
{
	for (size_t i = 0; i < v->n; i++)
		workflow_free(v->list[i]);
	free(v->list);
	diagnostics_release(&v->found);
}

static int print_json(const char *shown, const struct validated *v)
{
	const struct workflow *wf = v->n == 1 ? v->list[0] : NULL;
	json_t *list = json_array(), *object;
	const char *dialect = NULL;

	for (size_t i = 0; i < v->found.n; i++) {
		const struct diagnostic *d = &v->found.items[i];

		json_array_append_new(
			list, json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "severity",
				      d->severity == DIAGNOSTIC_ERROR ? "error" : "note", "file",
				      json_text(d->file), "line",
				      d->line ? json_integer(d->line) : json_null(), "column",
				      d->line ? json_integer(d->column) : json_null(), "option",
				      json_text(d->option), "message", json_text(d->message)));
	}
	for (size_t i = 0; i < v->n; i++)
		dialect = v->list[i] ? v->list[i]->dialect : dialect;
	object = json_pack("{s:o, s:b, s:I, s:o, s:o, s:o, s:o}", "file", json_text(shown), "valid",
		!v->found.errors, "mistakes", (json_int_t)v->found.errors, "diagnostics", list,
		"dialect", json_text(dialect), "digest", json_text(wf ? wf->digest : NULL),
		"workflow", model_json(wf));
	if (v->n == 1)
		return show_json(object);
	list = json_array();
	for (size_t i = 0; i < v->n; i++)
		json_array_append_new(list, model_json(v->list[i]));
	json_object_set_new(object, "workflows", list);
	return show_json(object);
}

static int print_container(void *cookie, const struct workflow_step *step)
{
	const struct workflow_container *container = &step->run.container;
	const char *registry;

	(void)cookie;
	if (step->kind != WORKFLOW_STEP_RUN || !container->given)
		return 0;
	registry = workflow_shown(&container->registry);
	printf("  %s: in a container of %s%s%s\n", step->label, registry ? registry : "",
		registry ? "/" : "", workflow_shown(&container->image));
	return 0;
}

static void print_plain(const struct cli *cli, const char *shown, const struct buf *text,
	const struct strlist *names, const struct validated *v)
{
	static const char *const owners[][2] = {
		{"dstack", "dstack"}, {"determined", "Determined"}, {"skypilot", "SkyPilot"}};

	load_print_found(&v->found, shown, text);
	if (v->found.errors > LIMIT_WORKFLOW_ERRORS)
		fprintf(stderr, "%s: %zu more errors are not shown\n", shown,
			v->found.errors - LIMIT_WORKFLOW_ERRORS);
	for (size_t i = 0; i < v->n && !cli_quiet(cli); i++) {
		const struct workflow *wf = v->list[i];
		const char *owner = NULL;

		if (!wf)
			continue;
		for (size_t k = 0; k < ARRAY_SIZE(owners); k++) {
			if (strcmp(wf->dialect, owners[k][0]) == 0)
				owner = owners[k][1];
		}
		printf("%s: ", shown);
		if (names->n) { /* one of several */
			show_name(stdout, names->items[i]);
			printf(": ");
		}
		printf("valid, %zu step%s%s%s\n", wf->steps.n, wf->steps.n == 1 ? "" : "s",
			owner ? ", a file of " : "", owner ? owner : "");
		workflow_walk(&wf->steps, print_container, NULL);
	}
	if (!cli_quiet(cli))
		load_print_total(&v->found, shown);
}

/* Adds an error for each variable that no workflow of the file has. A variable that only one of
 * several workflows has is not an error in the others. */
static void check_variables(
	const struct strlist *given, const bool *used, const char *shown, struct diagnostics *found)
{
	for (size_t i = 0; i < given->n; i++) {
		int len = (int)strcspn(given->items[i], "=");
		_cleanup_free_ char *option = str_printf("--%.*s", len, given->items[i]);

		if (used[i])
			continue;
		if (!option) {
			found->no_memory = true;
			return;
		}
		diagnostics_add(found, DIAGNOSTIC_ERROR, shown,
			&(struct workflow_place){.option = option},
			"unknown option: no workflow here uses it as a variable, ${{ %.*s }}", len,
			given->items[i]);
	}
}

/* Adds the error of a workflow that cannot run on any machine. If the message is "FILE:LINE:COLUMN:
 * MESSAGE", the error gets that place. */
static void add_refusal(struct diagnostics *found, const struct workflow *wf, const char *message)
{
	size_t len = strlen(wf->file);
	struct workflow_place at = {0};
	int n = 0;

	if (strncmp(message, wf->file, len) == 0 &&
		sscanf(message + len, ":%d:%d: %n", &at.line, &at.column, &n) == 2 && n)
		message += len + (size_t)n;
	diagnostics_add(found, DIAGNOSTIC_ERROR, wf->file, &at, "%s", message);
}

/* `names` are the names of the workflows in the file; empty if there is only one. */
static int read_all(struct validated *v, const char *shown, struct load_source *files,
	const struct load_given *given, const struct strlist *names, struct penstock_error *err)
{
	struct workflow_options options = load_source_options(files, given);
	_cleanup_free_ bool *used = calloc(given->options.arguments->n + 1, sizeof(*used));
	int r = 0;

	v->list = calloc(names->n + 1, sizeof(struct workflow *));
	if (!v->list || !used)
		return error_memory(err);
	v->n = names->n ? names->n : 1;
	for (size_t i = 0; i < v->n; i++) {
		struct diagnostics found = {0};

		penstock_error_release(err);
		if (names->n) {
			options.pick = names->items[i];
			options.used = used;
		}
		r = workflow_read(&v->list[i], shown, buf_str(&files->bytes), files->bytes.len,
			&options, &found, err);
		/* Fail if the error is not an error of the file, and is therefore not in the
		 * diagnostics. */
		if (r < 0 && !found.errors) {
			diagnostics_release(&found);
			return r;
		}
		if (r == 0)
			workflow_note_host(v->list[i], true, &found);
		if (r == 0 && run_check_kinds(v->list[i], err) < 0) {
			add_refusal(&found, v->list[i], err->message);
			workflow_free(v->list[i]);
			v->list[i] = NULL;
		}
		diagnostics_take(&v->found, &found);
	}
	penstock_error_release(err);
	if (given->strict)
		diagnostics_be_strict(&v->found);
	if (names->n)
		check_variables(given->options.arguments, used, shown, &v->found);
	return v->found.no_memory ? error_memory(err) : 0;
}

static int run_validate(const struct cli *cli)
{
	_cleanup_(load_source_release) struct load_source files = {0};
	_cleanup_(validated_release) struct validated v = {0};
	_cleanup_(strlist_release) struct strlist names = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *source = cli_operand(cli, 0);
	const char *shown = strcmp(source, "-") == 0 ? "<stdin>" : source;
	const struct load_given given = {
		.operand = source,
		.workflow = cli_value(cli, "workflow"),
		.context = cli_value(cli, "context"),
		.strict = cli_has(cli, "strict"),
		.options = {.sets = cli_values(cli, "set"),
			.image = cli_value(cli, "image"),
			.env = cli_values(cli, "env"),
			.arguments = cli_variables(cli),
			.keep_references = true},
	};
	int code = 0, r = load_source_find(&files, &given, &err);

	if (r < 0)
		return cli_fail(cli, &err);
	if (cli_variables(cli)->n && !files.dstack)
		return cli_refuse_variables(cli);
	if (files.pick && files.dstack)
		shown = files.shown;
	if (!files.pick)
		r = workflow_names(buf_str(&files.bytes), files.bytes.len, &names, &err);
	if (r == 0)
		r = read_all(&v, shown, &files, &given, &names, &err);
	if (r < 0)
		return cli_fail(cli, &err);
	for (size_t i = 0; cli_has(cli, "json") && i < v.n; i++) {
		if (v.list[i])
			load_warn_of_keys(v.list[i], &v.found);
	}
	diagnostics_sort(&v.found);
	if (cli_has(cli, "json"))
		code = print_json(shown, &v);
	else
		print_plain(cli, shown, &files.bytes, &names, &v);
	if (code)
		return code;
	for (size_t i = 0; i < v.n; i++) {
		if (v.list[i])
			load_warn_of_keys(v.list[i], NULL);
	}
	if (files.defaults_name && diagnostics_all_of(&v.found, files.defaults_name))
		return CLI_EXIT_CONFIG;
	return v.found.errors ? CLI_EXIT_WORKFLOW : 0;
}

const struct command command_validate = {
	.name = "validate",
	.summary = "report the errors of a workflow file",
	.operands = "WORKFLOW",
	.min_operands = 1,
	.max_operands = 1,
	.variables = true,
	.description =
		"Reads a workflow (a path, an s3:// URL, or - for standard input) and reports "
		"all its errors at once, each with its place and the nearest valid key. Only "
		"the file is checked, not the machine, the inputs or the stores, and "
		"references to secrets and variables are not resolved. Notes say how unusual "
		"forms were read, and are not errors. For a valid workflow the verb prints the "
		"format, if it is that of another runner, and a line for each step that runs in "
		"a container. penstock-workflow(5) describes the format, and "
		"penstock-dialects(5) those of other runners.",
	.options = OPTIONS(
		{'s', "set", "PATH=VALUE", "Override a field of the workflow; may be repeated"},
		{'e', "env", "KEY=VALUE", "Set a variable of the workflow; may be repeated"},
		{'w', "workflow", "NAME",
			"Workflow to read, if a dstack or SkyPilot file has several; default "
			"for dstack: all"},
		{'c', "context", "DIR", "Directory whose copy the steps would start in"},
		{0, "image", "IMAGE",
			"Container image for the steps of another runner's file, in place of its own"},
		{0, "strict", NULL, "Notes are errors, too: nothing is guessed or left out"},
		{0, "json", NULL, "Print a JSON object with all errors and the parsed workflow"}),
	.examples = EXAMPLES(
		{"penstock validate workflow.json", "Report every error with its line and column"},
		{"penstock validate - --json < workflow.yaml",
			"The parsed workflow with all defaults, as JSON"}),
	.exits = EXITS({"65", "The workflow has errors"},
		{"66", "There is no such file, or it is a directory"},
		{"78", "The configuration's default output has errors, and nothing else has"}),
	.run = run_validate,
};
