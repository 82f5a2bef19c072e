/* The tree of steps: groups, conditions, loops and launches; use.c reads modules. */
#include <ctype.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/native/native.h"

#define MAX_INDEX  1000000000000 /* largest index of a loop; far from the limits of 64 bits */
#define MAX_SIGNAL 64

/* ---- for ---- */

static bool is_index(int64_t n)
{
	return n >= -MAX_INDEX && n <= MAX_INDEX;
}

uint64_t workflow_count_range(int64_t begin, int64_t end, int64_t increment)
{
	int64_t span = increment > 0 ? end : begin;

	if (!is_index(begin) || !is_index(end) || !is_index(increment) || !increment)
		return 0;
	span -= increment > 0 ? begin : end;
	return span < 0 ? 0 : (uint64_t)(span / (increment > 0 ? increment : -increment)) + 1;
}

static void check_range(struct reader *rd, const struct node *map, void *out)
{
	struct workflow_for *loop = &((struct workflow_step *)out)->loop;

	if (!loop->increment.value) {
		reader_note(rd, &loop->increment.at, "`increment` 0 is read as 1");
		loop->increment.value = 1;
	}
	if (!loop->begin.given || !loop->end.given)
		return;
	loop->count = workflow_count_range(
		loop->begin.value, loop->end.value, loop->increment.value);
	if (!loop->count)
		reader_note_of(rd, &map->at, NULL, "contains no index: the loop does nothing");
	if (loop->count > LIMIT_WORKFLOW_ITERATIONS)
		reader_error_of(rd, &map->at, NULL, "has %llu iterations; a loop has at most %d",
			(unsigned long long)loop->count, LIMIT_WORKFLOW_ITERATIONS);
}

static const struct schema_key range_keys[] = {
	{"begin", NUMBER(workflow_step, loop.begin, -MAX_INDEX, MAX_INDEX),
		.flags = KEY_REQUIRED | KEY_SHOWN, .says = "the first index"},
	{"end", NUMBER(workflow_step, loop.end, -MAX_INDEX, MAX_INDEX),
		.flags = KEY_REQUIRED | KEY_SHOWN, .says = "the last index, which is included"},
	{"increment", NUMBER(workflow_step, loop.increment, -MAX_INDEX, MAX_INDEX),
		.flags = KEY_SHOWN, .preset = 1,
		.says = "the difference of two indices; may be negative"},
};
static const struct schema schema_range = {
	SCHEMA("range", "`range`", range_keys), .check = check_range};

static const struct schema schema_for;

static void check_for(struct reader *rd, const struct node *map, void *out)
{
	struct workflow_step *step = out;
	const struct node *items = node_get(map, "items");
	const struct node *range = node_get(map, "range");

	if (!node_get(map, "parallel"))
		reader_note_of(rd, &map->at, NULL,
			"has no `parallel`: read as false, one iteration after the other");
	if (items && range)
		reader_error_of(
			rd, &map->at, NULL, "has both `items` and `range`; keep one of them");
	else if (!items && !range)
		reader_error_of(rd, &map->at, NULL, "has neither `items` nor `range`");
	step->loop.has_items = items != NULL;
	if (items)
		step->loop.count = step->loop.items.n;
	if (!node_get(map, "steps"))
		reader_missing(rd, map, &schema_for, "steps");
	read_steps(rd, map, "steps", &step->steps);
}

/* `steps` may also be next to `for` and `launch`, with a note, so the tables do not require
 * `steps`. */
#define STEPS(items, n, text)                                                                      \
	LIST(workflow_step, items, n, &schema_step), .value = "list of [steps](#steps)",           \
						     .says = (text)

static const struct schema_key for_keys[] = {
	{"parallel", FLAG(workflow_step, loop.parallel), .flags = KEY_SHOWN,
		.says = "iterations run at the same time, at most 256"},
	{"items", TEXTS(workflow_step, loop.items), .flags = KEY_SHOWN | KEY_NUMBERS,
		.shown = {SET(workflow_step, loop.has_items)},
		.says = "one iteration for each text, in the variable `item`; give `items` or "
			"`range`"},
	{"range", MAP_OF(&schema_range), .shown = {UNSET(workflow_step, loop.has_items)},
		.value = "[map](#for)",
		.says = "one iteration for each number, in the variable `index`; give `items` "
			"or `range`"},
	{"steps", STEPS(steps.items, steps.n, "the steps of each iteration"),
		.flags = KEY_SHOWN | KEY_OWN, .otherwise = "required"},
};
static const struct schema schema_for = {SCHEMA("for", "`for`", for_keys), .check = check_for};

