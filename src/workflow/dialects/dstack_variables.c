/* dstack's variables: `${{ name }}`, whose values are in variables.yaml or on the command line. */
#include <ctype.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "workflow/dialects/dialect.h"
#include "workflow/document/secrets.h"

struct variables {
	struct reader *rd;
	const char *workflow; /* name of the workflow */
	const struct node *global; /* maps of variables.yaml; NULL if there is none */
	const struct node *own;
	struct workflow_place last; /* the place of the last value */
	bool shell; /* the text is for a shell, which replaces `$name` itself */
	bool unknown; /* a variable of the current text is unknown */
	bool good;
};

static const struct node *map_at(const struct node *map, const char *key)
{
	const struct node *found = map && key ? node_get(map, key) : NULL;

	return found && found->kind == NODE_MAP ? found : NULL;
}

/* Finds the variables of variables.yaml. The file is read again for each workflow, which is cheap;
 * its mistakes are reported once. */
static void find_maps(struct variables *v)
{
	const struct workflow_options *o = v->rd->options;
	struct diagnostics found = {0};
	const struct node *root, *all;

	if (!o->variables)
		return;
	root = document_read(
		v->rd->arena, o->variables_name, o->variables, o->variables_len, &found);
	all = root && root->kind == NODE_MAP ? map_at(root, "variables") : NULL;
	if (root && !all)
		diagnostics_add(&found, DIAGNOSTIC_ERROR, o->variables_name, &root->at,
			"`variables` is missing: a map of workflows, each a map of values");
	v->good = v->good && !found.errors;
	diagnostics_take(v->rd->found, &found);
	v->global = map_at(all, "global");
	v->own = map_at(all, v->workflow);
}

static const char *value_of(struct variables *v, const char *name)
{
	const struct node *node = v->own ? node_get(v->own, name) : NULL;
	const struct strlist *arguments = v->rd->options->arguments;
	const char *given = arguments ? strlist_get(arguments, name) : NULL;

	if (strcmp(name, "run.name") == 0)
		return v->workflow;
	if (strcmp(name, "run.args") == 0)
		return v->rd->options->run_args ? v->rd->options->run_args : "";
	if (!node && v->global)
		node = node_get(v->global, name);
	if (given) {
		v->last = (struct workflow_place){
			.option = workflow_arena_printf(v->rd->arena, "--%s", name)};
		return given;
	}
	if (node) {
		v->last = node->at;
		v->last.file = v->rd->options->variables_name;
	}
	return node && node->kind == NODE_SCALAR ? node->text : NULL;
}

static void report(struct variables *v, const struct node *node, const char *name)
{
	const char *names[64];
	const char *nearest;
	size_t n = 0;

	for (size_t i = 0; v->own && i < v->own->n && n < ARRAY_SIZE(names); i++)
		names[n++] = v->own->entries[i].key;
	for (size_t i = 0; v->global && i < v->global->n && n < ARRAY_SIZE(names); i++)
		names[n++] = v->global->entries[i].key;
	nearest = str_nearest(name, names, n);
	reader_error(v->rd, &node->at,
		"unknown variable %s%s%s%s; give it in .dstack/variables.yaml, or as --%s VALUE",
		quote(name), nearest ? ", did you mean `" : "", nearest ? nearest : "",
		nearest ? "`?" : "", name);
	v->good = false;
	v->unknown = true;
}

/* Appends the value for the text between "${{" and "}}". References to `secrets` and `env` are
 * kept. */
static void add_value(struct variables *v, const struct node *node, const char *inner, size_t len,
	struct buf *out)
{
	const char *name, *value;

	while (len && (*inner == ' ' || *inner == '\t')) {
		inner++;
		len--;
	}
	while (len && (inner[len - 1] == ' ' || inner[len - 1] == '\t'))
		len--;
	name = workflow_arena_copy(v->rd->arena, inner, len);
	if (!name)
		return;
	if (str_starts(name, "secrets.") || str_starts(name, "env.")) {
		buf_printf(out, "${{ %s }}", name);
		return;
	}
	value = value_of(v, name);
	if (!value) {
		report(v, node, name);
		return;
	}
	if (secret_variable(name, value))
		log_redact(value);
	buf_add_str(out, value);
}

