/*
 * Legacy forms: published workflows have these forms, the grammar does not, and each form has only
 * one possible meaning. The tree gets the form of the grammar, and a note explains how the legacy
 * form was read.
 */
#include <string.h>

#include "base/cleanup.h"
#include "workflow/native/native.h"

/* Renames `resources.ntasks`, the name that Slurm uses, to `tasks`. */
static void rename_ntasks(struct reader *rd, struct node *parent)
{
	struct node *resources = node_get(parent, "resources");
	struct node_entry *entry = node_find(resources, "ntasks");

	if (!entry || node_find(resources, "tasks"))
		return;
	reader_note(rd, &entry->key_at, "`ntasks` is read as `tasks`");
	entry->key = "tasks";
}

/* Renames `gpus` of a step with one task to `gpusPerTask`. */
static void rename_gpus(struct reader *rd, struct node *run)
{
	struct node *resources = node_get(run, "resources");
	struct node_entry *entry = node_find(resources, "gpus");
	const struct node *tasks = node_get(resources, "tasks");

	if (!entry || node_find(resources, "gpusPerTask") ||
		(tasks && (tasks->kind != NODE_SCALAR || strcmp(tasks->text, "1") != 0)))
		return;
	reader_note(rd, &entry->key_at, "`gpus` of a step of one task is read as `gpusPerTask`");
	entry->key = "gpusPerTask";
}

/* Renames `http` to `s3` if the map has a `bucketUrl` and no `url`. */
static void rename_http(struct reader *rd, struct node *transport)
{
	struct node_entry *entry = node_find(transport, "http");

	if (!entry || node_find(transport, "s3") || !node_get(entry->value, "bucketUrl") ||
		node_get(entry->value, "url"))
		return;
	reader_note(rd, &entry->key_at, "`http` with a `bucketUrl` is read as `s3`");
	entry->key = "s3";
}

/* Splits an entry "NAME=VALUE" of a list of variables. */
static void split_variable(struct reader *rd, struct node_entry *entry)
{
	struct node *text = entry->value;
	const char *equals;
	struct node *map;
	char *name;

	if (text->kind != NODE_SCALAR || !(equals = strchr(text->text, '=')))
		return;
	name = workflow_arena_copy(rd->arena, text->text, (size_t)(equals - text->text));
	if (!name)
		return;
	map = node_variable(
		rd->arena, name, text->at, node_scalar(rd->arena, equals + 1, true, text->at));
	if (!map)
		return;
	entry->value = map;
	reader_note(rd, &text->at, "%s is split at `=` into a key and a value", quote(name));
}

/* Replaces a map of names to values, or the texts "NAME=VALUE" of a list, with a list of `key` and
 * `value`. */
static void list_variables(struct reader *rd, struct node *parent, const char *field)
{
	struct node_entry *entry = node_find(parent, field);
	struct node *list;

	if (!entry || entry->value->kind == NODE_SCALAR)
		return;
	if (entry->value->kind == NODE_LIST) {
		for (size_t i = 0; i < entry->value->n; i++)
			split_variable(rd, &entry->value->entries[i]);
		return;
	}
	list = node_new(rd->arena, NODE_LIST, entry->value->at);
	if (!list)
		return;
	for (size_t i = 0; i < entry->value->n; i++) {
		const struct node_entry *old = &entry->value->entries[i];
		struct node *map = node_variable(rd->arena, old->key, old->key_at, old->value);

		if (!map || node_add(rd->arena, list, NULL, (struct workflow_place){0}, map) < 0)
			return;
	}
	entry->value = list;
	reader_note(
		rd, &entry->key_at, "`%s` is a map: read as a list of `key` and `value`", field);
}

/* Returns the `run` of a step, created if it is missing; NULL if it is not a map, or if out of
 * memory. */
static struct node *run_of(struct reader *rd, struct node *step, const struct node_entry *member)
{
	struct node_entry *entry = node_find(step, "run");
	struct node *run;

	if (entry && !node_is_null(entry->value))
		return entry->value->kind == NODE_MAP ? entry->value : NULL;
	run = node_new(rd->arena, NODE_MAP, member->key_at);
	if (!run)
		return NULL;
	if (entry)
		entry->value = run;
	else if (node_add(rd->arena, step, "run", member->key_at, run) < 0)
		return NULL;
	return run;
}

