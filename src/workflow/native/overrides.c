/* `--set PATH=VALUE` and `--env KEY=VALUE` on the document tree, before it is read. */
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "workflow/native/native.h"

/* One segment of a path: `.key`, `["key"]` or `[3]`. */
struct segment {
	const char *key; /* NULL if the segment is an index */
	size_t index;
};

struct path {
	struct segment items[LIMIT_WORKFLOW_DEPTH];
	size_t n;
};

/* Parses "[3]" or "[\"key\"]" at `p`. Returns the text after the bracket; NULL if the segment is
 * invalid. */
static const char *parse_bracket(struct workflow_arena *arena, const char *p, struct segment *out)
{
	const char *end;
	uint64_t index;
	char digits[12] = {0};

	if (p[1] == '"') {
		end = strstr(p + 2, "\"]");
		if (!end)
			return NULL;
		out->key = workflow_arena_copy(arena, p + 2, (size_t)(end - p - 2));
		return out->key ? end + 2 : NULL;
	}
	end = strchr(p, ']');
	if (!end || (size_t)(end - p - 1) >= sizeof(digits))
		return NULL;
	memcpy(digits, p + 1, (size_t)(end - p - 1));
	if (!str_to_u64(digits, 0, LIMIT_WORKFLOW_NODES, &index))
		return NULL;
	out->index = (size_t)index;
	return end + 1;
}

/* Parses a path such as "steps[0].run", and drops a leading `job`. Returns false if `text` is not a
 * path, or if out of memory. */
static bool path_parse(struct workflow_arena *arena, const char *text, struct path *path)
{
	const char *p = text;

	path->n = 0;
	while (*p) {
		struct segment *segment = &path->items[path->n];

		if (path->n == ARRAY_SIZE(path->items))
			return false;
		*segment = (struct segment){0};
		if (*p == '[') {
			p = parse_bracket(arena, p, segment);
			if (!p)
				return false;
		} else {
			size_t len;

			p += path->n > 0 && *p == '.';
			len = strcspn(p, ".[");
			if (len == 0)
				return false;
			segment->key = workflow_arena_copy(arena, p, len);
			if (!segment->key)
				return false;
			p += len;
		}
		path->n++;
	}
	if (path->n > 1 && path->items[0].key && strcmp(path->items[0].key, "job") == 0) {
		path->n--;
		memmove(path->items, path->items + 1, path->n * sizeof(path->items[0]));
	}
	return path->n > 0;
}

/* Returns the member that a segment selects, or NULL: in a map by key, in a list by index, or a map
 * in the list by its `name` or `key`. */
static struct node_entry *find_member(const struct node *node, const struct segment *segment)
{
	if (node->kind == NODE_LIST) {
		uint64_t index = segment->index;

		if (!segment->key || str_to_u64(segment->key, 0, LIMIT_WORKFLOW_NODES, &index))
			return index < node->n ? &node->entries[index] : NULL;
		for (size_t i = 0; i < node->n; i++) {
			const struct node *item = node->entries[i].value;
			const struct node *name = node_get(item, "name");

			if (!name)
				name = node_get(item, "key");
			if (name && name->kind == NODE_SCALAR &&
				strcmp(name->text, segment->key) == 0)
				return &node->entries[i];
		}
		return NULL;
	}
	return segment->key ? node_find(node, segment->key) : NULL;
}

const struct node *overrides_find(
	struct workflow_arena *arena, const struct node *job, const char *text)
{
	struct path path = {.n = 0};
	const struct node *node = job;

	if (!path_parse(arena, text, &path))
		return NULL;
	for (size_t i = 0; i < path.n && node; i++) {
		const struct node_entry *entry = find_member(node, &path.items[i]);

		node = entry ? entry->value : NULL;
	}
	return node;
}

static struct workflow_place here(const struct overrides *o)
{
	return source_place(&o->from, 0, 0);
}

static void *fail(const struct overrides *o, const char *message)
{
	return source_fail(&o->from, here(o), "%s", message);
}

/* Parses the value after `=`: JSON or YAML if the value begins with `{` or `[`, JSON if it begins
 * with `"` and is valid, else the text itself, whose type the reader of the field decides. Returns
 * NULL if the value is invalid, which is reported. */
static struct node *parse_value(const struct overrides *o, const char *text)
{
	struct diagnostics json_mistakes = {0}, yaml_mistakes = {0};
	struct document_source from = o->from;
	size_t len = strlen(text);
	struct node *node = NULL;
	char *copy;

