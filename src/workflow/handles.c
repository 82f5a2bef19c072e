/*
 * Who may wait for whom. A handle can be waited for behind its launch, in the list of steps that it
 * stands in, and in what is below and behind: a plain group belongs to the list it stands in. Loops,
 * launches, modules and steps with `catch` or `finally` are scopes of their own, at whose end what was
 * launched within is ended. As nobody waits for what comes later, there are no cycles.
 */
#include <string.h>

#include "base/limits.h"
#include "workflow/native.h"
#include "base/banned.h"

struct handle {
	const char *name;
	const struct workflow_step *step;
	const struct handle *before; /* the one launched before, as far as it is in scope */
};

struct scope {
	const struct handle *last;
	const struct handle *own_end; /* those from `last` to here were launched in this scope */
};

static const struct handle *find(
	const struct handle *from, const struct handle *until, const char *name)
{
	for (const struct handle *h = from; h != until; h = h->before) {
		if (strcmp(h->name, name) == 0)
			return h;
	}
	return NULL;
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

/* Why a handle that is not in scope cannot be waited for. */
static void report(struct reader *rd, const struct workflow_steps *all,
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
			"`%s.dependsOn`: the step is a part of %s and would wait for itself for "
			"ever",
			step->path, handle->value);
		return;
	}
	reader_error(rd, &handle->at,
		"`%s.dependsOn`: %s is not launched before this step in the same list of steps; "
		"it is launched by `%s`",
		step->path, handle->value, search.found->path);
}

static void check_list(struct reader *rd, const struct workflow_steps *all,
	const struct workflow_steps *steps, struct scope *scope);

static void check_within(struct reader *rd, const struct workflow_steps *all,
	const struct workflow_steps *steps, const struct scope *outer)
{
	struct scope scope = {outer->last, outer->last};

	check_list(rd, all, steps, &scope);
}

static void check_duplicate(
	struct reader *rd, const struct workflow_step *step, const struct scope *scope)
{
	const struct handle *other = find(scope->last, NULL, step->launch.handle.value);

	if (other)
		reader_error(rd, &step->launch.handle.at,
			"the handle %s is that of `%s`, too; give one of them another name",
			step->launch.handle.value, other->step->path);
}

static void check_step(struct reader *rd, const struct workflow_steps *all,
	const struct workflow_step *step, struct scope *scope)
{
	bool closed = step->catch_steps.n || step->finally_steps.n;

	for (size_t i = 0; i < step->depends_on.n; i++) {
		if (!find(scope->last, NULL, step->depends_on.items[i].value))
			report(rd, all, step, &step->depends_on.items[i]);
	}
	if (step->kind == WORKFLOW_STEP_GROUP && !closed)
		check_list(rd, all, &step->steps, scope);
	else
		check_within(rd, all, &step->steps, scope);
	check_within(rd, all, &step->catch_steps, scope);
	check_within(rd, all, &step->finally_steps, scope);
	if (step->kind == WORKFLOW_STEP_LAUNCH && step->launch.handle.value) {
		struct handle *h = workflow_arena_new(rd->arena, struct handle);

		check_duplicate(rd, step, scope);
		if (!h || closed) /* its scope ends with the step itself */
			return;
		*h = (struct handle){step->launch.handle.value, step, scope->last};
		scope->last = h;
	}
}

static void check_list(struct reader *rd, const struct workflow_steps *all,
	const struct workflow_steps *steps, struct scope *scope)
{
	for (size_t i = 0; i < steps->n; i++)
		check_step(rd, all, &steps->items[i], scope);
}

void check_handles(struct reader *rd, const struct workflow_steps *steps)
{
	struct scope scope = {0};

	check_list(rd, steps, steps, &scope);
}
