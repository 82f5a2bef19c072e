/* The values that are kept from the files named by $DEEPSQUARE_ENV, and the time for which they are
 * kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "run/attempt/attempt.h"
#include "run/walk/walk.h"

/* A walk at its root frame, without a file. */
struct world {
	struct attempt attempt;
	struct walk walk;
	struct workflow_steps steps;
};

static int make_world(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->attempt.layout.env_file = strdup("/nonexistent/env");
	w->walk.attempt = &w->attempt;
	w->walk.ready_end = &w->walk.ready;
	w->walk.root = frame_list(NULL, &w->steps, "", "");
	assert_non_null(w->attempt.layout.env_file);
	assert_non_null(w->walk.root);
	*state = w;
	return 0;
}

static int remove_world(void **state)
{
	struct world *w = *state;

	walk_release(&w->walk);
	free(w->attempt.layout.env_file);
	free(w);
	return 0;
}

/* Begins a list with its own file, like the list of a module that exports only its outputs. */
static struct frame *begin_with_file(struct world *w, struct frame *parent, const char *path)
{
	struct frame *list = frame_list(parent, &w->steps, "module", "0");

	assert_non_null(list);
	list->own_env_file = strdup(path);
	assert_non_null(list->own_env_file);
	assert_int_equal(walk_env_own(&w->walk, path), 0);
	list->env_file = list->own_env_file;
	return list;
}

/* A loop may use as many modules as it has iterations, so the values of a module must not be kept
 * after its end. */
static void the_file_of_a_module_is_forgotten_with_it(void **state)
{
	struct world *w = *state;
	struct frame *module = begin_with_file(w, w->walk.root, "/nonexistent/env.0");

	walk_env_begin(&w->walk, module);
	assert_non_null(w->walk.env_seen);

	frame_end(&w->walk, module);

	assert_null(w->walk.env_seen);
}

/* A launch that a module started may run longer than the module. */
static void what_is_launched_keeps_the_file(void **state)
{
	struct world *w = *state;
	struct frame *module = begin_with_file(w, w->walk.root, "/nonexistent/env.0");
	struct frame *launched = begin_with_file(w, w->walk.root, "/nonexistent/env.0");

	walk_env_begin(&w->walk, launched);

	frame_end(&w->walk, module);
	assert_non_null(w->walk.env_seen);

	frame_end(&w->walk, launched);
	assert_null(w->walk.env_seen);
}

/* No frame owns the file of the run. */
static void the_file_of_the_run_stays(void **state)
{
	struct world *w = *state;
	struct frame *module = begin_with_file(w, w->walk.root, "/nonexistent/env.0");
	struct frame *plain = frame_list(w->walk.root, &w->steps, "plain", "1");
	struct env_seen *seen;

	assert_non_null(plain);
	walk_env_begin(&w->walk, module);
	walk_env_begin(&w->walk, plain);
	seen = w->walk.env_seen;

	frame_end(&w->walk, plain);
	frame_end(&w->walk, module);

	assert_ptr_equal(w->walk.env_seen, seen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			the_file_of_a_module_is_forgotten_with_it, make_world, remove_world),
		cmocka_unit_test_setup_teardown(
			what_is_launched_keeps_the_file, make_world, remove_world),
		cmocka_unit_test_setup_teardown(
			the_file_of_the_run_stays, make_world, remove_world),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
