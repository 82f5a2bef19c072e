/*
 * The native dialect: DeepSquare's grammar with its older keys, and our own keys beside them.
 * transports.c reads its inputs and outputs.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "workflow/reader.h"
#include "workflow/secrets.h"
#include "base/banned.h"

/* Beyond any machine, and small enough that their product fits 64 bits. */
#define MAX_TASKS	1000000
#define MAX_CPUS	65536
#define MAX_MEM_PER_CPU (16 * 1024 * 1024) /* MB: 16 TB */
#define MAX_GPUS	1000000

static bool is_variable_name(const char *s)
{
	if (!isalpha((unsigned char)*s) && *s != '_')
		return false;
	for (; *s; s++) {
		if (!isalnum((unsigned char)*s) && *s != '_')
			return false;
	}
	return true;
}

/* Checks and keeps one variable; `value` is what the reader took. */
static void keep_variable(struct reader *rd, struct workflow_env_list *out, const char *key,
	const struct workflow_place *key_at, const struct workflow_text *value)
{
	char quoted[QUOTE_SIZE];
	struct workflow_env *env = &out->items[out->n];

	if (!is_variable_name(key)) {
		reader_error(rd, key_at,
			"%s is no name of a variable: letters, digits and _ without a digit in "
			"front",
			quote(key, quoted));
		return;
	}
	if (strcmp(key, "PATH") == 0 || strcmp(key, "LD_LIBRARY_PATH") == 0) {
		reader_error(rd, key_at,
			"`%s` cannot be replaced for a whole step; set it within the command, such "
			"as %s=/my/dir:$%s program",
			key, key, key);
		return;
	}
	*env = (struct workflow_env){.key = key, .value = *value, .at = *key_at};
	if (!value->value)
		return;
	out->n++;
	if (secret_variable(key, value->value)) {
		log_redact(value->value);
		if (!value->shown)
			env->value.shown = "***";
	} else if (!value->shown && *value->value == '$' && is_variable_name(value->value + 1)) {
		reader_note(rd, &value->at,
			"the value of `%s` is %s as it stands; variables in it are not replaced",
			key, quote(value->value, quoted));
	}
}

/* A value of a variable, for which null is the empty text. */
static void take_value(
	struct reader *rd, struct node *node, const char *key, struct workflow_text *out)
{
	char quoted[QUOTE_SIZE];

	*out = (struct workflow_text){.at = node->at};
	/* Before any note could quote it. */
	if (node->kind == NODE_SCALAR && secret_variable(key, node->text) &&
		!strstr(node->text, "${{"))
		log_redact(node->text);
	if (node_is_null(node)) {
		reader_note(rd, &node->at, "the value of `%s` is read as the empty text", key);
		node->text = out->value = "";
		node->quoted = true;
		return;
	}
	if (node->literal) {
		reader_note(rd, &node->at, "the value of `%s` is the text %s", key,
			quote(node->text, quoted));
		node->literal = false;
	}
	reader_text_of(rd, node, reader_field(rd, "value"), out);
}

static void read_variable(struct reader *rd, const struct node *node, struct workflow_env_list *out)
{
	struct workflow_text key = {0}, value = {0};
	const struct node_entry *value_entry;

	if (!reader_check_map(rd, node, &schema_env))
		return;
	value_entry = node_find(node, "value");
	if (!node_get(node, "key"))
		reader_missing(rd, node, &schema_env, "key", "");
	if (!value_entry)
		reader_missing(rd, node, &schema_env, "value", "");
	if (!reader_text(rd, node, "key", &key) || !value_entry)
		return;
	take_value(rd, value_entry->value, key.value, &value);
	keep_variable(rd, out, key.value, &key.at, &value);
}

void read_env(struct reader *rd, const struct node *map, struct workflow_env_list *out)
{
	struct node *env = node_get(map, "env");
	size_t saved;

	if (!env)
		return;
	if (env->kind != NODE_LIST) {
		reader_error(rd, &env->at, "`%s` must be a list of `key` and `value`, not %s",
			reader_field(rd, "env"), node_kind_name(env));
		return;
	}
	out->items = workflow_arena_array(rd->arena, env->n + 1, sizeof(*out->items));
	if (!out->items)
		return;
	saved = reader_enter(rd, "env", 0);
	for (size_t i = 0; i < env->n; i++) {
		size_t at_list = reader_enter(rd, NULL, i);

		read_variable(rd, env->entries[i].value, out);
		reader_leave(rd, at_list);
	}
	reader_leave(rd, saved);
}

