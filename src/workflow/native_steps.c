/* The tree of steps: groups, conditions, loops, launches; native_use.c reads modules. */
#include <ctype.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/native.h"
#include "base/banned.h"

#define MAX_INDEX  1000000000000 /* of a loop; far from where 64 bits end */
#define MAX_SIGNAL 64

/* Where the steps are: "2.1", for those without a name. */
static const char *number_of(struct reader *rd, size_t i)
{
	if (*buf_str(&rd->number))
		return workflow_arena_printf(rd->arena, "%s.%zu", buf_str(&rd->number), i + 1);
	return workflow_arena_printf(rd->arena, "%zu", i + 1);
}

/* ---- for ---- */

static void read_range(struct reader *rd, const struct node *map, struct workflow_for *loop)
{
	struct workflow_number begin = {0}, end = {0}, increment = {.value = 1};
	size_t saved = reader_enter(rd, "range", 0);
	int64_t span;

	if (reader_check_map(rd, map, &schema_range)) {
		if (!node_get(map, "begin"))
			reader_missing(rd, map, &schema_range, "begin", "the first index");
		if (!node_get(map, "end"))
			reader_missing(
				rd, map, &schema_range, "end", "the last index, which is included");
		reader_number(rd, map, "begin", -MAX_INDEX, MAX_INDEX, &begin);
		reader_number(rd, map, "end", -MAX_INDEX, MAX_INDEX, &end);
		if (reader_number(rd, map, "increment", -MAX_INDEX, MAX_INDEX, &increment) &&
			!increment.value) {
			reader_note(rd, &increment.at, "`increment` 0 is read as 1");
			increment.value = 1;
		}
	}
	loop->begin = begin.value;
	loop->end = end.value;
	loop->increment = increment.value;
	span = increment.value > 0 ? end.value - begin.value : begin.value - end.value;
	if (begin.given && end.given && span >= 0)
		loop->count = (uint64_t)(span / (increment.value > 0 ? increment.value
								     : -increment.value)) +
			      1;
	if (begin.given && end.given && span < 0)
		reader_note(rd, &map->at, "`%s` holds no index: the loop does nothing",
			buf_str(&rd->path));
	if (loop->count > LIMIT_WORKFLOW_ITERATIONS)
		reader_error(rd, &map->at, "`%s` has %llu iterations; a loop has at most %d",
			buf_str(&rd->path), (unsigned long long)loop->count,
			LIMIT_WORKFLOW_ITERATIONS);
	reader_leave(rd, saved);
}

static void read_for(struct reader *rd, const struct node *map, struct workflow_step *step)
{
	struct workflow_for *loop = &step->loop;
	const struct node *items = node_get(map, "items");
	const struct node *range = node_get(map, "range");

	if (!reader_check_map(rd, map, &schema_for))
		return;
	if (!reader_flag(rd, map, "parallel", &loop->parallel) && !node_get(map, "parallel"))
		reader_note(rd, &map->at,
			"`%s` does not say `parallel`: read as false, one iteration after the "
			"other",
			buf_str(&rd->path));
	if (items && range)
		reader_error(rd, &map->at, "`%s` has both `items` and `range`; give one of them",
			buf_str(&rd->path));
	else if (!items && !range)
		reader_error(
			rd, &map->at, "`%s` has neither `items` nor `range`", buf_str(&rd->path));
	if (items) {
		loop->has_items = true;
		read_texts(rd, map, "items", true, &loop->items);
		loop->count = loop->items.n;
	} else if (range) {
		read_range(rd, range, loop);
	}
	if (!node_get(map, "steps"))
		reader_missing(rd, map, &schema_for, "steps", "what each iteration does");
	read_steps_of(rd, map, "steps", &step->steps);
}

/* ---- launch and dependsOn ---- */