/* Replaces the older `$name` in a text that no shell reads. */
static void expand_words(struct variables *v, struct node *node)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);
	const char *rest = node->text;
	bool any = false;

	for (const char *at = rest; (at = strchr(at, '$')); at++) {
		size_t len = strspn(at + 1, LETTERS_AND_DIGITS "_");
		const char *name = workflow_arena_copy(v->rd->arena, at + 1, len);
		const char *value = name && len ? strcmp(name, "run_name") == 0 ? v->workflow
										: value_of(v, name)
						: NULL;

		if (!value)
			continue;
		buf_add(&out, rest, (size_t)(at - rest));
		buf_add_str(&out, value);
		rest = at + 1 + len;
		any = true;
	}
	if (!any)
		return;
	buf_add_str(&out, rest);
	node->text = workflow_arena_take(v->rd->arena, &out);
	if (!node->text)
		node->text = "";
}

static void expand_text(struct variables *v, struct node *node)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);
	const char *rest = node->text;
	const char *start, *end;

	if (!v->shell)
		expand_words(v, node);
	rest = node->text;
	v->last = (struct workflow_place){0};
	while ((start = strstr(rest, "${{")) && (end = strstr(start, "}}"))) {
		buf_add(&out, rest, (size_t)(start - rest));
		add_value(v, node, start + 3, (size_t)(end - start - 3), &out);
		rest = end + 2;
	}
	if (rest == node->text)
		return;
	buf_add_str(&out, rest);
	if (out.failure == BUF_NO_MEMORY)
		v->rd->arena->no_memory = true;
	if (out.failure == BUF_OVER_LIMIT) {
		reader_error(v->rd, &node->at,
			"with its variables expanded this text is longer than %zu bytes",
			(size_t)LIMIT_STRING);
		v->good = false;
		v->unknown = true;
		return;
	}
	node->text = workflow_arena_copy(v->rd->arena, buf_str(&out), out.len);
	if (!node->text)
		node->text = "";
	/* The secret comes from the variable: the text gets the place of the variable's value. */
	if (node->field && (v->last.line || v->last.option))
		node->at = v->last;
	node->quoted = true;
	node->literal = false;
}

/* Replaces the variables in the texts below `node`. A text with an unknown variable is removed from
 * a map, and replaced in a list, so that it causes no further messages. */
static void expand_below(struct variables *v, struct node *node)
{
	static const char *const shell[] = {
		"commands", "before_run", "setup", "build", "args", "provider"};
	bool outer = v->shell;

	for (size_t i = 0; i < node->n;) {
		struct node *value = node->entries[i].value;
		const char *key = node->entries[i].key;

		v->shell = outer || (key && is_one_of(key, shell, ARRAY_SIZE(shell)));
		v->unknown = false;
		if (value->kind == NODE_SCALAR)
			expand_text(v, value);
		else
			expand_below(v, value);
		if (value->kind == NODE_SCALAR && v->unknown && node->kind == NODE_MAP) {
			dialect_remove(v->rd, node, i);
			continue;
		}
		/* Keep the indices of the other members of a list. */
		if (value->kind == NODE_SCALAR && v->unknown)
			value->text = "unknown";
		i++;
	}
	v->shell = outer;
}

/* Returns the name of the environment variable: LEARNING_RATE for learning-rate. */
static const char *env_name(struct variables *v, const char *name, bool upper)
{
	char *copy = workflow_arena_copy(v->rd->arena, name, strlen(name));

	for (char *p = copy; p && *p; p++) {
		if (!isalnum((unsigned char)*p))
			*p = '_';
		else if (upper)
			*p = (char)toupper((unsigned char)*p);
	}
	return copy;
}