/* ---- launch and dependsOn ---- */

/* Converts a handle to upper case, as in PID_NAME, because handles are case-insensitive. */
static bool take_handle(struct reader *rd, struct workflow_text *text, const char *key)
{
	char *upper;

	if (!*text->value || text->value[strspn(text->value, LETTERS_AND_DIGITS "_")] ||
		strlen(text->value) > LIMIT_WORKFLOW_NAME) {
		reader_refuse(
			rd, text, key, "be 1 to %d letters, digits and `_`", LIMIT_WORKFLOW_NAME);
		text->value = text->shown = NULL;
		return false;
	}
	upper = workflow_arena_copy(rd->arena, text->value, strlen(text->value));
	if (!upper)
		return false;
	for (char *c = upper; *c; c++)
		*c = (char)toupper((unsigned char)*c);
	text->value = upper;
	text->shown = NULL;
	return true;
}

static const struct schema schema_launch;

static void check_launch(struct reader *rd, const struct node *map, void *out)
{
	struct workflow_step *step = out;

	if (step->launch.handle.value)
		take_handle(rd, &step->launch.handle, "handleName");
	if (!node_get(map, "steps"))
		reader_missing(rd, map, &schema_launch, "steps");
	read_steps(rd, map, "steps", &step->steps);
}

static const struct schema_key launch_keys[] = {
	{"handleName", TEXT(workflow_step, launch.handle), .flags = KEY_SHOWN,
		.value = "letters, digits, `_`",
		.says = "the name for `dependsOn`; case does not matter"},
	{"signalOnParentStepExit", NUMBER(workflow_step, launch.signal, 0, MAX_SIGNAL),
		.flags = KEY_SHOWN, .preset = 15,
		.says = "the signal that the steps of the launch get if they still run when its "
			"scope ends; 0: no signal"},
	{"steps", STEPS(steps.items, steps.n, "the steps to launch, one after the other"),
		.flags = KEY_SHOWN | KEY_OWN, .otherwise = "required"},
};
static const struct schema schema_launch = {
	SCHEMA("launch", "`launch`", launch_keys), .check = check_launch};

/* ---- a step ---- */

static const struct {
	const char *key;
	enum workflow_step_kind kind;
} bodies[] = {
	{"run", WORKFLOW_STEP_RUN},
	{"steps", WORKFLOW_STEP_GROUP},
	{"for", WORKFLOW_STEP_FOR},
	{"launch", WORKFLOW_STEP_LAUNCH},
	{"use", WORKFLOW_STEP_USE},
};

static void check_step(struct reader *rd, const struct node *node, void *out)
{
	struct workflow_step *step = out;
	struct workflow_texts *handles = &step->depends_on;
	size_t kept = 0;
	const char *first = NULL;

	for (size_t i = 0; i < handles->n; i++) {
		if (take_handle(rd, &handles->items[i], "dependsOn"))
			handles->items[kept++] = handles->items[i];
	}
	handles->n = kept;
	/* As in DeepSquare, an empty condition is true. */
	if (step->condition.value &&
		!step->condition.value[strspn(step->condition.value, " \t\r\n")])
		step->condition.value = NULL;
	/* Read the body of the step; a step has at most one. */
	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		const struct node_entry *entry = node_find(node, bodies[i].key);

		if (!entry || node_is_null(entry->value))
			continue;
		if (first) {
			reader_error_of(rd, &entry->key_at, NULL,
				"has both `%s` and `%s`; a step has one of `run`, `steps`, "
				"`for`, `launch` and `use`",
				first, bodies[i].key);
			continue;
		}
		first = bodies[i].key;
		step->kind = bodies[i].kind;
		if (step->kind == WORKFLOW_STEP_GROUP)
			read_steps(rd, node, "steps", &step->steps);
		else if (step->kind == WORKFLOW_STEP_USE)
			read_use(rd, entry->value, step);
		else
			reader_key(rd, node, schema_find(&schema_step, first), step);
	}
	read_steps(rd, node, "catch", &step->catch_steps);
	read_steps(rd, node, "finally", &step->finally_steps);
	if (step->kind == WORKFLOW_STEP_EMPTY && !step->finally_steps.n && !step->depends_on.n)
		reader_note_of(rd, &node->at, NULL,
			"has none of `run`, `steps`, `for`, `launch` and `use`: it does nothing");
}

