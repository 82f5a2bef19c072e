/*
 * Forms outside of the grammar that published workflows have and that can mean only one thing. The
 * tree gets the form of the grammar, and a note says how the legacy form was read.
 */
#include <string.h>

#include "base/cleanup.h"
#include "workflow/native/native.h"
#include "base/banned.h"

struct normalizer {
	struct workflow_arena *arena;
	const char *file;
	struct diagnostics *found;
};

/* `resources.ntasks`, as Slurm calls it. */
static void rename_ntasks(const struct normalizer *o, struct node *parent)
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

/* `gpus` of a step of one task are the GPUs of the task. */
static void rename_gpus(const struct normalizer *o, struct node *run)
{
	struct node *resources = node_get(run, "resources");
	struct node_entry *entry = node_find(resources, "gpus");
	const struct node *tasks = node_get(resources, "tasks");

	if (!entry || node_find(resources, "gpusPerTask") ||
		(tasks && (tasks->kind != NODE_SCALAR || strcmp(tasks->text, "1") != 0)))
		return;
	diagnostics_add(o->found, DIAGNOSTIC_NOTE, o->file, &entry->key_at,
		"`gpus` of a step of one task is read as `gpusPerTask`");
	entry->key = "gpusPerTask";
}

/* `http` with the bucket of an S3 store and without a URL. */
static void rename_http(const struct normalizer *o, struct node *transport)
{
	struct node_entry *entry = transport && transport->kind == NODE_MAP
					   ? node_find(transport, "http")
					   : NULL;

	if (!entry || node_find(transport, "s3") || !node_get(entry->value, "bucketUrl") ||
		node_get(entry->value, "url"))
		return;
	diagnostics_add(o->found, DIAGNOSTIC_NOTE, o->file, &entry->key_at,
		"`http` with a `bucketUrl` is read as `s3`");
	entry->key = "s3";
}

/* "NAME=VALUE" as an entry of the list. */
static void split_variable(const struct normalizer *o, struct node_entry *entry)
{
	struct node *text = entry->value;
	const char *equals;
	struct node *map;
	char *name;

	if (text->kind != NODE_SCALAR || !(equals = strchr(text->text, '=')))
		return;
	name = workflow_arena_copy(o->arena, text->text, (size_t)(equals - text->text));
	if (!name)
		return;
	map = node_variable(
		o->arena, name, text->at, node_scalar(o->arena, equals + 1, true, text->at));
	if (!map)
		return;
	entry->value = map;
	diagnostics_add(o->found, DIAGNOSTIC_NOTE, o->file, &text->at,
		"%s is read as the key before and the value after `=`", quote(name));
}

/* A map of names to values, or a list of "NAME=VALUE", instead of a list of `key` and `value`. */
static void list_variables(const struct normalizer *o, struct node *parent, const char *field)
{
	struct node_entry *entry = node_find(parent, field);
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
		struct node *map = node_variable(o->arena, old->key, old->key_at, old->value);

		if (!map || node_add(o->arena, list, NULL, (struct workflow_place){0}, map) < 0)
			return;
	}
	entry->value = list;
	diagnostics_add(o->found, DIAGNOSTIC_NOTE, o->file, &entry->key_at,
		"`%s` is a map: read as a list of `key` and `value`", field);
}

/* The `run` of a step, created if it is missing. NULL if it is not a map, or if out of memory. */
static struct node *run_of(
	const struct normalizer *o, struct node *step, const struct node_entry *member)
{
	struct node_entry *entry = node_find(step, "run");
	struct node *run;

	if (entry && !node_is_null(entry->value))
		return entry->value->kind == NODE_MAP ? entry->value : NULL;
	run = node_new(o->arena, NODE_MAP, member->key_at);
	if (!run)
		return NULL;
	if (entry)
		entry->value = run;
	else if (node_add(o->arena, step, "run", member->key_at, run) < 0)
		return NULL;
	return run;
}

/* Moves a member of `from` into `to`, with a note. Returns false if `to` already has it. */
static bool move_member(const struct normalizer *o, struct node *from, size_t i, struct node *to,
	const char *into, const char *read_as)
{
	struct node_entry entry = from->entries[i];

	if (!to || to->kind != NODE_MAP || node_find(to, entry.key))
		return false;
	diagnostics_add(o->found, DIAGNOSTIC_NOTE, o->file, &entry.key_at,
		"`%s` belongs in `%s`: read as %s.%s", entry.key, into, read_as, entry.key);
	if (node_add(o->arena, to, entry.key, entry.key_at, entry.value) < 0)
		return false;
	node_remove(from, i);
	return true;
}