/* Handles go by their upper case, as in PID_NAME. */
static bool take_handle(struct reader *rd, struct workflow_text *text, const char *field)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
	char quoted[QUOTE_SIZE];
	char *upper;

	if (!*text->value || text->value[strspn(text->value, allowed)] ||
		strlen(text->value) > LIMIT_WORKFLOW_NAME) {
		reader_error(rd, &text->at, "`%s` is 1 to %d letters, digits and `_`, not %s",
			field, LIMIT_WORKFLOW_NAME, quote(workflow_shown(text), quoted));
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

static void read_launch(struct reader *rd, const struct node *map, struct workflow_step *step)
{
	struct workflow_launch *launch = &step->launch;

	launch->signal.value = 15;
	if (!reader_check_map(rd, map, &schema_launch))
		return;
	if (reader_text(rd, map, "handleName", &launch->handle))
		take_handle(rd, &launch->handle, reader_field(rd, "handleName"));
	reader_number(rd, map, "signalOnParentStepExit", 0, MAX_SIGNAL, &launch->signal);
	if (!node_get(map, "steps"))
		reader_missing(rd, map, &schema_launch, "steps", "what is launched");
	read_steps_of(rd, map, "steps", &step->steps);
}

static void read_depends_on(struct reader *rd, const struct node *map, struct workflow_step *step)
{
	struct workflow_texts *handles = &step->depends_on;
	size_t kept = 0;

	read_texts(rd, map, "dependsOn", false, handles);
	for (size_t i = 0; i < handles->n; i++) {
		if (take_handle(rd, &handles->items[i], reader_field(rd, "dependsOn")))
			handles->items[kept++] = handles->items[i];
	}
	handles->n = kept;
}

/* ---- a step ---- */

static void read_condition(struct reader *rd, const struct node *map, struct workflow_step *step)
{
	struct node *node = node_get(map, "if");

	if (!node || !refuse_secret_in_command(rd, node, reader_field(rd, "if")))
		return;
	if (node->kind == NODE_SCALAR)
		node->literal = false; /* a number is a condition, too */
	if (reader_text(rd, map, "if", &step->condition) &&
		!step->condition.value[strspn(step->condition.value, " \t\r\n")])
		step->condition.value = NULL; /* as DeepSquare has it: always */
}

static void read_run_of(struct reader *rd, const struct node *map, struct workflow_step *step)
{
	read_run(rd, map, &step->run);
}

/* What the step does: at most one of the kinds. */
static void read_body(struct reader *rd, const struct node *node, struct workflow_step *step)
{
	static const struct {
		const char *key;
		enum workflow_step_kind kind;
		void (*read)(struct reader *rd, const struct node *map, struct workflow_step *step);
	} kinds[] = {
		{"run", WORKFLOW_STEP_RUN, read_run_of},
		{"steps", WORKFLOW_STEP_GROUP, NULL},
		{"for", WORKFLOW_STEP_FOR, read_for},
		{"launch", WORKFLOW_STEP_LAUNCH, read_launch},
		{"use", WORKFLOW_STEP_USE, read_use},
	};
	const char *first = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		const struct node *map = node_get(node, kinds[i].key);
		const struct node_entry *entry = node_find(node, kinds[i].key);
		size_t saved;

		if (!map || !entry)
			continue;
		if (first) {
			reader_error(rd, &entry->key_at,
				"`%s` has both `%s` and `%s`; a step has one of `run`, `steps`, "
				"`for`, `launch` and `use`",
				buf_str(&rd->path), first, kinds[i].key);
			continue;
		}
		first = kinds[i].key;
		step->kind = kinds[i].kind;
		if (!kinds[i].read) {
			read_steps_of(rd, node, kinds[i].key, &step->steps);
			continue;
		}
		saved = reader_enter(rd, kinds[i].key, 0);
		kinds[i].read(rd, map, step);
		reader_leave(rd, saved);
	}
}

static void read_step(
	struct reader *rd, const struct node *node, size_t i, struct workflow_step *step)
{
	const char *number = number_of(rd, i);
	size_t saved = rd->number.len;

	step->at = node->at;
	step->path = workflow_arena_copy(rd->arena, buf_str(&rd->path), rd->path.len);
	step->label = workflow_arena_printf(rd->arena, "step %s", number ? number : "");
	if (!number || !reader_check_map(rd, node, &schema_step))
		return;
	if (reader_text(rd, node, "name", &step->name) && *workflow_shown(&step->name))
		step->label = workflow_shown(&step->name);
	buf_truncate(&rd->number, 0);
	buf_add_str(&rd->number, number);
	rd->step = node;
	read_depends_on(rd, node, step);
	read_condition(rd, node, step);
	read_body(rd, node, step);
	read_steps_of(rd, node, "catch", &step->catch_steps);
	read_steps_of(rd, node, "finally", &step->finally_steps);
	buf_truncate(&rd->number, saved);
	if (step->kind == WORKFLOW_STEP_EMPTY && !step->finally_steps.n && !step->depends_on.n)
		reader_note(rd, &node->at,
			"`%s` has none of `run`, `steps`, `for`, `launch` and `use`: it does "
			"nothing",
			buf_str(&rd->path));
}

void read_steps_of(
	struct reader *rd, const struct node *map, const char *key, struct workflow_steps *out)
{
	struct node *list = reader_list(rd, map, key);
	size_t saved;

	out->at = map->at;
	if (!list)
		return;
	out->at = list->at;
	out->items = workflow_arena_array(rd->arena, list->n + 1, sizeof(*out->items));
	if (!out->items)
		return;
	out->n = list->n;
	saved = reader_enter(rd, key, 0);
	for (size_t i = 0; i < list->n; i++) {
		size_t at_list = reader_enter(rd, NULL, i);

		read_step(rd, list->entries[i].value, i, &out->items[i]);
		reader_leave(rd, at_list);
	}
	reader_leave(rd, saved);
}

static int walk(const struct workflow_step *step,
	int (*fn)(void *cookie, const struct workflow_step *step), void *cookie)
{
	int r = fn(cookie, step);

	if (!r)
		r = workflow_walk(&step->steps, fn, cookie);
	if (!r)
		r = workflow_walk(&step->catch_steps, fn, cookie);
	return r ? r : workflow_walk(&step->finally_steps, fn, cookie);
}

int workflow_walk(const struct workflow_steps *steps,
	int (*fn)(void *cookie, const struct workflow_step *step), void *cookie)
{
	int r = 0;

	for (size_t i = 0; !r && i < steps->n; i++)
		r = walk(&steps->items[i], fn, cookie);
	return r;
}