void read_resources(struct reader *rd, const struct node *job)
{
	struct workflow_resources *res = &rd->workflow->resources;
	struct node *map = reader_map(rd, job, "resources");
	size_t saved;

	res->tasks.value = res->cpus_per_task.value = 1;
	res->at = job->at;
	res->tasks.at = res->cpus_per_task.at = res->mem_per_cpu.at = job->at;
	res->gpus.at = res->gpus_per_task.at = job->at;
	if (!map)
		return;
	res->at = map->at;
	saved = reader_enter(rd, "resources", 0);
	reader_check_map(rd, map, &schema_resources);
	reader_number(rd, map, "tasks", 1, MAX_TASKS, &res->tasks);
	reader_number(rd, map, "cpusPerTask", 1, MAX_CPUS, &res->cpus_per_task);
	reader_number(rd, map, "memPerCpu", 1, MAX_MEM_PER_CPU, &res->mem_per_cpu);
	reader_number(rd, map, "gpus", 0, MAX_GPUS, &res->gpus);
	reader_number(rd, map, "gpusPerTask", 0, MAX_GPUS, &res->gpus_per_task);
	if (res->gpus.given && res->gpus_per_task.given) {
		reader_error(rd, &res->gpus_per_task.at,
			"`resources.gpusPerTask` is the older way to say `gpus` (GPUs of the whole "
			"job); give one of them");
	} else if (res->gpus_per_task.given) {
		res->gpus.value = res->gpus_per_task.value * res->tasks.value;
		res->gpus.at = res->gpus_per_task.at;
	}
	reader_leave(rd, saved);
}

/* Whether a step's `need` is within the job's `have`; else says which keys to change. */
static void check_share(struct reader *rd, const struct workflow_place *at, const char *what,
	int64_t need, int64_t have)
{
	if (need > have)
		reader_error(rd, at,
			"`%s` needs %lld %s, the whole job has %lld; raise `resources`",
			buf_str(&rd->path), (long long)need, what, (long long)have);
}

static void check_shares(struct reader *rd, const struct workflow_step_resources *res)
{
	const struct workflow_resources *job = &rd->workflow->resources;
	int64_t cpus = res->tasks.value * res->cpus_per_task.value;
	int64_t job_cpus = job->tasks.value * job->cpus_per_task.value;

	check_share(rd, &res->at, "CPUs (tasks times cpusPerTask)", cpus, job_cpus);
	if (job->mem_per_cpu.value && cpus <= job_cpus)
		check_share(rd, &res->at, "MB of memory (memPerCpu times CPUs)",
			cpus * res->mem_per_cpu.value, job_cpus * job->mem_per_cpu.value);
	check_share(rd, &res->at, "GPUs (tasks times gpusPerTask)",
		res->tasks.value * res->gpus_per_task.value, job->gpus.value);
}

static void read_step_resources(
	struct reader *rd, const struct node *job, const struct node *run, struct workflow_run *out)
{
	const struct workflow_resources *whole = &rd->workflow->resources;
	struct workflow_step_resources *res = &out->resources;
	struct node *map = reader_map(rd, run, "resources");
	size_t saved;

	res->at = map ? map->at : out->at;
	res->tasks = (struct workflow_number){.value = 1, .at = res->at};
	res->cpus_per_task = (struct workflow_number){whole->cpus_per_task.value, false, res->at};
	res->mem_per_cpu = (struct workflow_number){whole->mem_per_cpu.value, false, res->at};
	res->gpus_per_task = (struct workflow_number){0, false, res->at};
	if (whole->gpus_per_task.given)
		res->gpus_per_task.value = whole->gpus_per_task.value;
	if (!map)
		return;
	saved = reader_enter(rd, "resources", 0);
	reader_check_map(rd, map, &schema_step_resources);
	reader_number(rd, map, "tasks", 1, MAX_TASKS, &res->tasks);
	reader_number(rd, map, "cpusPerTask", 1, MAX_CPUS, &res->cpus_per_task);
	reader_number(rd, map, "memPerCpu", 1, MAX_MEM_PER_CPU, &res->mem_per_cpu);
	reader_number(rd, map, "gpusPerTask", 0, MAX_GPUS, &res->gpus_per_task);
	if (node_get(job, "resources"))
		check_shares(rd, res);
	reader_leave(rd, saved);
}