/* Moves `command`, `resources`, `container` and so on from the step into its `run`. */
static void move_into_run(const struct normalizer *o, struct node *step)
{
	const struct schema *run = schema_find(&schema_step, "run")->below;
	size_t i = 0;

	while (i < step->n) {
		const struct node_entry *entry = &step->entries[i];

		if (schema_find(&schema_step, entry->key) || !schema_find(run, entry->key))
			i++;
		else if (node_is_null(entry->value)) /* as if it were left out */
			node_remove(step, i);
		else if (!move_member(o, step, i, run_of(o, step, entry), "run", "run"))
			i++;
	}
}

/* The form of 2022: `image`, `registry` and `mounts` of `run` belong in `run.container`. */
static void move_into_container(const struct normalizer *o, struct node *run)
{
	const struct schema *run_schema = schema_find(&schema_step, "run")->below;
	static const char *const keys[] = {"image", "registry", "mounts"};

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		struct node_entry *entry = node_find(run, keys[i]);
		struct node *container = node_get(run, "container");

		if (!entry || schema_find(run_schema, keys[i]))
			continue;
		if (!container && i == 0 && !node_find(run, "container")) {
			container = node_new(o->arena, NODE_MAP, entry->key_at);
			if (!container ||
				node_add(o->arena, run, "container", entry->key_at, container) < 0)
				return;
			entry = node_find(run, keys[i]);
		}
		move_member(o, run, (size_t)(entry - run->entries), container, "container",
			"container");
	}
}

static void normalize_steps(const struct normalizer *o, struct node *parent, const char *key);

static void normalize_step(const struct normalizer *o, struct node *step)
{
	static const char *const blocks[] = {"for", "launch"};
	struct node *run, *use;

	move_into_run(o, step);
	run = node_get(step, "run");
	if (run) {
		rename_ntasks(o, run);
		rename_gpus(o, run);
		list_variables(o, run, "env");
		move_into_container(o, run);
	}
	for (size_t i = 0; i < ARRAY_SIZE(blocks); i++) {
		struct node *map = node_get(step, blocks[i]);
		const struct node_entry *steps = node_find(step, "steps");

		/* `steps` next to `for` or `launch` */
		if (map && steps && !node_get(step, "run"))
			move_member(o, step, (size_t)(steps - step->entries), map, blocks[i],
				blocks[i]);
		normalize_steps(o, node_get(step, blocks[i]), "steps");
	}
	use = node_get(step, "use");
	if (use)
		list_variables(o, use, "args");
	normalize_steps(o, use, "steps");
	normalize_steps(o, step, "steps");
	normalize_steps(o, step, "catch");
	normalize_steps(o, step, "finally");
}

static void normalize_steps(const struct normalizer *o, struct node *parent, const char *key)
{
	struct node *steps = parent ? node_get(parent, key) : NULL;

	if (!steps || steps->kind != NODE_LIST)
		return;
	for (size_t i = 0; i < steps->n; i++) {
		if (steps->entries[i].value->kind == NODE_MAP)
			normalize_step(o, steps->entries[i].value);
	}
}

void legacy_forms_normalize(
	struct workflow_arena *arena, const char *file, struct node *job, struct diagnostics *found)
{
	struct normalizer o = {arena, file, found};

	rename_ntasks(&o, job);
	rename_http(&o, node_get(job, "input"));
	rename_http(&o, node_get(job, "output"));
	list_variables(&o, job, "env");
	normalize_steps(&o, job, "steps");
}

void legacy_module_normalize(struct workflow_arena *arena, const char *file, struct node *module,
	struct diagnostics *found)
{
	struct normalizer o = {arena, file, found};
	struct node_entry *least = node_find(module, "resources");

	if (least && !node_find(module, "minimumResources")) {
		diagnostics_add(found, DIAGNOSTIC_NOTE, file, &least->key_at,
			"`resources` of a module is read as `minimumResources`");
		least->key = "minimumResources";
	}
	normalize_steps(&o, module, "steps");
}