static const struct schema_key step_keys[] = {
	{"name", TEXT(workflow_step, name), .flags = KEY_SHOWN,
		.otherwise = "\"step 2.1\", its position",
		.says = "names the step in messages and overrides; names may repeat"},
	{"dependsOn", TEXTS(workflow_step, depends_on), .value = "list of handles",
		.says = "waits until these [launches](#launch-and-dependson) have ended"},
	{"if", TEXT(workflow_step, condition), .flags = KEY_NO_SECRET | KEY_NUMBERS,
		.otherwise = "always",
		.says = "a condition for bash's `[[ … ]]`, evaluated after `dependsOn`; the "
			"step is skipped if the condition is false"},
	{"run", MAP(workflow_step, run, &schema_run), .flags = KEY_OWN,
		.shown = {IS(workflow_step, kind, WORKFLOW_STEP_RUN)}, .value = "[map](#run)",
		.says = "one command"},
	{"steps", STEPS(steps.items, steps.n, "a group: one step after the other"),
		.flags = KEY_SHOWN | KEY_OWN,
		.shown = {IS(workflow_step, kind, WORKFLOW_STEP_GROUP)}},
	{"for", MAP_OF(&schema_for), .flags = KEY_OWN,
		.shown = {IS(workflow_step, kind, WORKFLOW_STEP_FOR)}, .value = "[map](#for)",
		.says = "a loop"},
	{"launch", MAP_OF(&schema_launch), .flags = KEY_OWN,
		.shown = {IS(workflow_step, kind, WORKFLOW_STEP_LAUNCH)},
		.value = "[map](#launch-and-dependson)", .says = "steps in the background"},
	{"use", .kinds = KEY_MAP, .below = &schema_use, .member = 1, .flags = KEY_OWN,
		.shown = {IS(workflow_step, kind, WORKFLOW_STEP_USE)}, .value = "[map](#use)",
		.says = "a module: steps from elsewhere"},
	{"catch",
		STEPS(catch_steps.items, catch_steps.n,
			"run only if the step failed; then the workflow continues"),
		.flags = KEY_OWN},
	{"finally", STEPS(finally_steps.items, finally_steps.n, "run after the step in any case"),
		.flags = KEY_OWN},
};
const struct schema schema_step = {SCHEMA("step", "a step", step_keys),
	.size = sizeof(struct workflow_step), AT(workflow_step, at), .check = check_step};

static bool read_step(struct reader *rd, struct node *node, void *out)
{
	struct workflow_step *step = out;
	/* The position of the step, "2.1", which names a step without `name`. */
	const char *number = workflow_arena_printf(rd->arena, "%s%s%zu", buf_str(&rd->number),
		rd->number.len ? "." : "", rd->index + 1);
	const struct node *name = node_get(node, "name");
	_cleanup_free_ char *saved = strdup(buf_str(&rd->number));

	step->path = workflow_arena_copy(rd->arena, buf_str(&rd->path), rd->path.len);
	step->label = workflow_arena_printf(rd->arena, "step %s", number ? number : "");
	if (!number || !saved) {
		rd->arena->no_memory = true;
		return true;
	}
	buf_truncate(&rd->number, 0);
	buf_add_str(&rd->number, number);
	rd->step = node;
	reader_read(rd, node, &schema_step, step);
	if (name && step->name.value && *workflow_shown(&step->name))
		step->label = workflow_shown(&step->name);
	buf_truncate(&rd->number, 0);
	buf_add_str(&rd->number, saved);
	return true;
}

void read_steps(
	struct reader *rd, const struct node *map, const char *key, struct workflow_steps *out)
{
	const struct node *list = node_get(map, key);

	out->at = list && list->kind == NODE_LIST ? list->at : map->at;
	out->items = reader_each(rd, map, key, sizeof(*out->items), &out->n, read_step);
}

int workflow_walk(const struct workflow_steps *steps,
	int (*fn)(void *cookie, const struct workflow_step *step), void *cookie)
{
	int r = 0;

	for (size_t i = 0; !r && i < steps->n; i++) {
		const struct workflow_step *step = &steps->items[i];

		r = fn(cookie, step);
		if (!r)
			r = workflow_walk(&step->steps, fn, cookie);
		if (!r)
			r = workflow_walk(&step->catch_steps, fn, cookie);
		if (!r)
			r = workflow_walk(&step->finally_steps, fn, cookie);
	}
	return r;
}

