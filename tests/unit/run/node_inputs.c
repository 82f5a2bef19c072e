/* Copies of the inputs on a node, with and without file locks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "run/cluster/node_inputs.h"

static bool broken; /* locking a file fails */

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
int __wrap_flock(int fd, int operation)
{
	if (!broken)
		return __real_flock(fd, operation);
	errno = ENOLCK;
	return -1;
}

static bool after_a_second(void *cookie)
{
	int *times = cookie;

	return ++*times > 20;
}

static int take(const char *dir, struct node_inputs *inputs, struct penstock_error *err)
{
	_cleanup_free_ char *from = path_join(dir, "from");
	_cleanup_free_ char *file = path_join(from, "x");
	int times = 0;

	assert_int_equal(fs_mkdirs(from, 0700, NULL), 0);
	assert_int_equal(fs_write_atomic(file, "data", 4, 0600, NULL), 0);
	return node_inputs_take(inputs,
		&(struct node_inputs_spec){
			.from = from,
			.where = dir,
			.id = "a1",
			.attempt = 1,
			.hurry = after_a_second,
			.cookie = &times,
		},
		err);
}

static void inputs_are_copied_once(void **state)
{
	char dir[] = "/tmp/penstock-inputs-XXXXXX";
	struct node_inputs first = {.lock = -1}, second = {.lock = -1};
	_cleanup_free_ char *file = NULL;
	struct stat before, after;

	(void)state;
	broken = false;
	assert_non_null(mkdtemp(dir));

	assert_int_equal(take(dir, &first, NULL), 0);
	file = path_join(first.path, "x");
	assert_int_equal(stat(file, &before), 0);
	assert_int_equal(take(dir, &second, NULL), 0);
	assert_string_equal(second.path, first.path);
	assert_int_equal(stat(file, &after), 0);
	assert_true(before.st_ino == after.st_ino);

	node_inputs_release(&first);
	node_inputs_release(&second);
	assert_int_equal(fs_remove_tree(dir, NULL), 0);
}

static void without_locks_there_is_no_wait(void **state)
{
	char dir[] = "/tmp/penstock-inputs-XXXXXX";
	struct node_inputs inputs = {.lock = -1};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r;

	(void)state;
	broken = true;
	assert_non_null(mkdtemp(dir));

	r = take(dir, &inputs, &err);

	assert_true(r < 0 && r == -(int)err.code);
	assert_int_not_equal(r, -PENSTOCK_E_CANCELLED);
	assert_int_equal(fs_remove_tree(dir, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(inputs_are_copied_once),
		cmocka_unit_test(without_locks_there_is_no_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