/* A job without `resources` gets what its largest step needs. */
static void derive_resources(struct workflow *wf)
{
	struct workflow_resources *job = &wf->resources;

	for (size_t i = 0; i < wf->n_steps; i++) {
		const struct workflow_step_resources *res = &wf->steps[i].run.resources;
		int64_t gpus = res->tasks.value * res->gpus_per_task.value;

		if (!wf->steps[i].has_run)
			continue;
		if (res->tasks.value > job->tasks.value)
			job->tasks.value = res->tasks.value;
		if (res->cpus_per_task.value > job->cpus_per_task.value)
			job->cpus_per_task.value = res->cpus_per_task.value;
		if (res->mem_per_cpu.value > job->mem_per_cpu.value)
			job->mem_per_cpu.value = res->mem_per_cpu.value;
		if (gpus > job->gpus.value)
			job->gpus.value = gpus;
	}
}

static void read_shell(struct reader *rd, const struct node *map, struct workflow_run *run)
{
	static const char *const shells[] = {"/bin/sh", "/bin/bash", "/bin/ash"};
	struct workflow_text given = {0};
	char quoted[QUOTE_SIZE];

	run->shell = (struct workflow_text){.value = shells[0], .at = map->at};
	if (!reader_text(rd, map, "shell", &given))
		return;
	run->shell.at = given.at;
	for (size_t i = 0; i < ARRAY_SIZE(shells); i++) {
		bool short_form = strcmp(given.value, shells[i] + strlen("/bin/")) == 0;

		if (!short_form && strcmp(given.value, shells[i]) != 0)
			continue;
		if (short_form)
			reader_note(
				rd, &given.at, "`shell: %s` is read as %s", given.value, shells[i]);
		run->shell.value = shells[i];
		return;
	}
	if (strcmp(given.value, "ENTRYPOINT") == 0)
		reader_error(rd, &given.at,
			"`shell: ENTRYPOINT` is not supported by this version: it needs a "
			"container; name a shell, such as /bin/sh");
	else
		reader_error(rd, &given.at, "`%s` is /bin/sh, /bin/bash or /bin/ash, not %s",
			reader_field(rd, "shell"), quote(given.value, quoted));
}

static void read_command(struct reader *rd, const struct node *map, struct workflow_run *run)
{
	const struct node *node = node_get(map, "command");

	run->command.at = map->at;
	if (!node) {
		reader_missing(rd, map, &schema_run, "command", "it is what the step runs");
		return;
	}
	if (node->kind == NODE_SCALAR && strstr(node->text, "${{") &&
		strstr(node->text, "secrets.")) {
		reader_error(rd, &node->at,
			"`%s` holds a secret, which every user of the machine could see in the "
			"list "
			"of processes; pass it in `env`",
			reader_field(rd, "command"));
		return;
	}
	if (reader_text(rd, map, "command", &run->command) &&
		run->command.value[strspn(run->command.value, " \t\r\n")] == '\0')
		reader_error(rd, &run->command.at,
			"`%s` is empty, which only a container has a meaning for",
			reader_field(rd, "command"));
}

static void read_run(struct reader *rd, const struct node *job, const struct node *map,
	struct workflow_step *step)
{
	struct workflow_run *run = &step->run;
	size_t saved = reader_enter(rd, "run", 0);
	char quoted[QUOTE_SIZE];

	step->has_run = true;
	run->at = map->at;
	if (reader_check_map(rd, map, &schema_run)) {
		read_command(rd, map, run);
		read_shell(rd, map, run);
		read_env(rd, map, &run->env);
		read_step_resources(rd, job, map, run);
		if (reader_text(rd, map, "workDir", &run->work_dir) &&
			!reader_is_open(rd, &run->work_dir) && *run->work_dir.value != '/')
			reader_error(rd, &run->work_dir.at,
				"`%s` must be an absolute path, not %s; without it a step starts "
				"in "
				"$STORAGE_PATH",
				reader_field(rd, "workDir"),
				quote(workflow_shown(&run->work_dir), quoted));
	}
	reader_leave(rd, saved);
}

static void read_step(struct reader *rd, const struct node *job, const struct node *node,
	struct workflow_step *step)
{
	const struct node *run;

	step->at = node->at;
	if (!reader_check_map(rd, node, &schema_step))
		return;
	reader_text(rd, node, "name", &step->name);
	run = node_get(node, "run");
	if (run)
		read_run(rd, job, run, step);
	else
		reader_note(
			rd, &node->at, "`%s` has no `run`: it does nothing", buf_str(&rd->path));
}

