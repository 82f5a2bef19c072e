/* States of the steps of a workflow, with launches, loops, catch and finally. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/process/process.h"
#include "base/str.h"
#include "cli/history/show_steps.h"
#include "run/process/live.h"

static char dir[] = "/tmp/penstock-steps-XXXXXX";

static int make_run(void **state)
{
	(void)state;
	return mkdtemp(strcpy(dir, "/tmp/penstock-steps-XXXXXX")) ? 0 : -1;
}

static int remove_run(void **state)
{
	(void)state;
	return fs_remove_tree(dir, NULL);
}

/* Writes the record of finished steps, with the id of this boot. */
static void finished(const char *lines)
{
	_cleanup_free_ char *path = path_join(dir, "steps");
	_cleanup_free_ char *text = NULL;
	char boot[PROCESS_BOOT_ID_SIZE] = "";

	process_boot_id(boot);
	text = str_printf("b %s\n%s", boot, lines);
	assert_non_null(text);
	assert_int_equal(fs_write_atomic(path, text, strlen(text), 0600, NULL), 0);
}

static void live(unsigned long serial, const char *path)
{
	struct live_step step = {.serial = serial,
		.name = (char *)(uintptr_t) "a step",
		.path = (char *)(uintptr_t)path,
		.cwd = dir};

	assert_int_equal(live_write(dir, &step, NULL), 0);
}

/* Adds "NUMBER STATE" of each step, with the iterations of a loop. */
static void add_states(struct buf *out, const json_t *steps)
{
	static const char *const parts[] = {"steps", "catch", "finally"};
	json_t *step;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)steps, i, step) {
		const char *state = json_string_value(json_object_get(step, "state"));

		buf_printf(out, "%s%s %s", out->len ? ", " : "",
			json_string_value(json_object_get(step, "number")), state ? state : "?");
		if (json_object_get(step, "iterations"))
			buf_printf(out, " %d+%d/%d",
				(int)json_integer_value(json_object_get(step, "iterations_done")),
				(int)json_integer_value(
					json_object_get(step, "iterations_running")),
				(int)json_integer_value(json_object_get(step, "iterations")));
		for (size_t k = 0; k < ARRAY_SIZE(parts); k++)
			add_states(out, json_object_get(step, parts[k]));
	}
}

static const char *states(
	const char *workflow, enum run_state state, int steps_done, bool on_this_machine)
{
	static struct buf text = BUF_INIT(1000);
	const struct records_attempt last = {.state = state, .steps_done = steps_done};
	const char *where = on_this_machine ? dir : NULL;
	json_auto_t *root = json_loads(workflow, 0, NULL);
	json_auto_t *steps = NULL;

	assert_non_null(root);
	steps = show_steps(root, NULL, &last, where, where);
	buf_truncate(&text, 0);
	add_states(&text, steps);
	return buf_str(&text);
}

#define RUN    "{\"run\": {}}"
#define LAUNCH "{\"launch\": {\"handleName\": \"SERVER\", \"steps\": [" RUN ", " RUN "]}}"
#define GROUP  "{\"steps\": [" RUN ", " RUN ", " RUN "]}"
#define LOOP(parallel)                                                                             \
	"{\"for\": {\"parallel\": " parallel                                                       \
	", \"range\": {\"begin\": 5, \"end\": -4, \"increment\": -3}, \"steps\": [" RUN ", " RUN   \
	"]}}"
#define TRY	    "{\"steps\": [" RUN ", " RUN "], \"catch\": [" RUN "], \"finally\": [" RUN ", " RUN "]}"
#define STEPS(list) "{\"steps\": [" list "]}"

static void parts_have_the_state_of_their_step(void **state)
{
	(void)state;
	assert_string_equal(states(STEPS(GROUP), RUN_SUCCEEDED, 1, true),
		"1 done, 1.1 done, 1.2 done, 1.3 done");
	assert_string_equal(states(STEPS(RUN "," GROUP), RUN_RUNNING, 0, true),
		"1 running, 2 to do, 2.1 to do, 2.2 to do, 2.3 to do");
	assert_string_equal(states(STEPS(LOOP("true")), RUN_SUCCEEDED, 1, true),
		"1 done 4+0/4, 1.1 done, 1.2 done");
	assert_string_equal(states(STEPS(LAUNCH "," RUN), RUN_SUCCEEDED, 2, true),
		"1 done, 1.1 done, 1.2 done, 2 done");
	assert_string_equal(states(STEPS(TRY), RUN_SUCCEEDED, 1, true),
		"1 done, 1.1 done, 1.2 done, 1.1 ?, 1.1 done, 1.2 done");
}

static void the_next_part_is_running(void **state)
{
	(void)state;
	finished("d 0.0\n");
	assert_string_equal(states(STEPS(GROUP), RUN_RUNNING, 0, true),
		"1 running, 1.1 done, 1.2 running, 1.3 to do");
	live(1, "0.2");
	assert_string_equal(states(STEPS(GROUP), RUN_RUNNING, 0, true),
		"1 running, 1.1 done, 1.2 done, 1.3 running");
}

static void an_interrupted_run_has_finished_parts(void **state)
{
	(void)state;
	finished("d 0.0\n");
	live(1, "0.1"); /* left by a killed attempt */
	assert_string_equal(states(STEPS(GROUP), RUN_PREEMPTED, 0, true),
		"1 to do, 1.1 done, 1.2 to do, 1.3 to do");
	assert_string_equal(states(STEPS(GROUP), RUN_STOPPED, 0, true),
		"1 stopped, 1.1 done, 1.2 stopped, 1.3 to do");
}

