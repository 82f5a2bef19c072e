/* dstack's variables: `${{ name }}`, whose values are in variables.yaml or on the command line. */
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "workflow/dialects/dialect.h"
#include "workflow/document/secrets.h"

struct variables {
	struct reader *rd;
	const char *workflow; /* its name */
	const struct node *global; /* maps of variables.yaml; NULL if there is none */
	const struct node *own;
	struct workflow_place last; /* the place of the last value */
	bool unknown; /* a variable of the current text is unknown */
	bool good;
};

static const struct node *map_at(const struct node *map, const char *key)
{
	const struct node *found = map && key ? node_get(map, key) : NULL;

	return found && found->kind == NODE_MAP ? found : NULL;
}

/* Finds the variables of the file. It is read again for each workflow, which is cheap. */
static void find_maps(struct variables *v)
{
	const struct workflow_options *o = v->rd->options;
	const struct node *root, *all;

	if (!o->variables)
		return;
	root = document_read(
		v->rd->arena, o->variables_name, o->variables, o->variables_len, v->rd->found);
	all = root && root->kind == NODE_MAP ? node_get(root, "variables") : NULL;
	if (root && (!all || all->kind != NODE_MAP)) {
		diagnostics_add(v->rd->found, DIAGNOSTIC_ERROR, o->variables_name, &root->at,
			"`variables` is missing: a map of workflows, each a map of values");
		v->good = false;
		return;
	}
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

/* Appends the value for the text between "${{" and "}}". */
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

static void expand_text(struct variables *v, struct node *node)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);
	const char *rest = node->text;
	const char *start, *end;

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
			"with its variables expanded this is longer than %zu bytes",
			(size_t)LIMIT_STRING);
		v->good = false;
		v->unknown = true;
		return;
	}
	node->text = workflow_arena_copy(v->rd->arena, buf_str(&out), out.len);
	if (!node->text)
		node->text = "";
	/* The secret part is at the place of the variable. */
	if (node->field && (v->last.line || v->last.option))
		node->at = v->last;
	node->quoted = true;
	node->literal = false;
}

/* Removes texts with unknown variables, so that they cause no further messages. */
static void expand_below(struct variables *v, struct node *node)
{
	for (size_t i = 0; i < node->n;) {
		struct node *value = node->entries[i].value;

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
}

/* Returns true if `${{ name }}` or `${{ run.args }}` is below `node`. */
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
		if (is_used(workflow, name) || is_used(workflow, "run.args")) {
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
