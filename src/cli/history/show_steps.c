#include "cli/history/show_steps.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/process/process.h"
#include "base/str.h"
#include "cli/print/util.h"
#include "run/process/live.h"
#include "run/walk/finished.h"
#include "workflow/workflow.h"

/* Progress of a run on this machine. Paths are those of run/walk/finished.h. */
struct view {
	struct finished_steps *finished; /* owned; NULL if unknown, as for another machine's run */
	struct strlist live; /* paths of the executions */
};

/* Returns the rest of `path` after `outer` if `path` is `outer` or below it; else NULL. */
static const char *path_within(const char *path, const char *outer)
{
	size_t n = strlen(outer);

	return strncmp(path, outer, n) == 0 && (!path[n] || path[n] == '.') ? path + n : NULL;
}

static bool is_live(const struct view *view, const char *path)
{
	for (size_t i = 0; i < view->live.n; i++) {
		if (path_within(view->live.items[i], path))
			return true;
	}
	return false;
}

/* Returns the number of iterations of a loop that have live executions. Sets `*last` to the last of
 * these iterations, or to -1 if there are none. */
static size_t live_iterations(const struct view *view, const char *loop, json_int_t *last)
{
	json_auto_t *seen = json_object();

	*last = -1;
	for (size_t i = 0; i < view->live.n; i++) {
		const char *rest = path_within(view->live.items[i], loop);
		char number[24];
		json_int_t n;

		if (!rest || !str_starts(rest, ".i"))
			continue;
		n = strtoll(rest + 2, NULL, 10);
		*last = n > *last ? n : *last;
		snprintf(number, sizeof(number), "%lld", (long long)n);
		json_object_set_new(seen, number, json_true());
	}
	return json_object_size(seen);
}

static char *path_of_step(const char *list, size_t i)
{
	return str_printf("%s%s%zu", list, *list ? "." : "", i);
}

static bool is_launch(const json_t *step)
{
	return json_is_object(json_object_get(step, "launch"));
}

/* Steps of a list run one after the other, except launches. Returns the index of the first step
 * that has not ended. */
static size_t next_of(const struct view *view, const json_t *steps, const char *list)
{
	size_t i, next = 0;
	json_t *step;

	json_array_foreach ((json_t *)(uintptr_t)steps, i, step) {
		_cleanup_free_ char *path = path_of_step(list, i);

		if (!path || is_launch(step))
			continue;
		if (finished_has(view->finished, path))
			next = i + 1;
		else if (is_live(view, path))
			next = i;
	}
	while (is_launch(json_array_get(steps, next)))
		next++;
	return next;
}

static const char *state_of_launch(
	const struct view *view, const char *path, bool began, const char *state)
{
	if (!view->finished)
		return began ? NULL : "to do";
	if (finished_has(view->finished, path))
		return "done";
	if (is_live(view, path))
		return state;
	return began ? "ended" : "to do";
}

static bool is_done(const char *state)
{
	return state && strcmp(state, "done") == 0;
}

/* Returns true if the step has begun and is not done: its parts may have different states. */
static bool is_open(const char *state)
{
	return state && strcmp(state, "done") != 0 && strcmp(state, "to do") != 0;
}

static json_t *tree(const struct view *view, const json_t *steps, const char *list,
	const char *number, const char *state, size_t next);

/* Adds a list of steps within a step, if the list has steps. `outer` is the path of the step, and
 * `outer` followed by `suffix` is the path of the list. */
static void add_list(const struct view *view, json_t *row, const char *key, const json_t *steps,
	const char *outer, const char *suffix, const char *state)
{
	_cleanup_free_ char *list = str_printf("%s%s", outer, suffix);
	size_t next = 0;

	if (!list || !json_array_size(steps))
		return;
	if (!view->finished && is_open(state))
		state = NULL;
	/* If the run was interrupted, a step in the state "to do" may have finished parts. */
	if (view->finished && state && !is_done(state))
		next = next_of(view, steps, list);
	json_object_set_new(row, key,
		tree(view, steps, list, json_string_value(json_object_get(row, "number")), state,
			next));
}