	if (!text_check(&from, text, len))
		return NULL;
	if (*text == '{' || *text == '[' || *text == '"') {
		from.found = &json_mistakes;
		node = json_read(&from, text, len);
		from.found = &yaml_mistakes;
		if (!node && *text != '"')
			node = yaml_read(&from, text, len);
		if (!node && *text != '"')
			fail(o, json_mistakes.n ? json_mistakes.items[0].message : "out of memory");
		else if (node && node->kind != NODE_SCALAR && json_mistakes.errors == 0)
			o->from.found->no_memory |= json_mistakes.no_memory;
		diagnostics_release(&json_mistakes);
		diagnostics_release(&yaml_mistakes);
		if (node || *text != '"')
			return node;
	}
	copy = workflow_arena_copy(from.arena, text, len);
	return copy ? node_scalar(from.arena, copy, !*copy, here(o)) : NULL;
}

/* Returns the schema below a field; NULL if the field has none. */
static const struct schema *schema_below(const struct schema *schema, const struct segment *segment)
{
	const struct schema_key *field;

	if (!schema || !segment->key)
		return NULL;
	field = schema_find(schema, segment->key);
	return field ? field->below : NULL;
}

/* Returns true if the grammar has the key or there is no schema; else reports the key. */
static bool key_is_known(const struct overrides *o, const struct schema *schema, const char *key)
{
	const char *nearest;

	if (!schema || schema_find(schema, key))
		return true;
	nearest = schema_nearest(schema, key);
	if (nearest)
		source_fail(&o->from, here(o), "unknown key %s in %s, did you mean `%s`?",
			quote(key), schema->what, nearest);
	else
		source_fail(&o->from, here(o), "unknown key %s in %s%s", quote(key), schema->what,
			schema == &schema_step && schema_find(&schema_run, key)
				? "; it belongs in `run`"
				: "");
	return false;
}

/* Adds the member of `node` that `segment` names. Returns NULL on failure, which is reported. */
static struct node_entry *add_member(const struct overrides *o, struct node *node,
	const struct schema *schema, const struct segment *segment, struct node *value)
{
	uint64_t index = segment->index;
	const char *key = NULL;
	bool is_index = !segment->key ||
			(node->kind == NODE_LIST &&
				str_to_u64(segment->key, 0, LIMIT_WORKFLOW_NODES, &index));

	if (node->kind == NODE_LIST && !is_index)
		return source_fail(&o->from, here(o), "no entry of the list has the name %s",
			quote(segment->key));
	if (node->kind == NODE_LIST && index != node->n)
		return node->n ? source_fail(&o->from, here(o),
					 "the list ends with [%zu]; there is no [%zu]", node->n - 1,
					 (size_t)index)
			       : source_fail(&o->from, here(o),
					 "the list is empty; its first entry would be [0]");
	if (node->kind == NODE_MAP) {
		if (!segment->key)
			return fail(o, "this is a map, which has no index");
		if (!key_is_known(o, schema, segment->key))
			return NULL;
		key = workflow_arena_copy(o->from.arena, segment->key, strlen(segment->key));
		if (!key)
			return NULL;
	}
	if (node_add(o->from.arena, node, key, here(o), value) < 0)
		return NULL;
	return &node->entries[node->n - 1];
}

/* Sets variable `key` in `env`, a list or map of variables. */
static void set_variable(
	const struct overrides *o, struct node *env, const char *key, struct node *value)
{
	struct workflow_place at = here(o);
	struct segment segment = {.key = key};
	struct node_entry *entry = find_member(env, &segment);

	if (entry && env->kind == NODE_LIST) {
		struct node_entry *old = node_find(entry->value, "value");

		if (old)
			old->value = value;
		else
			node_add(o->from.arena, entry->value, "value", at, value);
	} else if (entry) {
		entry->value = value;
		entry->key_at = at;
	} else {
		const char *copy = workflow_arena_copy(o->from.arena, key, strlen(key));
		bool is_map = env->kind == NODE_MAP;

		if (copy && !is_map)
			value = node_variable(o->from.arena, copy, at, value);
		if (copy && value)
			node_add(o->from.arena, env, is_map ? copy : NULL, at, value);
	}
}

/* Sets or removes the member of `node` that the last segment names. */
static void set_last(const struct overrides *o, struct node *node, const struct schema *schema,
	const struct segment *segment, struct node *value)
{
	struct node_entry *entry = find_member(node, segment);

	if (schema == &schema_env && segment->key && node->kind == NODE_LIST &&
		value->kind == NODE_SCALAR && !node_is_null(value)) {
		set_variable(o, node, segment->key, value);
	} else if (!node_is_null(value)) {
		if (!entry) {
			add_member(o, node, schema, segment, value);
		} else {
			entry->value = value;
			entry->key_at = here(o);
		}
	} else if (entry) {
		/* A message about the missing key names the option. */
		if (entry->key)
			node_forget(o->from.arena, node, entry->key, o->from.option);
		node_remove(node, (size_t)(entry - node->entries));
	} else if (node->kind == NODE_MAP && segment->key) {
		key_is_known(o, schema, segment->key);
	}
}

