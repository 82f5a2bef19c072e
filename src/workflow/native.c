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
#include "workflow/native.h"
#include "workflow/secrets.h"
#include "base/banned.h"

bool is_variable_name(const char *s)
{
	if (!isalpha((unsigned char)*s) && *s != '_')
		return false;
	for (; *s; s++) {
		if (!isalnum((unsigned char)*s) && *s != '_')
			return false;
	}
	return true;
}

bool check_variable_name(struct reader *rd, const char *key, const struct workflow_place *at)
{
	char quoted[QUOTE_SIZE];

	if (!is_variable_name(key)) {
		reader_error(rd, at,
			"%s is no name of a variable: letters, digits and _ without a digit in "
			"front",
			quote(key, quoted));
		return false;
	}
	if (strcmp(key, "PATH") == 0 || strcmp(key, "LD_LIBRARY_PATH") == 0) {
		reader_error(rd, at,
			"`%s` cannot be replaced for a whole step; set it within the command, such "
			"as %s=/my/dir:$%s program",
			key, key, key);
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

	if (!check_variable_name(rd, key, key_at))
		return;
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

void read_variables(
	struct reader *rd, const struct node *map, const char *field, struct workflow_env_list *out)
{
	struct node *env = node_get(map, field);
	size_t saved;

	if (!env)
		return;
	if (env->kind != NODE_LIST) {
		reader_error(rd, &env->at, "`%s` must be a list of `key` and `value`, not %s",
			reader_field(rd, field), node_kind_name(env));
		return;
	}
	out->items = workflow_arena_array(rd->arena, env->n + 1, sizeof(*out->items));
	if (!out->items)
		return;
	saved = reader_enter(rd, field, 0);
	for (size_t i = 0; i < env->n; i++) {
		size_t at_list = reader_enter(rd, NULL, i);

		read_variable(rd, env->entries[i].value, out);
		reader_leave(rd, at_list);
	}
	reader_leave(rd, saved);
}

void read_env(struct reader *rd, const struct node *map, struct workflow_env_list *out)
{
	read_variables(rd, map, "env", out);
}

/* NAME is short for a variable NAME whose value is ${{ secrets.NAME }}. */
static void read_secret(struct reader *rd, struct node *item, struct workflow_env_list *out)
{
	struct workflow_text name = {0}, value = {0};
	struct node *node;

	if (!reader_text_of(rd, item, buf_str(&rd->path), &name) ||
		!check_variable_name(rd, item->text, &item->at))
		return;
	node = node_new(rd->arena, NODE_SCALAR, item->at);
	if (!node)
		return;
	node->text = workflow_arena_printf(rd->arena, "${{ secrets.%s }}", item->text);
	if (node->text && reader_text_of(rd, node, buf_str(&rd->path), &value))
		keep_variable(rd, out, item->text, &item->at, &value);
}

/* They come before `env`, whose variables of the same names so count. */
static void read_secrets(struct reader *rd, const struct node *job)
{
	struct node *list = reader_list(rd, job, "secrets");
	struct workflow_env_list *env = &rd->workflow->env;
	struct workflow_env_list all = {0};
	size_t saved;

	if (!list || !list->n)
		return;
	all.items = workflow_arena_array(rd->arena, list->n + env->n + 1, sizeof(*all.items));
	if (!all.items)
		return;
	saved = reader_enter(rd, "secrets", 0);
	for (size_t i = 0; i < list->n; i++) {
		size_t at_list = reader_enter(rd, NULL, i);

		read_secret(rd, list->entries[i].value, &all);
		reader_leave(rd, at_list);
	}
	reader_leave(rd, saved);
	for (size_t i = 0; i < env->n; i++)
		all.items[all.n++] = env->items[i];
	*env = all;
}

bool read_texts(struct reader *rd, const struct node *map, const char *field, bool numbers,
	struct workflow_texts *out)
{
	struct node *node = node_get(map, field);
	size_t saved, n;

	out->at = map->at;
	if (!node)
		return false;
	out->at = node->at;
	if (node->kind == NODE_MAP) {
		reader_error(rd, &node->at, "`%s` must be a list, not %s", reader_field(rd, field),
			node_kind_name(node));
		return false;
	}
	n = node->kind == NODE_LIST ? node->n : 1;
	if (node->kind == NODE_SCALAR)
		reader_note(rd, &node->at, "`%s` is a list: read as a list of one",
			reader_field(rd, field));
	out->items = workflow_arena_array(rd->arena, n + 1, sizeof(*out->items));
	if (!out->items)
		return false;
	saved = reader_enter(rd, field, 0);
	for (size_t i = 0; i < n; i++) {
		struct node *item = node->kind == NODE_LIST ? node->entries[i].value : node;
		size_t at_list = reader_enter(rd, NULL, i);

		if (numbers && item->kind == NODE_SCALAR && !node_is_null(item))
			item->literal = false;
		if (reader_text_of(rd, item, buf_str(&rd->path), &out->items[out->n]))
			out->n++;
		reader_leave(rd, at_list);
	}
	reader_leave(rd, saved);
	return out->n == n;
}

bool refuse_secret_in_command(struct reader *rd, const struct node *node, const char *field)
{
	if (node->kind != NODE_SCALAR || !strstr(node->text, "${{") ||
		!strstr(node->text, "secrets."))
		return true;
	reader_error(rd, &node->at,
		"`%s` holds a secret, which every user of the machine could see in the list of "
		"processes; pass it in `env`",
		field);
	return false;
}

static void read_steps(struct reader *rd, const struct node *job)
{
	struct workflow *wf = rd->workflow;
	const struct node *steps = node_get(job, "steps");

	if (!steps) {
		reader_missing(rd, job, &schema_job, "steps", "the list of what is run");
		return;
	}
	read_steps_of(rd, job, "steps", &wf->steps);
	if (steps->kind == NODE_LIST && !steps->n && !rd->partial)
		reader_error(rd, &steps->at, "`steps` is empty: there is nothing to run");
	if (!wf->resources.given)
		derive_resources(rd);
	check_handles(rd, &wf->steps);
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

static void read_resources(struct reader *rd, const struct node *job)
{
	struct node *map = reader_map(rd, job, "resources");
	struct workflow_resources *res = &rd->workflow->resources;
	size_t saved = reader_enter(rd, "resources", 0);

	res->at = job->at;
	res->given = map != NULL;
	read_resources_of(rd, map, res);
	reader_leave(rd, saved);
}

void read_native(struct reader *rd, const struct node *job)
{
	rd->job = job;
	reader_check_map(rd, job, &schema_job);
	read_name(rd, job);
	read_resources(rd, job);
	read_virtual_networks(rd, job);
	read_env(rd, job, &rd->workflow->env);
	read_secrets(rd, job);
	reader_flag(rd, job, "enableLogging", &rd->workflow->enable_logging);
	read_inputs(rd, job);
	read_input_mode(rd, job);
	read_output(rd, job);
	read_continuous(rd, job);
	read_project(rd, job);
	read_steps(rd, job);
	read_common_mounts(rd, job);
	read_resume(rd, job);
	read_timeouts(rd, job, &rd->workflow->timeouts);
	read_ports(rd, job);
	read_notify(rd, job);
	read_preemption(rd, job);
	read_checkpoints(rd, job);
	read_retry(rd, job);
}