static json_int_t count_iterations(const json_t *loop)
{
	const json_t *range = json_object_get(loop, "range");
	json_int_t increment = json_integer_value(json_object_get(range, "increment"));

	if (!range)
		return (json_int_t)json_array_size(json_object_get(loop, "items"));
	return (json_int_t)workflow_count_range(json_integer_value(json_object_get(range, "begin")),
		json_integer_value(json_object_get(range, "end")), increment ? increment : 1);
}

static void add_loop(const struct view *view, json_t *row, const json_t *loop, const char *path,
	const char *state)
{
	bool parallel = json_is_true(json_object_get(loop, "parallel"));
	json_int_t n = count_iterations(loop);
	json_int_t finished = is_done(state) ? n : 0;
	json_int_t last;
	size_t running = 0;
	char iteration[32] = "";

	if (view->finished && state && !is_done(state)) {
		finished = (json_int_t)(parallel ? finished_parallel(view->finished, path)
						 : finished_iterations(view->finished, path));
		running = live_iterations(view, path, &last);
		/* The end of an iteration that has launches is not recorded: count the iterations
		 * before the last live one. */
		if (!parallel && last > finished)
			finished = last;
		snprintf(iteration, sizeof(iteration), ".i%lld", (long long)finished);
	}
	json_object_update_new(row,
		json_pack("{s:b, s:I, s:I, s:I}", "parallel", parallel, "iterations", n,
			"iterations_done", finished, "iterations_running", (json_int_t)running));
	/* The iterations of a parallel loop are in different states. */
	add_list(view, row, "steps", json_object_get(loop, "steps"), path, iteration,
		parallel && is_open(state) ? NULL : state);
}

/* Adds the parts of a step. */
static void add_parts(const struct view *view, json_t *row, const json_t *step, const char *path,
	const char *state)
{
	const json_t *module = json_object_get(json_object_get(step, "use"), "module");
	_cleanup_free_ char *caught = str_printf("%s.c", path), *last = str_printf("%s.f", path);
	bool catches = caught && is_live(view, caught), ends = last && is_live(view, last);
	const char *body = (catches || ends) && is_open(state) ? "failed" : state;

	if (json_is_object(json_object_get(step, "for")))
		add_loop(view, row, json_object_get(step, "for"), path, body);
	else if (is_launch(step))
		add_list(view, row, "steps",
			json_object_get(json_object_get(step, "launch"), "steps"), path, "", body);
	else
		add_list(view, row, "steps", json_object_get(module ? module : step, "steps"), path,
			"", body);
	/* Steps of `catch` run only after a failure, and their ends are not recorded. */
	add_list(view, row, "catch", json_object_get(step, "catch"), path, ".c",
		catches || (state && !is_done(state) && !is_open(state)) ? state : NULL);
	add_list(view, row, "finally", json_object_get(step, "finally"), path, ".f",
		ends || !is_open(state) ? state : "to do");
}

static const char *kind_of(const json_t *step)
{
	static const char *const kinds[][2] = {{"run", "run"}, {"steps", "group"}, {"for", "loop"},
		{"launch", "launch"}, {"use", "module"}};

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		const json_t *value = json_object_get(step, kinds[i][0]);

		if (value && !json_is_null(value))
			return kinds[i][1];
	}
	return "empty";
}

static json_t *describe(const json_t *step, const char *number, const char *state)
{
	const char *name = json_string_value(json_object_get(step, "name"));
	const json_t *handle = json_object_get(json_object_get(step, "launch"), "handleName");
	const json_t *depends = json_object_get(step, "dependsOn");

	return json_pack("{s:s, s:o, s:s, s:s?, s:O*, s:O*, s:O*, s:O*}", "number", number, "name",
		name ? json_text(name) : json_sprintf("step %s", number), "kind", kind_of(step),
		"state", state, "handle", json_is_string(handle) ? handle : NULL, "depends_on",
		json_array_size(depends) ? depends : NULL, "if", json_object_get(step, "if"),
		"source", json_object_get(json_object_get(step, "use"), "source"));
}

