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
	if (!steps || steps->kind != NODE_LIST)
		return;
	for (size_t i = 0; i < steps->n; i++) {
		struct node *step = steps->entries[i].value;
		struct node *run;

		if (step->kind != NODE_MAP)
			continue;
		move_into_run(&o, step);
		run = node_get(step, "run");
		if (run)
			rename_ntasks(&o, run);
	}
}