/* Moves a member of `from` into `to`, with a note. Returns false if `to` already has the member, is
 * not a map, or if out of memory. */
static bool move_member(struct reader *rd, struct node *from, size_t i, struct node *to,
	const char *into, const char *read_as)
{
	struct node_entry entry = from->entries[i];

	if (!to || to->kind != NODE_MAP || node_find(to, entry.key))
		return false;
	reader_note(rd, &entry.key_at, "`%s` belongs in `%s`: read as %s.%s", entry.key, into,
		read_as, entry.key);
	if (node_add(rd->arena, to, entry.key, entry.key_at, entry.value) < 0)
		return false;
	node_remove(from, i);
	return true;
}

/* Moves `command`, `resources`, `container` and so on from the step into its `run`. */
static void move_into_run(struct reader *rd, struct node *step)
{
	const struct schema *run = schema_find(&schema_step, "run")->below;
	size_t i = 0;

	while (i < step->n) {
		const struct node_entry *entry = &step->entries[i];

		if (schema_find(&schema_step, entry->key) || !schema_find(run, entry->key))
			i++;
		else if (node_is_null(entry->value)) /* null counts as a missing key */
			node_remove(step, i);
		else if (!move_member(rd, step, i, run_of(rd, step, entry), "run", "run"))
			i++;
	}
}

/* The form of 2022: `image`, `registry` and `mounts` of `run` belong in `run.container`. */
static void move_into_container(struct reader *rd, struct node *run)
{
	const struct schema *run_schema = schema_find(&schema_step, "run")->below;
	static const char *const keys[] = {"image", "registry", "mounts"};

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		struct node_entry *entry = node_find(run, keys[i]);
		struct node *container = node_get(run, "container");

		if (!entry || schema_find(run_schema, keys[i]))
			continue;
		if (!container && i == 0 && !node_find(run, "container")) {
			container = node_new(rd->arena, NODE_MAP, entry->key_at);
			if (!container ||
				node_add(rd->arena, run, "container", entry->key_at, container) < 0)
				return;
			entry = node_find(run, keys[i]);
		}
		move_member(rd, run, (size_t)(entry - run->entries), container, "container",
			"container");
	}
}

/* Normalizes the steps in the list at `key`, which may be missing. */
static void normalize_steps(struct reader *rd, const struct node *parent, const char *key)
{
	static const char *const blocks[] = {"for", "launch"};
	const struct node *list = node_get(parent, key);

	for (size_t i = 0; list && list->kind == NODE_LIST && i < list->n; i++) {
		struct node *step = list->entries[i].value, *run, *use;

		if (step->kind != NODE_MAP)
			continue;
		move_into_run(rd, step);
		run = node_get(step, "run");
		rename_ntasks(rd, run);
		rename_gpus(rd, run);
		list_variables(rd, run, "env");
		move_into_container(rd, run);
		for (size_t k = 0; k < ARRAY_SIZE(blocks); k++) {
			struct node *map = node_get(step, blocks[k]);
			const struct node_entry *steps = node_find(step, "steps");

			/* `steps` next to `for` or `launch` */
			if (map && steps && !run)
				move_member(rd, step, (size_t)(steps - step->entries), map,
					blocks[k], blocks[k]);
			normalize_steps(rd, map, "steps");
		}
		use = node_get(step, "use");
		list_variables(rd, use, "args");
		normalize_steps(rd, use, "steps");
		normalize_steps(rd, step, "steps");
		normalize_steps(rd, step, "catch");
		normalize_steps(rd, step, "finally");
	}
}

void legacy_forms_normalize(struct reader *rd, struct node *job)
{
	rename_ntasks(rd, job);
	rename_http(rd, node_get(job, "input"));
	rename_http(rd, node_get(job, "output"));
	list_variables(rd, job, "env");
	normalize_steps(rd, job, "steps");
}

void legacy_module_normalize(struct reader *rd, struct node *module)
{
	struct node_entry *least = node_find(module, "resources");

	if (least && !node_find(module, "minimumResources")) {
		reader_note(rd, &least->key_at,
			"`resources` of a module is read as `minimumResources`");
		least->key = "minimumResources";
	}
	normalize_steps(rd, module, "steps");
}
