#include "workflow/changes.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"

enum { NAMES_SHOWN = 5, PATH_SIZE = 400 };

static json_t *load(const char *text, struct penstock_error *err)
{
	json_t *root = json_loads(text, 0, NULL);

	if (!root)
		error_set(err, PENSTOCK_E_CORRUPT, "a stored workflow is not valid JSON");
	return root;
}

/* ---- comparing ---- */

struct comparison {
	struct workflow_changes *changes;
	char path[PATH_SIZE];
};

static void note(struct comparison *c)
{
	struct workflow_changes *w = c->changes;
	size_t len = strlen(w->names), rest = sizeof(w->names) - len;

	if (w->n < NAMES_SHOWN && strlen(c->path) + 20 < rest)
		snprintf(w->names + len, rest, "%s%s", len ? ", " : "", c->path);
	w->n++;
}

/* Extends the path in the form of --set. Returns the old length of the path. */
static size_t enter(struct comparison *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static size_t enter(struct comparison *c, const char *fmt, ...)
{
	size_t len = strlen(c->path);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(c->path + len, sizeof(c->path) - len, fmt, ap);
	va_end(ap);
	return len;
}

/* Items of a list are named by their `name` (steps) or `key` (variables). */
static const char *name_of(const json_t *item)
{
	const char *name = json_string_value(json_object_get(item, "name"));

	return name ? name : json_string_value(json_object_get(item, "key"));
}

static void compare(struct comparison *c, const json_t *a, const json_t *b);

static void compare_objects(struct comparison *c, const json_t *a, const json_t *b)
{
	const char *key;
	json_t *value;

	json_object_foreach ((json_t *)(uintptr_t)a, key, value) {
		size_t len = enter(c, "%s%s", *c->path ? "." : "", key);

		compare(c, value, json_object_get(b, key));
		c->path[len] = '\0';
	}
	json_object_foreach ((json_t *)(uintptr_t)b, key, value) {
		if (json_object_get(a, key))
			continue;
		size_t len = enter(c, "%s%s", *c->path ? "." : "", key);

		compare(c, NULL, value);
		c->path[len] = '\0';
	}
}

static const json_t *find_named(const json_t *list, const char *name)
{
	json_t *item;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)list, i, item) {
		const char *other = name_of(item);

		if (other && strcmp(other, name) == 0)
			return item;
	}
	return NULL;
}

/* Returns true if all items have different names. */
static bool are_named(const json_t *list)
{
	json_t *item;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)list, i, item) {
		if (!name_of(item) || find_named(list, name_of(item)) != item)
			return false;
	}
	return true;
}

/* Compares the items of `list` with the items of the same name in `other`; if `removed`, notes only
 * the items that `other` lacks. */
static void compare_named(
	struct comparison *c, const json_t *list, const json_t *other, bool removed)
{
	json_t *item;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)list, i, item) {
		const json_t *found = find_named(other, name_of(item));
		size_t len = enter(c, ".%s", name_of(item));

		if (!removed)
			compare(c, found, item);
		else if (!found)
			compare(c, item, NULL);
		c->path[len] = '\0';
	}
}

static void compare_lists(struct comparison *c, const json_t *a, const json_t *b)
{
	size_t n = json_array_size(a) > json_array_size(b) ? json_array_size(a)
							   : json_array_size(b);
	bool variables = json_object_get(json_array_get(a, 0), "key") != NULL;

	/* Compare by name, so that a new item in front does not change the items after it. Lists
	 * of steps of the same length are compared by position, because a step may get another
	 * name. */
	if ((variables || json_array_size(a) != json_array_size(b)) && are_named(a) &&
		are_named(b)) {
		compare_named(c, b, a, false);
		compare_named(c, a, b, true);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		const json_t *x = json_array_get(a, i), *y = json_array_get(b, i);
		const char *name = name_of(y ? y : x);
		size_t len = name ? enter(c, ".%s", name) : enter(c, "[%zu]", i);

		compare(c, x, y);
		c->path[len] = '\0';
	}
}

/* NULL and null are the same: a missing field. */
static void compare(struct comparison *c, const json_t *a, const json_t *b)
{
	a = json_is_null(a) ? NULL : a;
	b = json_is_null(b) ? NULL : b;
	if (json_is_object(a) && json_is_object(b))
		compare_objects(c, a, b);
	else if (json_is_array(a) && json_is_array(b))
		compare_lists(c, a, b);
	else if (a != b && (!a || !b || !json_equal(a, b)))
		note(c);
}

/* Removes the fields that do not change the result of a step. */
static void strip(json_t *node)
{
	static const char *const harmless[] = {
		"name", "resources", "timeout", "hangTimeout", "restarts", "disableCpuBinding"};
	const char *key;
	json_t *value;
	size_t i;

	for (i = 0; json_is_object(node) && i < ARRAY_SIZE(harmless); i++)
		json_object_del(node, harmless[i]);
	json_object_foreach (node, key, value) {
		/* A variable may have any name, even that of a harmless field. */
		if (strcmp(key, "env") != 0 && strcmp(key, "args") != 0)
			strip(value);
	}
	json_array_foreach (node, i, value)
		strip(value);
}

static bool is_changed(const json_t *a, const json_t *b)
{
	json_auto_t *x = a ? json_deep_copy(a) : json_null();
	json_auto_t *y = b ? json_deep_copy(b) : json_null();

	strip(x);
	strip(y);
	return !x || !y || !json_equal(x, y);
}