/* Returns the rows of a list of steps. The steps before step `next` are done, and step `next` has
 * the state `state`. Later steps are "to do" if `state` is the state of a step that has begun and
 * is not done; otherwise they have `state`, too. Launches have states of their own. */
static json_t *tree(const struct view *view, const json_t *steps, const char *list,
	const char *number, const char *state, size_t next)
{
	json_t *rows = json_array(), *step;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)steps, i, step) {
		_cleanup_free_ char *path = path_of_step(list, i);
		_cleanup_free_ char *own = str_printf("%s%s%zu", number, *number ? "." : "", i + 1);
		const char *now = i < next ? "done" : i > next && is_open(state) ? "to do" : state;
		json_t *row;

		if (!path || !own)
			break;
		if (is_launch(step) && !is_done(state) && (i < next || is_open(state)))
			now = state_of_launch(view, path, i < next, state);
		row = describe(step, own, now);
		add_parts(view, row, step, path, now);
		json_array_append_new(rows, row);
	}
	return rows;
}

static const char *state_of_next(const struct records_attempt *last)
{
	if (last->state == RUN_SUCCEEDED)
		return "done"; /* the launches have ended, too */
	if (last->state == RUN_RUNNING || last->state == RUN_STOPPED)
		return run_state_name(last->state);
	if (last->state == RUN_FAILED &&
		(last->class == RUN_CLASS_USER || last->class == RUN_CLASS_OOM ||
			last->class == RUN_CLASS_TIMEOUT))
		return "failed";
	return "to do";
}

/* Returns the newest record of the end of step `i`; NULL if the step has not ended. */
static json_t *find_done(const json_t *done, size_t i)
{
	json_t *row, *found = NULL;
	size_t at;

	json_array_foreach ((json_t *)(uintptr_t)done, at, row) {
		if ((size_t)json_integer_value(json_object_get(row, "step")) == i + 1)
			found = row;
	}
	return found;
}

static int add_live(void *cookie, const struct live_step *step)
{
	struct view *view = cookie;

	return *step->path ? strlist_add(&view->live, step->path) : 0;
}

json_t *show_steps(const json_t *workflow, const json_t *done, const struct records_attempt *last,
	const char *run_dir, const char *state_dir)
{
	_cleanup_free_ char *path = state_dir ? path_join(state_dir, "steps") : NULL;
	const size_t next = last->steps_done > 0 ? (size_t)last->steps_done : 0;
	char boot[PROCESS_BOOT_ID_SIZE] = "";
	struct view view = {0};
	json_t *rows, *row;
	size_t i;

	/* If the file of finished steps is damaged, steps within unfinished steps have unknown
	 * states. */
	process_boot_id(boot);
	if (path && finished_read(&view.finished, path, boot, NULL) == 0 &&
		last->state == RUN_RUNNING) {
		live_each(run_dir, add_live, &view);
		live_each_of_cluster(run_dir, add_live, &view);
	}
	rows = tree(&view, json_object_get(workflow, "steps"), "", "", state_of_next(last), next);
	json_array_foreach (rows, i, row) {
		/* `done` may have ends of later steps that were recorded before the run last
		 * started over. */
		const json_t *end = i < next ? find_done(done, i) : NULL;

		json_object_update_new(
			row, json_pack("{s:I, s:O?, s:O?}", "step", (json_int_t)i + 1, "attempt",
				     json_object_get(end, "attempt"), "ended",
				     json_object_get(end, "ended")));
	}
	finished_free(view.finished);
	strlist_release(&view.live);
	return rows;
}
