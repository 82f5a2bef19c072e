#include "workflow/odd.h"

#include <string.h>

#include "workflow/schema.h"
#include "base/banned.h"

struct odd {
	struct workflow_arena *arena;
	const char *file;
	struct diagnostics *found;
};

/* `resources.ntasks`, as Slurm calls it. */
static void rename_ntasks(const struct odd *o, struct node *parent)
{
	struct node *resources = node_get(parent, "resources");
	struct node_entry *entry;

	if (!resources)
		return;
	entry = node_find(resources, "ntasks");
	if (!entry || node_find(resources, "tasks"))
		return;
	diagnostics_add(
		o->found, DIAGNOSTIC_NOTE, o->file, &entry->key_at, "`ntasks` is read as `tasks`");
	entry->key = "tasks";
}

/* {key: NAME, value: VALUE}. NULL: no memory. */
static struct node *new_variable(
	const struct odd *o, const char *name, struct workflow_place at, struct node *value)
{
	struct node *map = node_new(o->arena, NODE_MAP, at);
	struct node *key = node_scalar(o->arena, name, true, at);

	if (!map || !key || !value || node_add(o->arena, map, "key", at, key) < 0 ||
		node_add(o->arena, map, "value", at, value) < 0)
		return NULL;
	return map;
}

/* "NAME=VALUE" as an entry of the list. */
static void split_variable(const struct odd *o, struct node_entry *entry)
{
	struct node *text = entry->value;
	char quoted[QUOTE_SIZE];
	const char *equals;
	struct node *map;
	char *name;

	if (text->kind != NODE_SCALAR || !(equals = strchr(text->text, '=')))
		return;
	name = workflow_arena_copy(o->arena, text->text, (size_t)(equals - text->text));
	if (!name)
		return;
	map = new_variable(o, name, text->at, node_scalar(o->arena, equals + 1, true, text->at));
	if (!map)
		return;
	entry->value = map;
	diagnostics_add(o->found, DIAGNOSTIC_NOTE, o->file, &text->at,
		"%s is read as the key before and the value behind `=`", quote(name, quoted));
}

/* A map of names to values, or a list of "NAME=VALUE", instead of a list of `key` and `value`. */
static void list_variables(const struct odd *o, struct node *parent)
{
	struct node_entry *entry = node_find(parent, "env");
	struct node *list;

	if (!entry || entry->value->kind == NODE_SCALAR)
		return;
	if (entry->value->kind == NODE_LIST) {
		for (size_t i = 0; i < entry->value->n; i++)
			split_variable(o, &entry->value->entries[i]);
		return;
	}
	list = node_new(o->arena, NODE_LIST, entry->value->at);
	if (!list)
		return;
	for (size_t i = 0; i < entry->value->n; i++) {
		const struct node_entry *old = &entry->value->entries[i];
		struct node *map = new_variable(o, old->key, old->key_at, old->value);

		if (!map || node_add(o->arena, list, NULL, (struct workflow_place){0}, map) < 0)
			return;
	}
	entry->value = list;
	diagnostics_add(o->found, DIAGNOSTIC_NOTE, o->file, &entry->key_at,
		"`env` is a map: read as a list of `key` and `value`");
}

/* The `run` of a step, made where it is missing. NULL: it is no map, or no memory. */
static struct node *run_of(const struct odd *o, struct node *step, const struct node_entry *odd)
{
	struct node_entry *entry = node_find(step, "run");
	struct node *run;

	if (entry && !node_is_null(entry->value))
		return entry->value->kind == NODE_MAP ? entry->value : NULL;
	run = node_new(o->arena, NODE_MAP, odd->key_at);
	if (!run)
		return NULL;
	if (entry)
		entry->value = run;
	else if (node_add(o->arena, step, "run", odd->key_at, run) < 0)
		return NULL;
	return run;
}

/* `command`, `resources`, `container`, … beside `run` instead of within. */
static void move_into_run(const struct odd *o, struct node *step)
{
	size_t i = 0;

	while (i < step->n) {
		struct node_entry entry = step->entries[i];
		struct node *run;

		if (schema_find(&schema_step, entry.key) || !schema_find(&schema_run, entry.key)) {
			i++;
			continue;
		}
		run = run_of(o, step, &entry);
		if (!run || node_find(run, entry.key)) {
			i++;
			continue;
		}
		diagnostics_add(o->found, DIAGNOSTIC_NOTE, o->file, &entry.key_at,
			"`%s` belongs into `run`: read as run.%s", entry.key, entry.key);
		if (node_add(o->arena, run, entry.key, entry.key_at, entry.value) < 0)
			return;
		node_remove(step, i);
	}
}

void odd_forms_put_right(
	struct workflow_arena *arena, const char *file, struct node *job, struct diagnostics *found)
{
	struct odd o = {arena, file, found};
	struct node *steps = node_get(job, "steps");

	rename_ntasks(&o, job);
	list_variables(&o, job);
	if (!steps || steps->kind != NODE_LIST)
		return;
	for (size_t i = 0; i < steps->n; i++) {
		struct node *step = steps->entries[i].value;
		struct node *run;

		if (step->kind != NODE_MAP)
			continue;
		move_into_run(&o, step);
		run = node_get(step, "run");
		if (!run)
			continue;
		rename_ntasks(&o, run);
		list_variables(&o, run);
	}
}