static size_t first_changed_step(const json_t *a, const json_t *b)
{
	static const char *const for_all[] = {"input", "inputs", "inputMode", "python", "mounts"};
	const json_t *before = json_object_get(a, "steps"), *now = json_object_get(b, "steps");
	size_t n = json_array_size(before) < json_array_size(now) ? json_array_size(before)
								  : json_array_size(now);

	for (size_t i = 0; i < ARRAY_SIZE(for_all); i++) {
		if (is_changed(json_object_get(a, for_all[i]), json_object_get(b, for_all[i])))
			return 0;
	}
	for (size_t i = 0; i < n; i++) {
		if (is_changed(json_array_get(before, i), json_array_get(now, i)))
			return i;
	}
	return json_array_size(before) == json_array_size(now) ? SIZE_MAX : n;
}

int workflow_compare(const char *before, const char *now, struct workflow_changes *changes,
	struct penstock_error *err)
{
	json_auto_t *a = load(before, err), *b = a ? load(now, err) : NULL;
	struct comparison c = {.changes = changes};

	*changes = (struct workflow_changes){.first_step = SIZE_MAX};
	if (!a || !b)
		return -(int)PENSTOCK_E_CORRUPT;
	compare(&c, a, b);
	changes->first_step = first_changed_step(a, b);
	if (changes->n > NAMES_SHOWN) {
		size_t len = strlen(changes->names);

		snprintf(changes->names + len, sizeof(changes->names) - len, " and %zu more",
			changes->n - NAMES_SHOWN);
	}
	return 0;
}

/* ---- merging ---- */

static json_t *merge(const json_t *before, const json_t *now, const json_t *record);

static json_t *copy(const json_t *value)
{
	return value ? json_deep_copy(value) : NULL;
}

/* Merges one member: sets it in `out`, or removes it from `out`. */
static int merge_member(json_t *out, const char *key, const json_t *before, const json_t *now)
{
	json_t *merged = merge(
		json_object_get(before, key), json_object_get(now, key), json_object_get(out, key));

	if (merged)
		return json_object_set_new(out, key, merged);
	json_object_del(out, key);
	return 0;
}

static json_t *merge_objects(const json_t *before, const json_t *now, const json_t *record)
{
	json_t *out = json_deep_copy(record);
	const char *key;
	json_t *value;
	int r = out ? 0 : -1;

	json_object_foreach ((json_t *)(uintptr_t)before, key, value) {
		if (r == 0)
			r = merge_member(out, key, before, now);
	}
	json_object_foreach ((json_t *)(uintptr_t)now, key, value) {
		if (r == 0 && !json_object_get(before, key))
			r = merge_member(out, key, before, now);
	}
	if (r == 0)
		return out;
	json_decref(out);
	return NULL;
}

static const json_t *find_key(const json_t *list, const char *key)
{
	json_t *item;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)list, i, item) {
		const char *other = json_string_value(json_object_get(item, "key"));

		if (other && strcmp(other, key) == 0)
			return item;
	}
	return NULL;
}

static bool has_variables(const json_t *list)
{
	return json_object_get(json_array_get(list, 0), "key") != NULL;
}

/* Merges variables: the variables of the file as it is now, and the variables that only the record
 * has. */
static json_t *merge_variables(const json_t *before, const json_t *now, const json_t *record)
{
	json_t *out = json_array();
	json_t *item;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)record, i, item) {
		const char *key = json_string_value(json_object_get(item, "key"));
		const json_t *old = key ? find_key(before, key) : NULL;
		json_t *merged = merge(old, key ? find_key(now, key) : NULL, item);

		if (merged)
			json_array_append_new(out, merged);
	}
	json_array_foreach ((json_t *)(uintptr_t)now, i, item) {
		const char *key = json_string_value(json_object_get(item, "key"));

		if (!key || !find_key(record, key))
			json_array_append_new(out, json_deep_copy(item));
	}
	return out;
}

static json_t *merge_lists(const json_t *before, const json_t *now, const json_t *record)
{
	size_t n = json_array_size(now);
	json_t *out;

	if (json_array_size(before) != json_array_size(record))
		return json_deep_copy(now);
	out = json_array();
	for (size_t i = 0; i < n; i++) {
		json_t *merged = merge(json_array_get(before, i), json_array_get(now, i),
			json_array_get(record, i));

		json_array_append_new(out, merged ? merged : json_null());
	}
	return out;
}

/* Applies the changes from `before` to `now` to `record`. Returns a new value, or NULL if the field
 * is removed. */
static json_t *merge(const json_t *before, const json_t *now, const json_t *record)
{
	if (before == now || (before && now && json_equal(before, now)))
		return copy(record);
	if ((!before || json_is_object(before)) && json_is_object(now) && json_is_object(record))
		return merge_objects(before, now, record);
	if (has_variables(record) && (!before || json_is_array(before)) &&
		(!now || json_is_array(now)))
		return merge_variables(before, now, record);
	if (json_is_array(before) && json_is_array(now) && json_is_array(record))
		return merge_lists(before, now, record);
	return copy(now);
}

int workflow_merge(const char *before, const char *now, const char *record, struct buf *out,
	struct penstock_error *err)
{
	json_auto_t *a = load(before, err), *b = a ? load(now, err) : NULL;
	json_auto_t *kept = b ? load(record, err) : NULL;
	json_auto_t *merged = NULL;
	_cleanup_free_ char *text = NULL;

	if (!kept)
		return -(int)PENSTOCK_E_CORRUPT;
	merged = merge(a, b, kept);
	text = merged ? json_dumps(merged, JSON_INDENT(2)) : NULL;
	if (!text)
		return error_memory(err);
	buf_add_str(out, text);
	buf_add_char(out, '\n');
	return buf_failed(out) ? buf_error(out, "the workflow", err) : 0;
}
