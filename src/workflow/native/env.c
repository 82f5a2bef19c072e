/* Variables: `env`, `args`, and the names in `secrets`. */
#include <ctype.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "workflow/document/secrets.h"
#include "workflow/native/native.h"

static const struct schema_key env_keys[] = {
	{"key", .kinds = KEY_TEXT, .flags = KEY_REQUIRED, .value = "name of a variable",
		.says = "letters, digits and `_`, no digit first; not `PATH` or `LD_LIBRARY_PATH`"},
	{"value", .kinds = KEY_TEXT, .flags = KEY_REQUIRED,
		.says = "the text of the variable; variables in the text are not replaced"},
};
const struct schema schema_env = {SCHEMA("variable", "an entry of `env`", env_keys)};

static bool is_variable_name(const char *s)
{
	return *s && !isdigit((unsigned char)*s) && !s[strspn(s, LETTERS_AND_DIGITS "_")];
}

bool check_variable_name(struct reader *rd, const char *key, const struct workflow_place *at)
{
	if (!is_variable_name(key)) {
		reader_error(rd, at,
			"%s is not a variable name: use letters, digits and _, and no digit first",
			quote(key));
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

/* Checks a variable and stores it in `env`. Returns false if the variable is not usable. */
static bool keep_variable(struct reader *rd, struct workflow_env *env, const char *key,
	const struct workflow_place *key_at, const struct workflow_text *value)
{
	if (!check_variable_name(rd, key, key_at))
		return false;
	*env = (struct workflow_env){.key = key, .value = *value, .at = *key_at};
	if (!value->value)
		return false;
	if (secret_variable(key, value->value)) {
		log_redact(value->value);
		if (!value->shown)
			env->value.shown = "***";
	} else if (!value->shown && *value->value == '$' && is_variable_name(value->value + 1)) {
		reader_note(rd, &value->at,
			"the value of `%s` is %s literally; variables in it are not replaced", key,
			quote(value->value));
	}
	return true;
}

/* Reads the value of a variable; null is read as the empty text. */
static void take_value(
	struct reader *rd, struct node *node, const char *key, struct workflow_text *out)
{
	out->at = node->at;
	/* Redact the value before a note quotes it. */
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
		reader_note(
			rd, &node->at, "the value of `%s` is the text %s", key, quote(node->text));
		node->literal = false;
	}
	reader_text_of(rd, node, reader_field(rd, "value"), out);
}

static bool read_variable(struct reader *rd, struct node *node, void *out)
{
	struct workflow_text key = {0}, value = {0};
	const struct node_entry *value_entry;

	if (!reader_check_map(rd, node, &schema_env))
		return false;
	value_entry = node_find(node, "value");
	if (!node_get(node, "key"))
		reader_missing(rd, node, &schema_env, "key");
	if (!value_entry)
		reader_missing(rd, node, &schema_env, "value");
	if (!reader_text(rd, node, "key", &key) || !value_entry)
		return false;
	take_value(rd, value_entry->value, key.value, &value);
	return keep_variable(rd, out, key.value, &key.at, &value);
}

void read_variables(
	struct reader *rd, const struct node *map, const char *field, struct workflow_env_list *out)
{
	const struct node *env = node_get(map, field);

	if (env && env->kind != NODE_LIST)
		reader_error_of(rd, &env->at, field, "must be a list of `key` and `value`, not %s",
			node_kind_name(env));
	else
		out->items = reader_each(
			rd, map, field, sizeof(*out->items), &out->n, read_variable);
}

/* NAME in `secrets` is the variable NAME with the value ${{ secrets.NAME }}. */
static bool read_secret(struct reader *rd, struct node *item, void *out)
{
	struct workflow_text name = {0}, value = {0};
	const char *text;
	struct node *node;

	if (!reader_text_of(rd, item, buf_str(&rd->path), &name) ||
		!check_variable_name(rd, item->text, &item->at))
		return false;
	text = workflow_arena_printf(rd->arena, "${{ secrets.%s }}", item->text);
	node = text ? node_scalar(rd->arena, text, true, item->at) : NULL;
	return node && reader_text_of(rd, node, buf_str(&rd->path), &value) &&
	       keep_variable(rd, out, item->text, &item->at, &value);
}

/* Secrets come before `env`, so that a variable of the same name in `env` wins. */
void read_secrets(struct reader *rd, const struct node *job)
{
	struct workflow_env_list *env = &rd->workflow->env;
	struct workflow_env *all, *secrets;
	size_t n;

	secrets = reader_each(rd, job, "secrets", sizeof(*secrets), &n, read_secret);
	if (!n)
		return;
	all = workflow_arena_array(rd->arena, n + env->n, sizeof(*all));
	if (!all)
		return;
	memcpy(all, secrets, n * sizeof(*all));
	if (env->n)
		memcpy(all + n, env->items, env->n * sizeof(*all));
	*env = (struct workflow_env_list){all, n + env->n};
}