static void a_loop_counts_its_iterations(void **state)
{
	(void)state;
	finished("i 0 1\nd 0.i2.0\n");
	live(1, "0.i2.1");
	assert_string_equal(states(STEPS(LOOP("false")), RUN_RUNNING, 0, true),
		"1 running 2+1/4, 1.1 done, 1.2 running");
	assert_string_equal(
		states(STEPS("{\"for\": {\"range\": {\"begin\": 1, \"end\": 3}, \"steps\": [" RUN
			     "]}}"),
			RUN_SUCCEEDED, 1, true),
		"1 done 3+0/3, 1.1 done");
	live_remove(dir, 1);
	/* Iterations with launches are not recorded. */
	finished("");
	live(1, "0.i2.1");
	assert_string_equal(states(STEPS(LOOP("false")), RUN_RUNNING, 0, true),
		"1 running 2+1/4, 1.1 done, 1.2 running");
	finished("d 0.i0\nd 0.i2\nd 0.i3.0\n");
	live(1, "0.i1.0");
	live(2, "0.i3.1");
	assert_string_equal(
		states(STEPS(LOOP("true")), RUN_RUNNING, 0, true), "1 running 2+2/4, 1.1 ?, 1.2 ?");
}

static void a_launch_runs_beside_the_others(void **state)
{
	(void)state;
	finished("d 0.0\n");
	live(1, "0.1");
	live(2, "1");
	assert_string_equal(states(STEPS(LAUNCH "," RUN), RUN_RUNNING, 1, true),
		"1 running, 1.1 done, 1.2 running, 2 running");
	live_remove(dir, 1);
	assert_string_equal(states(STEPS(LAUNCH "," RUN), RUN_RUNNING, 1, true),
		"1 ended, 1.1 done, 1.2 ended, 2 running");
	finished("d 0\n");
	assert_string_equal(states(STEPS(LAUNCH "," RUN), RUN_RUNNING, 1, true),
		"1 done, 1.1 done, 1.2 done, 2 running");
}

static void a_failed_part_is_followed_by_its_catch(void **state)
{
	(void)state;
	finished("d 0.0\n");
	live(1, "0.1");
	assert_string_equal(states(STEPS(TRY), RUN_RUNNING, 0, true),
		"1 running, 1.1 done, 1.2 running, 1.1 ?, 1.1 to do, 1.2 to do");
	live(1, "0.c.0");
	assert_string_equal(states(STEPS(TRY), RUN_RUNNING, 0, true),
		"1 running, 1.1 done, 1.2 failed, 1.1 running, 1.1 to do, 1.2 to do");
	live(1, "0.f.1");
	assert_string_equal(states(STEPS(TRY), RUN_RUNNING, 0, true),
		"1 running, 1.1 done, 1.2 failed, 1.1 ?, 1.1 done, 1.2 running");
}

static void parts_on_another_machine_are_unknown(void **state)
{
	(void)state;
	assert_string_equal(states(STEPS(RUN "," GROUP "," RUN), RUN_RUNNING, 1, false),
		"1 done, 2 running, 2.1 ?, 2.2 ?, 2.3 ?, 3 to do");
	assert_string_equal(states(STEPS(LAUNCH "," RUN), RUN_RUNNING, 1, false),
		"1 ?, 1.1 ?, 1.2 ?, 2 running");
	assert_string_equal(states("{}", RUN_RUNNING, 0, false), "");
	assert_string_equal(
		states(STEPS("{\"for\": {\"range\": {\"begin\": 0, \"end\": -9223372036854775808, "
			     "\"increment\": -1}, \"steps\": [" RUN "]}}"),
			RUN_RUNNING, 1, false),
		"1 done 0+0/0, 1.1 done");
}

static void a_step_has_its_facts(void **state)
{
	static const char workflow[] = STEPS(
		"{\"name\": \"a\", \"dependsOn\": [\"SERVER\"], \"if\": \"-n x\", \"use\": "
		"{\"source\": \"./m\", \"module\": {\"steps\": [" RUN "]}}}," LAUNCH ",{}");
	const struct records_attempt last = {.state = RUN_RUNNING};
	json_auto_t *root = json_loads(workflow, 0, NULL);
	json_auto_t *steps = show_steps(root, NULL, &last, NULL, NULL);
	json_auto_t *first = json_pack("{s:s, s:s, s:s, s:s, s:[s], s:s, s:s, s:i, s:n, s:n}",
		"number", "1", "name", "a", "kind", "module", "state", "running", "depends_on",
		"SERVER", "if", "-n x", "source", "./m", "step", 1, "attempt", "ended");

	(void)state;
	assert_int_equal(json_array_size(json_object_get(json_array_get(steps, 0), "steps")), 1);
	json_object_del(json_array_get(steps, 0), "steps");
	assert_true(json_equal(json_array_get(steps, 0), first));
	assert_string_equal(
		json_string_value(json_object_get(json_array_get(steps, 1), "handle")), "SERVER");
	assert_string_equal(
		json_string_value(json_object_get(json_array_get(steps, 2), "kind")), "empty");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_run, remove_run)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(parts_have_the_state_of_their_step),
		TEST(the_next_part_is_running),
		TEST(an_interrupted_run_has_finished_parts),
		TEST(a_loop_counts_its_iterations),
		TEST(a_launch_runs_beside_the_others),
		TEST(a_failed_part_is_followed_by_its_catch),
		TEST(parts_on_another_machine_are_unknown),
		TEST(a_step_has_its_facts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
