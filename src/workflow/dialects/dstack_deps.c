/* `deps` of a dstack workflow: the artifacts of other workflows. */
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "workflow/dialects/dialect.h"

struct deps {
	struct reader *rd;
	const struct node *list, *map;
};

/* Returns the index of a workflow of the file, or the length of the list if it is missing. */
static size_t find_workflow(const struct node *list, const char *name)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct node *item = list->entries[i].value;
		const char *own = item->kind == NODE_MAP ? dialect_text(item, "name") : NULL;

		if (own && strcmp(own, name) == 0)
			return i;
	}
	return list->n;
}

static bool has_workflow(const struct deps *c, const char *name)
{
	const struct strlist *siblings = c->rd->options->siblings;

	if (!c->list || find_workflow(c->list, name) < c->list->n)
		return true;
	if (!siblings)
		return strstr(c->rd->workflow->file, ".dstack/workflows/") != NULL;
	for (size_t i = 0; i < siblings->n; i++) {
		if (strcmp(siblings->items[i], name) == 0)
			return true;
	}
	return false;
}

/* The workflows that a workflow needs, directly or through others. */
struct needed {
	const struct node *list;
	const struct node **maps; /* the workflow itself, and the workflows that it needs */
	size_t n;
	bool *found; /* true for workflows of the list that are in `maps` */
};

/* Adds the workflows that `map` needs. Returns true if `name` is one of these workflows. */
static bool add_needed(struct needed *needed, const struct node *map, const char *name)
{
	static const char *const keys[] = {"deps", "depends-on"};

	for (size_t k = 0; k < ARRAY_SIZE(keys); k++) {
		const struct node *deps = node_get(map, keys[k]);

		if (deps && deps->kind == NODE_MAP)
			deps = node_get(deps, "workflows");
		for (size_t i = 0; deps && i < deps->n; i++) {
			const struct node *item = deps->entries[i].value;
			const char *dep = item->kind == NODE_MAP ? dialect_text(item, "workflow")
								 : item->text;
			size_t at = dep ? find_workflow(needed->list, dep) : needed->list->n;

			if (dep && strcmp(dep, name) == 0)
				return true;
			if (at == needed->list->n || needed->found[at])
				continue;
			needed->found[at] = true;
			needed->maps[needed->n++] = needed->list->entries[at].value;
		}
	}
	return false;
}

static bool needs_itself(const struct deps *c, const char *self)
{
	static const struct node none = {.kind = NODE_LIST};
	struct needed needed = {.list = c->list ? c->list : &none};

	needed.maps = workflow_arena_array(c->rd->arena, needed.list->n + 1, sizeof(void *));
	needed.found = workflow_arena_array(
		c->rd->arena, needed.list->n + 1, sizeof(*needed.found));
	if (!needed.maps || !needed.found)
		return false;
	needed.maps[needed.n++] = c->map;
	for (size_t i = 0; i < needed.n; i++)
		if (add_needed(&needed, needed.maps[i], self))
			return true;
	return false;
}

/* Adds one dependency, given as text: "workflow", "workflow:tag", ":tag". */
static void put_dep(const struct deps *c, struct node *inputs, const char *text,
	const struct workflow_place *at)
{
	const char *slash = strrchr(text, '/');
	const char *own = slash ? slash + 1 : text;
	const char *colon = strchr(own, ':');
	bool latest = colon && strcmp(colon, ":latest") == 0;
	const char *tag = colon && !latest ? colon + 1 : NULL;
	const char *name = colon ? workflow_arena_copy(c->rd->arena, own, (size_t)(colon - own))
				 : own;
	struct node *input, *from;

	if (!name)
		return;
	if (slash)
		reader_note(c->rd, at,
			"%s of another repository is read as %s `%s` of this machine", quote(text),
			tag ? "the tag" : "the newest run of", tag ? tag : name);
	else if (!tag && !latest && !has_workflow(c, name)) {
		reader_error(c->rd, at, "there is no workflow %s to depend on", quote(name));
		return;
	}
	if (!*name && !tag) {
		reader_error(c->rd, at,
			"this project has no dependency %s; give the name of a workflow, or :tag",
			quote(text));
		return;
	}
	input = native_map(c->rd, inputs, NULL, at);
	from = native_map(c->rd, input, "artifacts", at);
	/* NAME:latest may also be a tag; OWNER/REPO/NAME is a run of another project. */
	native_text(c->rd, from, tag ? "tag" : "run", tag ? tag : text, at);
	native_text(c->rd, input, "path",
		workflow_arena_printf(
			c->rd->arena, tag ? "deps/tag-%s" : "deps/%s", tag ? tag : name),
		at);
	native_text(c->rd, input, "link", ".", at);
}

static void put_deps(const struct deps *c, struct node *job)
{
	const struct node *deps = node_get(c->map, "deps");
	const struct node *depends = node_get(c->map, "depends-on");
	const char *self = dialect_text(c->map, "name");
	struct node *inputs;

	if (depends && depends->kind == NODE_MAP)
		depends = node_get(depends, "workflows");
	if (!deps && !depends)
		return;
	if (self && needs_itself(c, self)) {
		reader_error(c->rd, deps ? &deps->at : &depends->at, "%s depends on itself",
			quote(self));
		return;
	}
	inputs = native_list(c->rd, job, "inputs", deps ? &deps->at : &depends->at);
	for (size_t i = 0; deps && i < deps->n; i++) {
		const struct node *item = deps->entries[i].value;
		const char *name = NULL, *tag = NULL;

		if (item->kind != NODE_MAP) {
			put_dep(c, inputs, item->text, &item->at);
			continue;
		}
		name = dialect_text(item, "workflow");
		name = name ? name : dialect_text(item, "run");
		tag = dialect_text(item, "tag");
		if (!name == !tag)
			reader_error(c->rd, &item->at,
				"a dependency must have one of `workflow` and `tag`");
		else
			put_dep(c, inputs,
				tag ? workflow_arena_printf(
					      c->rd->arena, ":%s", *tag == ':' ? tag + 1 : tag)
				    : name,
				&item->at);
	}
	for (size_t i = 0; depends && i < depends->n; i++)
		put_dep(c, inputs, depends->entries[i].value->text, &depends->entries[i].value->at);
}

void dstack_put_deps(
	struct reader *rd, const struct node *list, const struct node *map, struct node *job)
{
	put_deps(&(struct deps){.rd = rd, .list = list, .map = map}, job);
}