void read_steps(struct reader *rd, const struct node *job)
{
	struct workflow *wf = rd->workflow;
	struct node *steps = reader_list(rd, job, "steps");
	size_t saved;

	if (!node_get(job, "steps")) {
		reader_missing(rd, job, &schema_job, "steps", "the list of what is run");
		return;
	}
	if (!steps)
		return;
	if (!steps->n) {
		reader_error(rd, &steps->at, "`steps` is empty: there is nothing to run");
		return;
	}
	wf->steps = workflow_arena_array(rd->arena, steps->n, sizeof(*wf->steps));
	if (!wf->steps)
		return;
	wf->n_steps = steps->n;
	saved = reader_enter(rd, "steps", 0);
	for (size_t i = 0; i < steps->n; i++) {
		size_t at_list = reader_enter(rd, NULL, i);

		read_step(rd, job, steps->entries[i].value, &wf->steps[i]);
		reader_leave(rd, at_list);
	}
	reader_leave(rd, saved);
	if (!node_get(job, "resources"))
		derive_resources(wf);
}

/* It becomes part of paths and of object keys. */
static void read_name(struct reader *rd, const struct node *job)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	struct workflow_text *name = &rd->workflow->name;
	char quoted[QUOTE_SIZE];

	if (!reader_text(rd, job, "name", name) || reader_is_open(rd, name))
		return;
	if (!isalnum((unsigned char)*name->value) || name->value[strspn(name->value, allowed)] ||
		strlen(name->value) > LIMIT_WORKFLOW_NAME)
		reader_error(rd, &name->at,
			"`name` is 1 to %d letters, digits, `.`, `_` and `-`, beginning with a "
			"letter or digit, not %s",
			LIMIT_WORKFLOW_NAME, quote(workflow_shown(name), quoted));
}

static void read_resume(struct reader *rd, const struct node *job)
{
	struct workflow_text given = {0};
	char quoted[QUOTE_SIZE];

	rd->workflow->resume = WORKFLOW_RESUME_AUTO;
	rd->workflow->resume_at = job->at;
	if (!reader_text(rd, job, "resume", &given))
		return;
	rd->workflow->resume_at = given.at;
	if (strcmp(given.value, "never") == 0)
		rd->workflow->resume = WORKFLOW_RESUME_NEVER;
	else if (strcmp(given.value, "auto") != 0)
		reader_error(rd, &given.at, "`resume` is auto or never, not %s",
			quote(workflow_shown(&given), quoted));
}

static void read_input_mode(struct reader *rd, const struct node *job)
{
	struct workflow_number *mode = &rd->workflow->input_mode;
	const struct node *node = node_get(job, "inputMode");
	unsigned octal;
	int used = 0;

	/* 755 is what people mean by 0755, and is out of range as the decimal number it is. */
	if (node && node->kind == NODE_SCALAR && strlen(node->text) <= 4 &&
		sscanf(node->text, "%o%n", &octal, &used) == 1 && !node->text[used] &&
		octal <= 0777) {
		uint64_t decimal;

		if (str_to_u64(node->text, 512, 9999, &decimal)) {
			mode->at = node->at;
			reader_error(rd, &node->at,
				"`inputMode` is the decimal value of the mode, at most 511: for "
				"octal %03o write %u",
				octal, octal);
			return;
		}
	}
	if (reader_number(rd, job, "inputMode", 0, 0777, mode) && !rd->workflow->n_inputs)
		reader_note(rd, &mode->at, "`inputMode` has no effect without an input");
}

static void read_continuous(struct reader *rd, const struct node *job)
{
	struct workflow_flag *flag = &rd->workflow->continuous_output_sync;

	reader_flag(rd, job, "continuousOutputSync", flag);
	if (!flag->value || rd->workflow->output.kind == WORKFLOW_S3)
		return;
	if (rd->workflow->output.kind == WORKFLOW_HTTP)
		reader_note(rd, &flag->at,
			"`continuousOutputSync` needs an S3 output: with HTTP the output is "
			"uploaded once, at the end");
	else if (!node_get(job, "output"))
		reader_note(rd, &flag->at, "`continuousOutputSync` has no effect without `output`");
	flag->value = false;
}

void read_native(struct reader *rd, const struct node *job)
{
	reader_check_map(rd, job, &schema_job);
	read_name(rd, job);
	read_resources(rd, job);
	read_env(rd, job, &rd->workflow->env);
	reader_flag(rd, job, "enableLogging", &rd->workflow->enable_logging);
	read_inputs(rd, job);
	read_input_mode(rd, job);
	read_output(rd, job);
	read_continuous(rd, job);
	read_steps(rd, job);
	read_resume(rd, job);
}