/* ---- handles ---- */

/*
 * A step can wait for a handle that was launched before it in its own list of steps, or in an
 * enclosing list. A plain group belongs to the list that contains it. Loops, launches, modules and
 * steps with `catch` or `finally` are scopes: at the end of a scope, its launches are stopped. A
 * step never waits for a later step, so there are no cycles.
 */
struct handle {
	const char *name;
	const struct workflow_step *step;
	const struct handle *before; /* the previous handle in scope; NULL for the first one */
};

static const struct handle *handle_find(const struct handle *from, const char *name)
{
	while (from && strcmp(from->name, name) != 0)
		from = from->before;
	return from;
}

struct search {
	const char *name;
	const struct workflow_step *found;
};

static int is_launch_of(void *cookie, const struct workflow_step *step)
{
	struct search *search = cookie;

	if (step->kind != WORKFLOW_STEP_LAUNCH || !step->launch.handle.value ||
		strcmp(step->launch.handle.value, search->name) != 0)
		return 0;
	search->found = step;
	return 1;
}

/* Reports a handle that is not in scope, with the reason. */
static void report_handle(struct reader *rd, const struct workflow_steps *all,
	const struct workflow_step *step, const struct workflow_text *handle)
{
	struct search search = {.name = handle->value};
	size_t len;

	if (!workflow_walk(all, is_launch_of, &search)) {
		reader_error(rd, &handle->at,
			"`%s.dependsOn`: nothing is launched with the `handleName` %s", step->path,
			handle->value);
		return;
	}
	len = strlen(search.found->path);
	if (strncmp(step->path, search.found->path, len) == 0 &&
		(!step->path[len] || step->path[len] == '.')) {
		reader_error(rd, &handle->at,
			"`%s.dependsOn`: the step is part of %s and would wait for itself forever",
			step->path, handle->value);
		return;
	}
	reader_error(rd, &handle->at,
		"`%s.dependsOn`: %s is not launched before this step in the same list of steps; "
		"it is launched by `%s`",
		step->path, handle->value, search.found->path);
}

/* Adds the handle of the launch `step` to its scope, whose last handle is `before`. Returns the
 * last handle in scope after the step. */
static const struct handle *add_handle(
	struct reader *rd, const struct workflow_step *step, const struct handle *before)
{
	const char *name = step->launch.handle.value;
	const struct handle *other = handle_find(before, name);
	struct handle *h;

	if (other)
		reader_error(rd, &step->launch.handle.at,
			"the handle %s is also used by `%s`; rename one of them", name,
			other->step->path);
	if (step->catch_steps.n || step->finally_steps.n)
		return before; /* the scope ends with the step itself */
	h = workflow_arena_new(rd->arena, struct handle);
	if (!h)
		return before;
	*h = (struct handle){name, step, before};
	return h;
}

/* Checks the steps of a list; `*last` is the last handle in scope, and `all` are the steps of the
 * workflow. */
static void handles_of_list(struct reader *rd, const struct workflow_steps *all,
	const struct workflow_steps *steps, const struct handle **last)
{
	for (size_t i = 0; i < steps->n; i++) {
		const struct workflow_step *step = &steps->items[i];
		bool open = step->kind == WORKFLOW_STEP_GROUP && !step->catch_steps.n &&
			    !step->finally_steps.n;
		const struct handle *own;

		for (size_t k = 0; k < step->depends_on.n; k++) {
			if (!handle_find(*last, step->depends_on.items[k].value))
				report_handle(rd, all, step, &step->depends_on.items[k]);
		}
		own = *last; /* last handle in a scope that ends with these steps */
		handles_of_list(rd, all, &step->steps, open ? last : &own);
		own = *last;
		handles_of_list(rd, all, &step->catch_steps, &own);
		own = *last;
		handles_of_list(rd, all, &step->finally_steps, &own);
		if (step->kind == WORKFLOW_STEP_LAUNCH && step->launch.handle.value)
			*last = add_handle(rd, step, *last);
	}
}

void check_handles(struct reader *rd, const struct workflow_steps *steps)
{
	const struct handle *last = NULL;

	handles_of_list(rd, steps, steps, &last);
}