/* Goes one level down, and makes missing maps and lists. Returns NULL on failure, which is
 * reported, or if there is nothing to remove. */
static struct node *descend(const struct overrides *o, struct node *node,
	const struct schema *schema, const struct path *path, size_t i, bool removing)
{
	struct node_entry *entry = find_member(node, &path->items[i]);
	enum node_kind kind = path->items[i + 1].key ? NODE_MAP : NODE_LIST;
	struct node *made;

	if (entry && !node_is_null(entry->value)) {
		if (entry->value->kind != NODE_SCALAR)
			return entry->value;
		return fail(o, "the path continues below a field that is neither a map nor a list");
	}
	if (removing) {
		if (!entry && node->kind == NODE_MAP && path->items[i].key)
			key_is_known(o, schema, path->items[i].key);
		return NULL;
	}
	if (path->items[i].key && schema_below(schema, &path->items[i]) == &schema_env)
		kind = NODE_LIST;
	made = node_new(o->from.arena, kind, here(o));
	if (!made)
		return NULL;
	if (entry) {
		entry->value = made;
		return made;
	}
	return add_member(o, node, schema, &path->items[i], made) ? made : NULL;
}

void overrides_set(struct overrides *o, const char *path_and_value)
{
	struct path path = {.n = 0};
	const char *equals = strchr(path_and_value, '=');
	const struct schema *schema = &schema_job;
	struct node *node = o->job, *value;
	const char *option;
	char *name;

	o->from.option = "--set";
	name = workflow_arena_copy(o->from.arena, path_and_value,
		equals ? (size_t)(equals - path_and_value) : strlen(path_and_value));
	if (!name)
		return;
	if (!equals) {
		/* Without `=` the text may be a misplaced value, perhaps a secret: do not show the
		 * text. */
		fail(o, "takes PATH=VALUE, such as resources.tasks=1");
		return;
	}
	option = workflow_arena_printf(o->from.arena, "--set %s", name);
	if (*name && option)
		o->from.option = option;
	if (!path_parse(o->from.arena, name, &path)) {
		if (!o->from.arena->no_memory)
			fail(o, "this is not a path; write it like steps[0].run.workDir");
		return;
	}
	value = parse_value(o, equals + 1);
	if (!value)
		return;
	for (size_t i = 0; i + 1 < path.n; i++) {
		node = descend(o, node, schema, &path, i, node_is_null(value));
		if (!node)
			return;
		/* Members of a list have the schema of the list. */
		if (path.items[i].key && schema_below(schema, &path.items[i]))
			schema = schema_below(schema, &path.items[i]);
		else if (path.items[i].key && schema && schema_find(schema, path.items[i].key))
			schema = NULL;
	}
	set_last(o, node, schema, &path.items[path.n - 1], value);
}

void overrides_env(struct overrides *o, const char *key_and_value)
{
	const char *equals = strchr(key_and_value, '=');
	struct node_entry *entry = node_find(o->job, "env");
	struct node *env, *value;
	const char *text, *option;
	char *key;

	o->from.option = "--env";
	if (!equals || equals == key_and_value) {
		fail(o, "takes KEY=VALUE");
		return;
	}
	key = workflow_arena_copy(o->from.arena, key_and_value, (size_t)(equals - key_and_value));
	text = workflow_arena_copy(o->from.arena, equals + 1, strlen(equals + 1));
	option = workflow_arena_printf(o->from.arena, "--env %s", key ? key : "");
	if (!key || !text || !option)
		return;
	o->from.option = option;
	if (!text_check(&o->from, text, strlen(text)) || !text_check(&o->from, key, strlen(key)))
		return;
	value = node_scalar(o->from.arena, text, true, here(o));
	if (!value)
		return;
	if (entry && entry->value->kind != NODE_SCALAR) {
		set_variable(o, entry->value, key, value);
		return;
	}
	if (entry && !node_is_null(entry->value))
		return; /* The reader reports that `env` has the wrong kind. */
	env = node_new(o->from.arena, NODE_LIST, here(o));
	if (!env)
		return;
	set_variable(o, env, key, value);
	if (entry)
		entry->value = env;
	else
		node_add(o->from.arena, o->job, "env", here(o), env);
}