static void put_variable(struct variables *v, struct node *env, struct buf *args, const char *name,
	const struct workflow_place *at)
{
	const char *value = value_of(v, name), *upper = env_name(v, name, true);
	const char *plain = env_name(v, name, false);

	if (!value || !upper || !plain || isdigit((unsigned char)*upper))
		return;
	/* The record of a run refers to a secret by its field of the workflow file; a variable that
	 * is added here has no field. */
	if (secret_variable(name, value) || secret_variable(upper, value)) {
		log_redact(value);
		reader_note(v->rd, at,
			"the variable `%s` looks like a secret and is not in the environment; write "
			"${{ %s }} where it is needed",
			name, name);
		return;
	}
	buf_printf(args, "%s--%s %s", args->len ? " " : "", name, value);
	native_variable_text(v->rd, env, upper, value, at);
	if (strcmp(upper, plain) != 0)
		native_variable_text(v->rd, env, plain, value, at);
}

void dstack_put_variables(struct reader *rd, const struct node *workflow, struct node *env)
{
	struct variables v = {.rd = rd, .good = true, .workflow = dialect_text(workflow, "name")};
	_cleanup_(buf_release) struct buf args = BUF_INIT(LIMIT_STRING);

	find_maps(&v);
	if (!v.good)
		return;
	for (size_t i = 0; v.global && i < v.global->n; i++) {
		if (!v.own || !node_find(v.own, v.global->entries[i].key))
			put_variable(&v, env, &args, v.global->entries[i].key, &env->at);
	}
	for (size_t i = 0; v.own && i < v.own->n; i++)
		put_variable(&v, env, &args, v.own->entries[i].key, &env->at);
	if (!args.len)
		return;
	native_variable_text(rd, env, "variables_as_args",
		workflow_arena_copy(rd->arena, buf_str(&args), args.len), &env->at);
	native_variable_text(rd, env, "run_name", v.workflow, &env->at);
}

/* Returns true if `${{ name }}` is in `node` or below it. */
static bool is_used(const struct node *node, const char *name)
{
	size_t len = strlen(name);

	for (const char *p = node->kind == NODE_SCALAR ? node->text : ""; (p = strstr(p, "${{"));) {
		p += 3 + strspn(p + 3, " \t");
		if (strncmp(p, name, len) == 0 && strchr(" \t}", p[len]))
			return true;
	}
	for (size_t i = 0; i < node->n; i++) {
		if (is_used(node->entries[i].value, name))
			return true;
	}
	return false;
}

/* Returns true if variables.yaml has the variable for this workflow. */
static bool is_defined(struct reader *rd, const struct node *workflow, const char *name)
{
	_cleanup_(diagnostics_release) struct diagnostics ignored = {0};
	struct reader quiet = *rd;
	struct variables v = {
		.rd = &quiet, .workflow = dialect_text(workflow, "name"), .good = true};

	quiet.found = &ignored;
	find_maps(&v);
	return (v.own && node_find(v.own, name)) || (v.global && node_find(v.global, name));
}

bool dstack_check_arguments(struct reader *rd, const struct node *workflow)
{
	const struct strlist *given = rd->options->arguments;
	bool *used = rd->options->used;
	bool good = true;

	for (size_t i = 0; given && i < given->n; i++) {
		const char *pair = given->items[i];
		const char *name = workflow_arena_copy(rd->arena, pair, strcspn(pair, "="));
		const char *option = workflow_arena_printf(
			rd->arena, "--%.*s", (int)strcspn(pair, "="), pair);

		if (!name || !option)
			continue;
		if (is_used(workflow, name) || is_used(workflow, "run.args") ||
			is_defined(rd, workflow, name)) {
			if (used)
				used[i] = true;
			continue;
		}
		if (used) /* another workflow may use it */
			continue;
		reader_error(rd, &(struct workflow_place){.option = option},
			"is neither an option nor a variable of the workflow, which has no ${{ "
			"%s }}",
			name);
		good = false;
	}
	return good;
}

bool dstack_expand(struct reader *rd, struct node *workflow)
{
	struct variables v = {.rd = rd, .good = true};

	if (workflow->kind != NODE_MAP)
		return true;
	v.workflow = dialect_text(workflow, "name");
	find_maps(&v);
	expand_below(&v, workflow);
	return v.good;
}
